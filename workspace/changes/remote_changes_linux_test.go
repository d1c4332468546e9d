package changes_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/changes"
)

// TestBrought makes the upper side of a session out of what came from elsewhere.
func TestBrought(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	for _, name := range []string{"changed", "gone", "kept", "moved", "d/in"} {
		write(filepath.Join(dir, name), "the text of "+name+"\n")
	}
	session, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer session.Close()
	layer, err := changes.LayerOf(dir)
	require.NoError(t, err)
	require.NoError(t, changes.CreateUpper(session, &changes.Record{Workspace: dir, Layers: []changes.Layer{layer}, Started: changes.Clock()}, nil))
	tree := filepath.Join(session.Name(), changes.TreeDir(0))
	write(filepath.Join(tree, "changed"), "another\n")
	write(filepath.Join(tree, "held"), "x\n")
	write(filepath.Join(tree, "to"), "the text of moved\n")
	for _, name := range []string{"gone", "moved", "d"} {
		require.NoError(t, changes.Gone(session, 0, name))
	}
	for _, name := range []string{"..", "/etc/passwd", ".", "../x", ""} {
		require.Error(t, changes.Gone(session, 0, name), "%q", name)
	}
	require.Error(t, changes.Gone(session, 0, "absent/x"), "what it lies in is not there")

	u, err := changes.OpenUpper(session, nil)
	require.NoError(t, err)
	sets, err := u.Changes()
	require.NoError(t, err)
	text, err := u.ReadTree(0, "changed", 100)
	require.NoError(t, err)
	require.Equal(t, "another\n", string(text))
	_, err = u.ReadTree(0, "changed", 3)
	require.Error(t, err)
	var kept []changes.Change
	for _, c := range sets[0].Changes {
		if c.Path == "held" {
			continue
		}
		c.Conflict = "" // who brings them knows what stood when they went
		if c.Path == "gone" {
			c.Conflict = "changed on the host since the upload"
		}
		kept = append(kept, c)
	}
	sets[0].Changes = kept
	n, err := u.Keep(sets)
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.NoError(t, u.Close())

	list := func(u *changes.Upper) (list []string) {
		sets, err := u.Changes()
		require.NoError(t, err)
		for _, c := range sets[0].Changes {
			text := c.String()
			if c.Conflict != "" {
				text += " conflict"
			}
			list = append(list, text)
		}
		return list
	}
	u, err = changes.OpenUpper(session, nil)
	require.NoError(t, err)
	defer u.Close()
	require.Equal(t, []string{"M changed", "D d", "D d/in", "D gone conflict", "D moved", "A to"}, list(u))
	n, _, err = u.Settle() // as the end of each run does
	require.NoError(t, err)
	require.Equal(t, 6, n)
	require.Equal(t, []string{"M changed", "D d", "D d/in", "D gone conflict", "D moved", "A to"}, list(u))
	require.NoError(t, u.Begin())
	_, err = u.Apply(changes.Selection{})
	var conflict *changes.ConflictError
	require.ErrorAs(t, err, &conflict)
	_, err = u.Apply(changes.Selection{Force: true})
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "gone"))
	require.NoFileExists(t, filepath.Join(dir, "held"))
	require.FileExists(t, filepath.Join(dir, "kept"))
	require.FileExists(t, filepath.Join(dir, "to"))
}
