package native

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// Where capitals do not count a file of another spelling is the one that is
// named: what is mounted on it is on all its names if the kernel folds them, but
// a pattern goes by the spelling that stands on the disk.
func TestFoldingAnswers(t *testing.T) {
	b := newBench(t)
	b.request.Files = append(b.request.Files, profiles.FileFlag{Path: b.workspace + "/.env", Access: profiles.Hide})
	state := func(f survey.Folding, patterns bool) map[profiles.Guarantee]profiles.State {
		run, err := b.plan("/bin/true")
		require.NoError(t, err)
		run.Plan.Folding = f
		if !patterns {
			policy := *run.Policy
			policy.Files = slices.DeleteFunc(slices.Clone(policy.Files), func(r profiles.FileRule) bool { return r.Glob != "" })
			run.Policy = &policy
		}
		states := map[profiles.Guarantee]profiles.State{}
		for _, a := range run.answers() {
			states[a.Guarantee] = a.State
		}
		return states
	}
	for name, c := range map[string]struct {
		folding        survey.Folding
		named, pattern profiles.State
	}{
		"no":            {survey.Folding{}, profiles.Weak, profiles.Weak},
		"by the kernel": {survey.Folding{Dir: "/x", Covered: true}, profiles.Weak, profiles.Missing},
		"by the server": {survey.Folding{Dir: "/x"}, profiles.Missing, profiles.Missing},
	} {
		require.Equal(t, c.named, state(c.folding, false)[profiles.FSHide], name)
		require.Equal(t, c.pattern, state(c.folding, true)[profiles.FSHide], name)
		if c.folding.Dir != "" {
			require.Equal(t, profiles.Missing, state(c.folding, false)[profiles.FSProtect], name)
		}
	}
}
