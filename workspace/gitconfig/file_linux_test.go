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

// What another writes after a file was read stays, and is not taken for what was read.
func TestRewriteChanged(t *testing.T) {
	dir := fixture.Dir(t)
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(at)
	for meanwhile, want := range map[string]error{"another's": ErrReplaced, "as it was": nil} {
		require.NoError(t, os.WriteFile(dir+"/f", []byte("as it was"), 0o600))
		require.Equal(t, want, Rewrite(at, "f", func([]byte) ([]byte, error) {
			return []byte("new"), os.WriteFile(dir+"/f", []byte(meanwhile), 0o600)
		}))
		got, err := os.ReadFile(dir + "/f")
		require.NoError(t, err)
		require.Equal(t, want == nil, string(got) == "new")
	}
}
