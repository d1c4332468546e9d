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

func TestDirectoryRemover(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"empty", "full/x"} {
		require.NoError(t, os.MkdirAll(at(name), 0o755))
	}
	j, err := NewDirectoryRemover(at("gone"), at("none/gone"), at("full"), at("empty"))
	require.NoError(t, err)
	require.DirExists(t, at("empty"), "it waits")
	j.Close()
	require.NoDirExists(t, at("empty"))
	require.DirExists(t, at("full/x"))
}

// It holds nothing of the launcher's open: whoever reads from a pipe waits for
// the last writer.
func TestDirectoryRemoverHoldsNothing(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	j, err := NewDirectoryRemover(t.TempDir())
	require.NoError(t, err)
	defer j.Close()
	w.Close()
	require.NoError(t, r.SetReadDeadline(await.Deadline()))
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

// It does not outlive the launcher.
func TestDirectoryRemoverEndsWithUs(t *testing.T) {
	dir := t.TempDir()
	j, err := NewDirectoryRemover(dir)
	require.NoError(t, err)
	unix.Close(j.control)
	var status unix.WaitStatus
	_, err = unix.Wait4(j.pid, &status, unix.WALL, nil)
	require.NoError(t, err)
	require.Equal(t, 125, status.ExitStatus())
	require.DirExists(t, dir)
}
