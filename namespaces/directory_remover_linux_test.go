package namespaces

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

func TestJanitor(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"empty", "full/x", "locked", "after"} {
		require.NoError(t, os.MkdirAll(at(name), 0o755))
	}
	j, err := NewDirectoryRemover(EmptyDirectory{Path: at("gone")}, EmptyDirectory{Path: at("none/gone")}, EmptyDirectory{Path: at("full")}, EmptyDirectory{Path: at("empty")})
	require.NoError(t, err)
	require.DirExists(t, at("empty"), "it waits")
	j.Close()
	require.NoDirExists(t, at("empty"))
	require.DirExists(t, at("full/x"))

	// Whoever shares the lock keeps the directory.
	lock := func() int {
		fd, err := unix.Open(at("locked"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Flock(fd, unix.LOCK_SH))
		return fd
	}
	own, other := lock(), lock()
	j, err = NewDirectoryRemover(EmptyDirectory{Path: at("locked"), Lock: own}, EmptyDirectory{Path: at("after")})
	require.NoError(t, err)
	unix.Close(own)
	j.Close()
	require.DirExists(t, at("locked"))
	require.DirExists(t, at("after"))
	unix.Close(other)
	own = lock()
	j, err = NewDirectoryRemover(EmptyDirectory{Path: at("locked"), Lock: own}, EmptyDirectory{Path: at("after")})
	require.NoError(t, err)
	unix.Close(own)
	j.Close()
	require.NoDirExists(t, at("locked"))
	require.NoDirExists(t, at("after"))
}

// It holds nothing of the launcher's open: whoever reads from a pipe waits for
// the last writer.
func TestJanitorHoldsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	j, err := NewDirectoryRemover(EmptyDirectory{Path: t.TempDir()})
	require.NoError(t, err)
	defer j.Close()
	w.Close()
	require.NoError(t, r.SetReadDeadline(await.Deadline()))
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// It does not outlive the launcher.
func TestJanitorEndsWithUs(t *testing.T) {
	dir := t.TempDir()
	j, err := NewDirectoryRemover(EmptyDirectory{Path: dir})
	require.NoError(t, err)
	unix.Close(j.control)
	var status unix.WaitStatus
	_, err = unix.Wait4(j.pid, &status, unix.WALL, nil)
	require.NoError(t, err)
	require.Equal(t, 125, status.ExitStatus())
	require.DirExists(t, dir)
}
