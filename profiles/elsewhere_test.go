package profiles

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestElsewhere resolves for a Mac that is not here: what stands here in the home and the
// workspace of these names is not read.
func TestElsewhere(t *testing.T) {
	home := t.TempDir()
	workspace := home + "/project"
	for _, dir := range []string{"/project", "/.parallel-cc", "/.claude", "/.config/pccrun/profiles"} {
		require.NoError(t, os.MkdirAll(home+dir, 0o755))
	}
	for _, file := range []string{"/project/.pccrun.jsonc", "/.parallel-cc/sandbox.json", "/.claude/settings.json",
		"/.config/pccrun/profiles/claude.jsonc"} {
		require.NoError(t, os.WriteFile(home+file, []byte("{ broken"), 0o644))
	}
	req := Request{Profile: "claude", Workspace: workspace, Host: Host{UID: os.Getuid(), Home: home, Elsewhere: true,
		Memory: 1 << 30}}
	p, err := Resolve(req)
	require.NoError(t, err)
	assert.Empty(t, p.Warnings)
	assert.Equal(t, []string{home, workspace, workspace}, []string{p.Home, p.Workspace, p.WorkDir})
	assert.Contains(t, p.Homes, "/Users")
	assert.Equal(t, Hide, p.Decide("/Users/other").Access)
	assert.Equal(t, Write, p.Decide(workspace+"/a").Access)

	here := req
	here.Host.Elsewhere = false
	_, err = Resolve(here)
	require.ErrorContains(t, err, "want a key", "the control")

	req.Host.Home, req.Workspace = "/Users/me", "/Users/me/nowhere"
	p, err = Resolve(req)
	require.NoError(t, err)
	assert.Equal(t, []string{"/Users", "/private/var/root"}, p.Homes)
	req.Host.Home, req.Workspace = "/srv/homes/me", "/srv/homes/me/src"
	p, err = Resolve(req)
	require.NoError(t, err)
	assert.Contains(t, p.Homes, "/srv/homes")

	for _, bad := range [][2]string{{"me", "/w"}, {"/", "/w"}, {"/Users/me", ""}, {"/Users/me", "w"}, {"/Users/me",
		"/"}, {"/Users/me", "/Users"}, {"/Users/me", "/usr"}, {"/Users/me", "/dev/x"},
		{"/Users/me", "/Users/me/a\nb"}, {"/Users/a\nb", "/w"}} {
		req.Host.Home, req.Workspace = bad[0], bad[1]
		_, err := Resolve(req)
		assert.Error(t, err, bad)
	}
}
