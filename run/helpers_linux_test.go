package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// A run with --write ~ covers the home for good. What the launcher has git asked in is hidden from each run, and still
// does for that.
func TestOwnDirsInACoveredHome(t *testing.T) {
	home := private.Dir(t)
	helpers := &programs.Finder{Home: home, Records: programs.Records(home, "")}
	own := func(below string) error {
		f := &resolved{request: &request{req: &profiles.Request{}}, helpers: helpers, policy: &profiles.Policy{Home: home + below}}
		f.req.Host.Home = home
		f.dirs, _ = state.Find(func(string) string { return "" }, home+below)
		return ownDirs(f)
	}
	require.NoError(t, own("/x"), "control")
	require.NoError(t, helpers.Cover([]string{home}))
	require.NoError(t, own(""))
	require.ErrorContains(t, own("/x"), "sandboxed commands can write there")
	require.ErrorContains(t, own("/.local/state/pccrun/sessions/git-1"), "sandboxed commands can write there")
	require.NoError(t, own("/.local/state/pccrun/git-1"))
}
