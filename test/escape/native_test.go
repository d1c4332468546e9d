//go:build linux

package escape

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNative is the whole suite against pccrun: nothing escapes that is
// claimed, every control that can run here escapes, no claim stays untested.
func TestNative(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a minute")
	}
	needCage(t)
	t.Setenv("XDG_CACHE_HOME", shortDir(t))
	target := Native(testLauncher(t), nil)
	site, err := openSite()
	require.NoError(t, err)
	defer site.close()
	require.NoError(t, target.ask(t.Context(), site.dir))
	require.NotEmpty(t, target.Claims)
	s := &Suite{Probes: Probes(), Targets: []*Target{target}, Command: "pccrun", site: site}
	results, err := s.Run(t.Context())
	require.NoError(t, err)
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		if r.failed(Low) || r.Verdict == VerdictError || r.Verdict == VerdictVacuous {
			t.Errorf("%s %s %s: %s: %s%s", r.Verdict, r.ID, r.Severity, r.Name, r.Reason, r.Inside.Detail)
		}
	}
	t.Log(count)
	require.Empty(t, untested(target, results), "claimed, and no probe said anything")
}
