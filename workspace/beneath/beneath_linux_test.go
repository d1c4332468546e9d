package beneath_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/fixture"
	. "github.com/pccrun/pccrun/workspace/beneath"
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
	_, err = ReadFile(-1, 6)
	require.ErrorIs(t, err, unix.EBADF)
	fd, err := unix.Open(root+"/file", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	_, err = ReadFile(fd, 7)
	require.ErrorIs(t, err, unix.EBADF)
	fd, err = unix.Open("/proc/self/status", unix.O_RDONLY|unix.O_CLOEXEC, 0) // which says that it is empty
	require.NoError(t, err)
	_, err = ReadFile(fd, 1<<20)
	require.ErrorIs(t, err, ErrTooMuch)
	require.ErrorContains(t, err, "grew while it was read")
}

// A path may be longer than the kernel takes at once; a name may not.
func TestLongPaths(t *testing.T) {
	root := fixture.Dir(t)
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(top)
	name := strings.Repeat("d", 200)
	at, path := top, ""
	for range 45 {
		require.NoError(t, unix.Mkdirat(at, name, 0o700))
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		if at != top {
			unix.Close(at)
		}
		at, path = next, path+name+"/"
	}
	var want, st unix.Stat_t
	require.NoError(t, unix.Fstat(at, &want))
	unix.Close(at)
	path = strings.TrimSuffix(path, "/")
	require.NoError(t, Stat(top, path, &st))
	require.Equal(t, want.Ino, st.Ino)
	fd, err := Open(top, path, unix.O_RDONLY|unix.O_DIRECTORY)
	require.NoError(t, err)
	unix.Close(fd)
	require.ErrorIs(t, unix.Fstatat(top, path, &st, 0), unix.ENAMETOOLONG, "control")
	require.ErrorIs(t, Stat(top, path+"/absent", &st), unix.ENOENT)
	_, err = Open(top, path[:len(path)-1]+"/x", unix.O_PATH)
	require.ErrorIs(t, err, unix.ENOENT)
	_, err = Open(top, strings.Repeat("x", 2*unix.PathMax), unix.O_PATH)
	require.ErrorIs(t, err, unix.ENAMETOOLONG)
	_, err = Open(top, strings.Repeat("x/", unix.PathMax), unix.O_PATH)
	require.ErrorIs(t, err, unix.ENOENT)
}

func TestPath(t *testing.T) {
	for _, c := range []struct {
		dir, path, rel string
		in             bool
	}{{"/a", "/a/b/c", "b/c", true}, {"/a", "/a", "", true}, {"/", "/a", "a", true}, {"/a", "/ab", "", false}, {"/a/b", "/a", "", false}} {
		rel, in := Path(c.dir, c.path)
		require.Equal(t, c.in, in, c)
		require.Equal(t, c.rel, rel, c)
	}
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
