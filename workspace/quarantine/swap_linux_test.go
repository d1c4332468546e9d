package quarantine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
)

// A directory is swapped for an empty one, or everything is as it was.
func TestSwap(t *testing.T) {
	top := fixture.Dir(t)
	for _, dir := range []string{"/staged", "/session", "/ws"} {
		require.NoError(t, os.Mkdir(top+dir, 0o700))
	}
	dir, err := unix.Open(top+"/ws", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(dir)
	root, err := os.OpenRoot(top + "/session")
	require.NoError(t, err)
	defer root.Close()
	stash := &Stash{Open: func() (*os.Root, error) { return os.OpenRoot(top + "/session") }, Staged: top + "/staged"}
	path := top + "/ws/.vscode"
	plant := func(name string) {
		require.NoError(t, os.MkdirAll(top+"/ws/"+name, 0o755))
		require.NoError(t, os.WriteFile(top+"/ws/"+name+"/t", []byte(name), 0o600))
	}
	swap := func(attach func() error) (Finding, error) {
		return stash.Swap(dir, ".vscode", Finding{Kind: Stashed, Path: path, Why: ".vscode"}, func(at int, entry string, have, stub *unix.Stat_t) error {
			var st unix.Stat_t
			require.NoError(t, unix.Fstatat(at, entry, &st, unix.AT_SYMLINK_NOFOLLOW))
			require.Equal(t, stub.Ino, st.Ino)
			require.NoError(t, unix.Lstat(path, &st))
			require.Equal(t, have.Ino, st.Ino)
			return attach()
		})
	}
	as := func() {
		t.Helper()
		list, err := ReadFindings(root)
		require.NoError(t, err)
		require.Empty(t, list)
		require.FileExists(t, path+"/t")
	}

	plant(".vscode")
	_, err = swap(func() error { return errors.New("no mount") })
	require.ErrorContains(t, err, "no mount")
	as()
	plant("other")
	_, err = swap(func() error { // somebody else is quicker
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, top+"/ws/other", unix.RENAME_EXCHANGE)
	})
	require.ErrorContains(t, err, "another directory")
	as()
	b, err := os.ReadFile(path + "/t")
	require.NoError(t, err)
	require.Equal(t, "other", string(b), "it is back in its place")

	// The control.
	c, err := swap(func() error { return nil })
	require.NoError(t, err)
	require.NoFileExists(t, path+"/t")
	require.DirExists(t, path)
	require.FileExists(t, filepath.Join(top, "session", StashName, c.Stash, "t"))
	list, err := ReadFindings(root)
	require.NoError(t, err)
	require.Equal(t, []Finding{c}, list)
	stash.Settle()

	// Where nothing was staged, or what stands is no directory, it is for [Stash.Take].
	require.NoError(t, os.Remove(path))
	plain := &Stash{Open: func() (*os.Root, error) { return os.OpenRoot(top) }}
	plant(".vscode")
	_, err = plain.Swap(dir, ".vscode", Finding{Kind: Stashed, Path: path}, nil)
	require.ErrorIs(t, err, ErrNoSwap)
	plain.Settle()

	// What was staged and never used goes.
	require.NoError(t, os.Mkdir(top+"/staged", 0o700))
	(&Stash{Staged: top + "/staged"}).Settle()
	require.NoDirExists(t, top+"/staged")
}

// Of staging directories the empty ones go whose launcher has ended.
func TestSweepStaging(t *testing.T) {
	dir := t.TempDir()
	gone, full := Prefix+"4194305-a", Prefix+"4194305-b" // above the largest process id, proc_sys_kernel(5)
	mine := fmt.Sprint(Prefix, os.Getpid(), "-c")
	for _, name := range []string{gone, full + "/x", mine, "4194305-d"} {
		require.NoError(t, os.MkdirAll(dir+"/"+name, 0o755))
	}
	SweepStaging(dir, Prefix)
	for name, stands := range map[string]bool{gone: false, full: true, mine: true, "4194305-d": true} {
		_, err := os.Lstat(dir + "/" + name)
		require.Equal(t, stands, err == nil, name)
	}
	SweepStaging(dir, "")
	require.NoDirExists(t, dir+"/4194305-d")
}
