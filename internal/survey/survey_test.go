package survey

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// What each sandbox has of its own is named, and nothing of the host's stands there.
func TestOwnTrees(t *testing.T) {
	for path, want := range map[string]string{"/proc": "/proc", "/proc/1/x": "/proc", "/sys/x": "/sys", "/dev": "/dev", "/procx": "", "/": ""} {
		require.Equal(t, want, KernelTree(path), path)
	}
	for path, want := range map[string]bool{"/dev/null": true, "/dev/pts/3": true, "/dev/fd/3": true, "/dev/sda": false, "/dev/shm/x": false, "/null": false} {
		require.Equal(t, want, OwnDevice(path), path)
	}
}

func TestLess(t *testing.T) {
	want := []string{"/", "/a", "/a/b", "/a/b/c", "/a/b-c", "/a b", "/a-b", "/ab", "/b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Less)
	require.Equal(t, want, got)
	require.True(t, Below("/a", "/"))
	require.True(t, Below("/a/b", "/a"))
	require.False(t, Below("/ab", "/a"))
	require.False(t, Below("/", "/a"))
}
