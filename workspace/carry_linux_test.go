package workspace

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// TestCarryThrough brings what was made to its place by a session's directory, on
// the same file system and on another, and leaves nothing on the way; where something
// has come to be there it is left alone.
func TestCarryThrough(t *testing.T) {
	other, err := os.MkdirTemp("/dev/shm", "")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(other) })
	for name, session := range map[string]string{"the same file system": t.TempDir(), "another": other} {
		t.Run(name, func(t *testing.T) {
			home, private := t.TempDir(), t.TempDir()
			fixture.Write(t, private+"/made-inside/dir/file", "token")
			dir, err := unix.Open(private, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			defer unix.Close(dir)
			c := Carried{Path: home + "/.agent/state", Dir: dir, Name: "made-inside"}
			open := func() (*os.Root, error) { return os.OpenRoot(session) }
			done, err := c.Carry(open)
			require.NoError(t, err)
			require.True(t, done)
			text, err := os.ReadFile(c.Path + "/dir/file")
			require.NoError(t, err)
			require.Equal(t, "token", string(text))
			require.Equal(t, []string{"state"}, list(t, home+"/.agent"))
			require.Empty(t, list(t, session))

			require.NoError(t, os.WriteFile(c.Path+"/dir/file", []byte("theirs"), 0o600))
			done, err = c.Carry(open)
			require.ErrorIs(t, err, unix.EEXIST)
			require.False(t, done)
			require.Equal(t, []string{"state"}, list(t, home+"/.agent"))
			require.Empty(t, list(t, session))
			text, err = os.ReadFile(c.Path + "/dir/file")
			require.NoError(t, err)
			require.Equal(t, "theirs", string(text))
		})
	}
}

// list returns the names in a directory.
func list(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
