//go:build linux

package escape

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNative is the whole suite against pccrun: nothing escapes that is
// claimed, no critical probe is vacuous, no claim stays untested.
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
	again(t, s, results)
	count := map[Verdict]int{}
	for _, r := range results {
		count[r.Verdict]++
		if r.failed(Low) || unproven(r) {
			t.Errorf("%s %s %s: %s: %s%s", r.Verdict, r.ID, r.Severity, r.Name, r.Reason, r.Inside.Detail)
		}
	}
	t.Log(count)
	require.Empty(t, untested(target, results), "claimed, and no probe said anything")
}

// unproven says whether a result leaves open what the test is about: nothing
// that a sandbox did.
func unproven(r Result) bool {
	return r.Verdict == VerdictError || r.Verdict == VerdictVacuous && r.Severity == Critical
}

// again repeats, alone and with a control of its own, what a busy machine may
// have kept from running. An escape is never given a second try.
func again(t *testing.T, s *Suite, results []Result) {
	for i, r := range results {
		if !unproven(r) {
			continue
		}
		t.Logf("once more: %s: %s", r.ID, r.Reason)
		alone := &Suite{Probes: []*Probe{Find(r.ID)}, Targets: s.Targets, Command: s.Command, Parallel: 1, site: s.site}
		more, err := alone.Run(t.Context())
		require.NoError(t, err)
		results[i] = more[0]
	}
}
