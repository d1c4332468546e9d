package quarantine

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Root looks after a killed run in a directory whose owner swaps every name of ours
// that he sees for a directory of root's: nothing is removed that was not copied.
func TestAsideRaced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	const rounds = 300
	root, victims := fixture.Dir(t), fixture.Dir(t)
	require.NoError(t, os.Lchown(root, fixture.Someone, fixture.Someone))
	file, dir := filepath.Join(victims, "file"), filepath.Join(root, "root's")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600))
	at, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(at)
	race := func(during func()) (swaps int64) {
		var over atomic.Bool
		ended := make(chan int64)
		go func() { ended <- swap(root, file, dir, &over) }()
		during()
		over.Store(true)
		return <-ended
	}
	plant := func() {
		require.NoError(t, os.MkdirAll(filepath.Join(root, ".vscode", "d"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, ".vscode", "d", "f"), make([]byte, 1<<16), 0o600))
	}
	session, err := os.OpenRoot(fixture.Dir(t))
	require.NoError(t, err)
	stash := &Stash{Open: func() (*os.Root, error) { return session, nil }}
	require.NoError(t, stash.open())
	swaps := race(func() {
		for range rounds {
			plant()
			_, _ = stash.takeByCopy(at, ".vscode", Finding{Kind: Stashed, Path: root + "/.vscode"}, unix.EXDEV)
			_ = os.RemoveAll(filepath.Join(root, ".vscode"))
		}
	})
	stash.Settle()
	require.Positive(t, swaps, "else this proves nothing")
	require.FileExists(t, filepath.Join(dir, "kept"))
	require.FileExists(t, file)

	// The control: between the rename and the removal there is time for one of his.
	plant()
	away := Prefix + "by-name"
	require.NoError(t, Move(at, ".vscode", at, away))
	require.NoError(t, os.Rename(filepath.Join(root, away), filepath.Join(root, "mine")))
	require.NoError(t, os.Rename(dir, filepath.Join(root, away)))
	require.NoError(t, beneath.RemoveTree(at, away))
	require.NoFileExists(t, filepath.Join(root, away, "kept"))
	require.NoDirExists(t, dir)
}

// What was quarantined on another file system gets a place in the stash, and what cannot be
// copied a name of ours beside its own.
func TestAsideHeld(t *testing.T) {
	root := fixture.Dir(t)
	if os.Getuid() == 0 {
		require.NoError(t, os.Lchown(root, fixture.Someone, fixture.Someone))
	}
	at, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(at)
	session, err := os.OpenRoot(fixture.Dir(t))
	require.NoError(t, err)
	stash := &Stash{Open: func() (*os.Root, error) { return session, nil }}
	require.NoError(t, stash.open())
	require.NoError(t, os.WriteFile(filepath.Join(root, ".envrc"), []byte("x"), 0o600))
	c, err := stash.takeByCopy(at, ".envrc", Finding{Kind: Stashed, Path: root + "/.envrc"}, unix.EXDEV)
	require.NoError(t, err)
	b, err := session.ReadFile(StashName + "/" + c.Stash)
	require.NoError(t, err)
	require.Equal(t, "x", string(b))
	list, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, list)

	require.NoError(t, os.WriteFile(filepath.Join(root, ".envrc"), nil, 0o600))
	require.NoError(t, os.Truncate(filepath.Join(root, ".envrc"), maxCopy+1))
	c, err = stash.takeByCopy(at, ".envrc", Finding{Kind: Stashed, Path: root + "/.envrc", What: "file"}, unix.EXDEV)
	require.NoError(t, err)
	require.Empty(t, c.Stash)
	require.Contains(t, c.What, "renamed to "+Prefix)
	list, err = os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, list, 1)
	stash.Settle()
}

// What no line can be written of is told once, with the name that it has where it stood.
func TestStashFull(t *testing.T) {
	root := fixture.Dir(t)
	session, err := os.OpenRoot(fixture.Dir(t))
	require.NoError(t, err)
	defer session.Close()
	stash := &Stash{Open: func() (*os.Root, error) { return session, nil }}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	require.NoError(t, stash.open())
	stash.journal.Close()
	stash.journal = full
	fixture.Write(t, root+"/.envrc", "x")
	at, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(at)
	_, err = stash.Take(at, ".envrc", Finding{Kind: Stashed, Path: root + "/.envrc"})
	require.NoError(t, err)
	found := stash.Settle()
	require.Len(t, found, 1)
	require.Contains(t, found[0].What, ", renamed to "+Prefix)
	require.Empty(t, found[0].Stash)
	require.NoFileExists(t, root+"/.envrc")
	left, err := filepath.Glob(root + "/" + Prefix + "*")
	require.NoError(t, err)
	require.Len(t, left, 1)
}
