package beneath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// Both ways to open say the same of every kind of path.
func TestOpenBeneath(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/a/b/file", "content")
	fixture.Link(t, "a", root+"/link")
	fixture.Link(t, "file", root+"/a/b/link")
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o600))
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	for path, want := range map[string]error{
		"a/b/file": nil, "a": nil, "fifo": nil, "absent": unix.ENOENT, "a/absent/x": unix.ENOENT,
		"link": unix.ELOOP, "link/b/file": unix.ELOOP, "a/b/link": unix.ELOOP, "a/b/file/x": unix.ENOTDIR,
	} {
		for name, open := range map[string]func(int, string, int) (int, error){"openat2": Open, "openat": OpenStepwise} {
			got, err := open(fd, path, unix.O_RDONLY|unix.O_NONBLOCK)
			if want == nil {
				require.NoError(t, err, "%s %s", name, path)
				unix.Close(got)
				continue
			}
			// Step by step, a link on the way is no directory.
			require.Contains(t, []error{want, unix.ENOTDIR}, err, "%s %s", name, path)
		}
	}
	_, err = Open(fd, "../x", unix.O_RDONLY)
	require.ErrorIs(t, err, unix.EXDEV)
}

func TestReadFile(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/file", "content")
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o600))
	open := func(name string) int {
		fd, err := unix.Open(root+"/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	b, err := ReadFile(open("file"), 7)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	_, err = ReadFile(open("file"), 6)
	require.ErrorIs(t, err, ErrTooMuch)
	_, err = ReadFile(open("fifo"), 6)
	require.ErrorIs(t, err, ErrNotRegular)
	_, err = ReadFile(open("."), 6)
	require.ErrorIs(t, err, ErrNotRegular)
}

func TestDirentType(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/file", "")
	fixture.Link(t, "nowhere", root+"/link")
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.EqualValues(t, unix.DT_REG, DirentType(fd, "file"))
	require.EqualValues(t, unix.DT_LNK, DirentType(fd, "link"))
	require.EqualValues(t, unix.DT_DIR, DirentType(fd, "."))
	require.EqualValues(t, unix.DT_UNKNOWN, DirentType(fd, "absent"))
	require.EqualValues(t, unix.DT_UNKNOWN, DirentType(fd, strings.Repeat("x", 300)))
}

func TestMakeDirIsEmpty(t *testing.T) {
	d := fixture.Dir(t)
	fd, err := unix.Open(d, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	made, err := MakeDir(fd, "new")
	require.NoError(t, err)
	require.NoError(t, Empty(made))
	require.NoError(t, os.WriteFile(filepath.Join(d, "new", "x"), nil, 0o600))
	require.ErrorIs(t, Empty(made), ErrNotMade)
	unix.Close(made)
	_, err = MakeDir(fd, "new")
	require.ErrorIs(t, err, unix.EEXIST)
}
