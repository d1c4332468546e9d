package gitconfig

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
)

// A file never has a part of two texts behind each other, and a full disk changes nothing.
func TestOverwrite(t *testing.T) {
	name := fixture.Dir(t) + "/f"
	for _, c := range [][2]string{{"abc", "a"}, {"a", "abc"}, {"", "x"}, {"x", ""}, {"same", "same"}} {
		require.NoError(t, os.WriteFile(name, []byte(c[0]), 0o600))
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, overwrite(fd, []byte(c[0]), []byte(c[1])))
		unix.Close(fd)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, c[1], string(got))
	}
	full, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(full)
	require.Error(t, overwrite(full, []byte("a"), []byte("abc")))
	require.Error(t, overwrite(full, []byte("abc"), []byte("a")))
}
