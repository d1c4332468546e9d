//go:build linux

package escape

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

// TestCritical is the part of TestNative to run first, and often: what would be a broken
// boundary.
//
//test:check
func TestCritical(t *testing.T) {
	native(t, func(p *Probe) bool { return p.Severity == Critical })
}

// TestIdentity is the part of TestNative in which it matters who starts the launcher: what
// only root may do, what root sheds, and what it lends.
//
//test:root
func TestIdentity(t *testing.T) {
	native(t, func(p *Probe) bool {
		return p.Root || p.Guarantee == profiles.PrivNone || slices.ContainsFunc(p.Needs, func(n Need) bool {
			return n == NeedRoot || n == NeedResource || n == NeedCgroup || n == NeedSetuid
		})
	})
}

// TestNative is the whole suite against pccrun: nothing escapes that is
// claimed, every control that can run here escapes, no claim stays untested.
func TestNative(t *testing.T) {
	target, results := native(t, func(*Probe) bool { return true })
	require.Empty(t, untested(target, results), "claimed, and no probe said anything")
}

// tried is what came of probes against pccrun in this process: each is performed once,
// however many tests want it.
var tried = map[*Probe]Result{}

// native performs probes against pccrun, and fails the test for each that did not hold.
func native(t *testing.T, chosen func(*Probe) bool) (*Target, []Result) {
	t.Helper()
	s, target := nativeSuite(t)
	var wanted []*Probe
	for _, p := range Probes() {
		if !chosen(p) {
			continue
		}
		wanted = append(wanted, p)
		if _, done := tried[p]; !done {
			s.Probes = append(s.Probes, p)
		}
	}
	fresh, err := s.Run(t.Context())
	require.NoError(t, err)
	for i, p := range s.Probes {
		tried[p] = fresh[i]
	}
	var results []Result
	count := map[Verdict]int{}
	for _, p := range wanted {
		r := tried[p]
		results = append(results, r)
		count[r.Verdict]++
		if r.failed(Low) || r.Verdict == VerdictError || r.Verdict == VerdictVacuous {
			t.Errorf("%s %s %s: %s: %s%s", r.Verdict, r.ID, r.Severity, r.Name, r.Reason, r.Inside.Detail)
		}
	}
	t.Log(count)
	return target, results
}

// nativeSuite is a suite without probes for pccrun with some flags, whose claims are known.
func nativeSuite(t *testing.T, flags ...string) (*Suite, *Target) {
	t.Helper()
	needCage(t)
	t.Setenv("XDG_CACHE_HOME", shortDir(t))
	target := Native(testLauncher(t), flags)
	site, err := openSite()
	require.NoError(t, err)
	t.Cleanup(site.close)
	require.NoError(t, target.ask(t.Context(), site.dir))
	require.NotEmpty(t, target.Claims)
	return &Suite{Targets: []*Target{target}, Parallel: 4, Command: "pccrun", site: site, host: survey()}, target
}
