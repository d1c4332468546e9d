//go:build linux || darwin

package state

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRemoveAll(t *testing.T) {
	top := t.TempDir()
	root, err := os.OpenRoot(top)
	require.NoError(t, err)
	defer root.Close()
	outside := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.WriteFile(outside, nil, 0o600))

	// More levels than there may be descriptors, or bytes in a path; closed
	// directories; links out; many names.
	deep := func(name string) {
		fd, err := unix.Open(top, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		for range 6000 {
			require.NoError(t, unix.Mkdirat(fd, name, 0o700))
			next, err := unix.Openat(fd, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			require.NoError(t, err)
			unix.Close(fd)
			fd = next
		}
		require.NoError(t, unix.Symlinkat(outside, fd, "link"))
		unix.Close(fd)
	}
	deep("tree")
	for i := range 5000 {
		require.NoError(t, os.WriteFile(filepath.Join(top, "tree", strconv.Itoa(i)), nil, 0o600))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(top, "tree/closed/in"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(top, "tree/closed"), 0))

	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	low := unix.Rlimit{Cur: 256, Max: limit.Max}
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	require.Error(t, root.RemoveAll("tree"), "else this proves nothing")
	require.NoError(t, RemoveAll(root, "tree"))
	left, err := os.ReadDir(top)
	require.NoError(t, err)
	require.Empty(t, left)
	require.FileExists(t, outside)
	require.NoError(t, RemoveAll(root, "tree"), "there is none")
}
