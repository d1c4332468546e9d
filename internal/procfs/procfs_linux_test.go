package procfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 5*chunk + 7} {
		want := strings.Repeat("x", size)
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		got, err := Read(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	got, err := Read("/proc/self/maps")
	require.NoError(t, err)
	require.Contains(t, string(got), "[stack]")

	_, err = Read(path + ".absent")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, path)
	_, err = Read("/")
	require.Error(t, err)
}
