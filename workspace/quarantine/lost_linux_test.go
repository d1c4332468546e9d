package quarantine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What was lost is kept as far as there is room, read again, and copied out over nothing.
func TestLost(t *testing.T) {
	src, out := t.TempDir(), t.TempDir()
	session, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer session.Close()
	none, err := ReadLost(session)
	require.NoError(t, err)
	require.Empty(t, none)

	require.NoError(t, os.MkdirAll(src+"/d/e", 0o755))
	require.NoError(t, os.WriteFile(src+"/d/e/f", []byte("text"), 0o640))
	require.NoError(t, os.WriteFile(src+"/a \"b\n", []byte("x"), 0o600))
	require.NoError(t, os.Symlink("/etc/passwd", src+"/d/link"))
	require.NoError(t, unix.Mkfifo(src+"/d/fifo", 0o600))
	open := func(path string) (int, string, error) {
		fd, err := unix.Open(filepath.Dir(src+"/"+path[len("/home/u/"):]), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		return fd, filepath.Base(path), err
	}
	list, err := KeepLost(session, []Lost{
		{Path: "/home/u/d", Dir: true, Files: 3, Size: 15},
		{Path: "/home/u/big", Files: 1, Size: maxLost},
		{Path: "/home/u/a \"b\n", Files: 1, Size: 1},
		{Path: "/home/u/many", Dir: true, More: true},
	}, open)
	require.NoError(t, err)
	got, err := ReadLost(session)
	require.NoError(t, err)
	require.Equal(t, list, got)
	for i, kept := range []string{"0", "", "2", ""} {
		require.Equal(t, kept, got[i].Kept, got[i].Path)
	}

	dest, err := SaveLost(session, got, "/home/u/d", out)
	require.NoError(t, err)
	require.Equal(t, out+"/d", dest)
	text, err := os.ReadFile(out + "/d/e/f")
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	to, err := os.Readlink(out + "/d/link")
	require.NoError(t, err)
	require.Equal(t, "/etc/passwd", to)
	_, err = os.Lstat(out + "/d/fifo")
	require.ErrorIs(t, err, os.ErrNotExist)
	dest, err = SaveLost(session, got, "/home/u/d/e/f", out+"/g")
	require.NoError(t, err)
	require.Equal(t, out+"/g", dest)

	for path, want := range map[string]string{
		"/home/u/d/e/f": "file exists", "/home/u/big": "too large", "/home/u": "no unsaved files there", "/home/u/d/none": "no such file", "/home/u/d/link/x": "not a directory",
	} {
		_, err := SaveLost(session, got, path, out+"/g")
		require.ErrorContains(t, err, want, path)
	}
	_, err = SaveLost(session, got, "/home/u/d", out+"/none/x")
	require.Error(t, err)

	// What is gone by then is an error, and so is a list that is none.
	other, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer other.Close()
	_, err = KeepLost(other, []Lost{{Path: "/home/u/gone"}}, open)
	require.Error(t, err)
	require.NoError(t, other.WriteFile("lost/list", []byte("x\n"), 0o600))
	_, err = ReadLost(other)
	require.ErrorContains(t, err, "lost/list")
}

// What lies deeper than is copied is left out, and what does not is kept.
func TestLostDeep(t *testing.T) {
	src := t.TempDir()
	session, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, os.MkdirAll(src+"/deep"+strings.Repeat("/d", maxLevels), 0o755))
	require.NoError(t, os.MkdirAll(src+"/less"+strings.Repeat("/d", maxLevels-1), 0o755))
	list, err := KeepLost(session, []Lost{{Path: "deep", Dir: true}, {Path: "less", Dir: true}}, func(path string) (int, string, error) {
		fd, err := unix.Open(src, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		return fd, path, err
	})
	require.NoError(t, err)
	require.Empty(t, list[0].Kept)
	require.Equal(t, "1", list[1].Kept, "control")
	names, err := os.ReadDir(filepath.Join(session.Name(), LostName))
	require.NoError(t, err)
	require.Len(t, names, 2, "the list, and what is kept")
}
