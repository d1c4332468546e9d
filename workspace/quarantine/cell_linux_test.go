package quarantine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// The owner of a directory in which root accepts swaps every name of it that he
// sees for a file of root's. That he gets none of them, and no file of root's is
// removed.
func TestRestoreRaced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	const rounds = 150
	root := fixture.Dir(t)
	shm, err := os.MkdirTemp("/dev/shm", "pccrun-test") // another file system
	require.NoError(t, err)
	defer os.RemoveAll(shm)
	session, err := os.OpenRoot(shm)
	require.NoError(t, err)
	defer session.Close()
	fixture.Write(t, root+"/.vscode/d/x", "")
	fixture.Write(t, root+"/.vscode/f", "x")
	require.NoError(t, os.Symlink("../README", root+"/.vscode/l"))
	require.NoError(t, os.Symlink("README", root+"/.envrc"))
	require.NoError(t, unix.Mkfifo(root+"/.npmrc", 0o600))
	stash := &Stash{Open: func() (*os.Root, error) { return session, nil }}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for _, name := range []string{".vscode", ".envrc", ".npmrc"} {
		_, err := stash.Take(fd, name, Finding{Kind: Stashed, Path: root + "/" + name})
		require.NoError(t, err)
	}
	require.Len(t, stash.Settle(), 3)
	found, err := ReadFindings(session)
	require.NoError(t, err)
	require.Len(t, found, 3)
	require.NoError(t, os.Lchown(root, fixture.Someone, fixture.Someone))

	victims := fixture.Dir(t)
	file, dir := filepath.Join(victims, "file"), filepath.Join(root, "root's")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600))
	race := func(during func()) (swaps int64) {
		var over atomic.Bool
		ended := make(chan int64)
		go func() { ended <- swap(root, file, dir, &over) }()
		during()
		over.Store(true)
		return <-ended
	}
	swaps := race(func() {
		for range rounds {
			for _, f := range found {
				_ = restoreCopy(f, session) // it may say that something is in the way
				_ = os.RemoveAll(f.Path)
			}
		}
	})
	require.Positive(t, swaps, "else this proves nothing")
	require.Zero(t, fixture.Owner(t, file))
	require.Zero(t, fixture.Owner(t, dir))
	require.FileExists(t, filepath.Join(dir, "kept"), "that was moved into the way")

	// The control: by name the file is given away sooner or later.
	race(func() {
		for end := await.Deadline(); fixture.Owner(t, file) == 0; {
			require.True(t, time.Now().Before(end), "by name nothing was given away")
			at := filepath.Join(root, Prefix+"by-name")
			if os.Symlink("x", at) == nil {
				_ = os.Lchown(at, fixture.Someone, fixture.Someone)
			}
			_ = os.Remove(at)
		}
	})
}

// restoreCopy puts a finding back, and leaves it in the stash.
func restoreCopy(f Finding, session *os.Root) error {
	stash, err := session.Open(StashName)
	if err != nil {
		return err
	}
	defer stash.Close()
	dir, name, err := beneath.ParentOf(f.Path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	c, err := openCell(dir, Prefix+f.Stash)
	if err != nil {
		return err
	}
	if err = c.fill(&copier{}, int(stash.Fd()), f.Stash); err == nil {
		err = c.release(name)
	}
	_ = c.close()
	return err
}

// swap does what the owner of a directory can do to the names in it: what begins
// as our own do is moved away, and a link to a file of root's, or a directory of
// root's that lies there, takes its place.
func swap(root, file, dir string, over *atomic.Bool) (swaps int64) {
	f, err := os.Open(root)
	if err != nil {
		return 0
	}
	defer f.Close()
	for n := 0; !over.Load(); n++ {
		if _, err := f.Seek(0, 0); err != nil {
			return 0
		}
		names, _ := f.Readdirnames(-1)
		for _, name := range names {
			if !strings.HasPrefix(name, Prefix) {
				continue
			}
			at, away := filepath.Join(root, name), filepath.Join(root, "away"+strconv.Itoa(n))
			if os.Rename(at, away) != nil {
				continue
			}
			if n%2 == 0 {
				_ = os.Link(file, at)
			} else {
				_ = os.Rename(dir, at)
			}
			swaps++
			if n%2 == 0 {
				_ = os.Remove(at)
			} else {
				_ = os.Rename(at, dir)
			}
		}
	}
	return swaps
}

// What a killed attempt left is used again, and nothing else that has the name.
func TestCellLeft(t *testing.T) {
	d := fixture.Dir(t)
	fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	first, err := openCell(fd, Prefix+"7")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(d, first.name, held), nil, 0o600))
	unix.Close(first.fd)
	again, err := openCell(fd, Prefix+"7")
	require.NoError(t, err)
	require.NoError(t, beneath.Empty(again.fd))
	require.NoError(t, os.WriteFile(filepath.Join(d, first.name, "other"), nil, 0o600))
	unix.Close(again.fd)
	_, err = openCell(fd, Prefix+"7")
	require.ErrorIs(t, err, ErrInTheWay)
	require.FileExists(t, filepath.Join(d, first.name, "other"))
}
