//go:build unix

package events

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func mkfifo(t *testing.T, path string) { require.NoError(t, unix.Mkfifo(path, 0o600)) }

func itoa(n int) string { return strconv.Itoa(n) }

// inherited returns a descriptor as one comes from a caller, who let it
// outlive execve(2).
func inherited(t *testing.T, f *os.File) int {
	fd, err := unix.Dup(int(f.Fd()))
	require.NoError(t, err)
	return fd
}

func closeFD(fd int) { _ = unix.Close(fd) }

// A link in the workspace may be an earlier command's: it leads no log away.
func TestTargetThroughLinks(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, dir := range []string{"ws/sub", "logs", "keys"} {
		require.NoError(t, os.MkdirAll(filepath.Join(top, dir), 0o755))
	}
	for name, to := range map[string]string{
		"ws/abs": top + "/keys", "ws/rel": "../keys", "ws/sub/up": "..", "outside": "logs", "around": "ws/abs", "loop": "loop",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(top, name)))
	}
	for _, name := range []string{"ws/abs", "ws/rel", "ws/sub/up/sub", "around", "outside/../ws/rel"} {
		_, err := Target(filepath.Join(top, name)+"/e.jsonl", top+"/ws")
		require.ErrorContains(t, err, "it leads through the link "+top+"/ws/", name)
		s, err := Target(filepath.Join(top, name)+"/e.jsonl", "/elsewhere")
		require.NoError(t, err, "control: no workspace of ours")
		w, err := s.Open()
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	require.FileExists(t, top+"/keys/e.jsonl")
	for _, name := range []string{"outside", "logs", "ws/sub", "ws/./sub/../sub"} {
		s, err := Target(top+"/"+name+"/ok.jsonl", top+"/ws")
		require.NoError(t, err, name)
		w, err := s.Open()
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.FileExists(t, top+"/"+name+"/ok.jsonl")
	}
	_, err = Target(top+"/loop/e", top+"/ws")
	require.ErrorIs(t, err, unix.ELOOP)
	_, err = Target(top+"/logs/", top+"/ws")
	require.ErrorIs(t, err, unix.EISDIR)
	t.Chdir(top + "/ws")
	_, err = Target("rel/e.jsonl", top+"/ws")
	require.ErrorContains(t, err, "it leads through the link")
}
