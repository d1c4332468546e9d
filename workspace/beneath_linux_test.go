package workspace

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Both ways to open say the same of every kind of path.
func TestOpenBeneath(t *testing.T) {
	root := tempDir(t)
	write(t, root+"/a/b/file", "content")
	link(t, "a", root+"/link")
	link(t, "file", root+"/a/b/link")
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o600))
	fd, err := openRoot(root)
	require.NoError(t, err)
	defer unix.Close(fd)
	for path, want := range map[string]error{
		"a/b/file": nil, "a": nil, "fifo": nil, "absent": unix.ENOENT, "a/absent/x": unix.ENOENT,
		"link": unix.ELOOP, "link/b/file": unix.ELOOP, "a/b/link": unix.ELOOP, "a/b/file/x": unix.ENOTDIR,
	} {
		for name, open := range map[string]func(int, string, int) (int, error){"openat2": openBeneath, "openat": openStepwise} {
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
	_, err = openBeneath(fd, "../x", unix.O_RDONLY)
	require.ErrorIs(t, err, unix.EXDEV)
}

func TestReadFile(t *testing.T) {
	root := tempDir(t)
	write(t, root+"/file", "content")
	require.NoError(t, unix.Mkfifo(root+"/fifo", 0o600))
	open := func(name string) int {
		fd, err := unix.Open(root+"/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	b, err := readFile(open("file"), 7)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	_, err = readFile(open("file"), 6)
	require.ErrorIs(t, err, ErrTooMuch)
	_, err = readFile(open("fifo"), 6)
	require.ErrorIs(t, err, errNotRegular)
	_, err = readFile(open("."), 6)
	require.ErrorIs(t, err, errNotRegular)
}

func TestDirentType(t *testing.T) {
	root := tempDir(t)
	write(t, root+"/file", "")
	link(t, "nowhere", root+"/link")
	fd, err := openRoot(root)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.EqualValues(t, unix.DT_REG, direntType(fd, "file"))
	require.EqualValues(t, unix.DT_LNK, direntType(fd, "link"))
	require.EqualValues(t, unix.DT_DIR, direntType(fd, "."))
	require.EqualValues(t, unix.DT_UNKNOWN, direntType(fd, "absent"))
	require.EqualValues(t, unix.DT_UNKNOWN, direntType(fd, strings.Repeat("x", 300)))
}

func TestKinds(t *testing.T) {
	for kind, want := range map[Kind]string{File: "file", Dir: "directory", Link: "link", Other: "special file", 9: "BUG: unknown kind"} {
		require.Equal(t, want, kind.String())
	}
	require.Equal(t, Other, kindOfMode(unix.S_IFIFO|0o644))
	require.Equal(t, Link, kindOfMode(unix.S_IFLNK|0o777))
}

// More than a launch can mount is refused, with the path that was too much.
func TestScanTooManyMounts(t *testing.T) {
	root := tempDir(t)
	write(t, root+"/a/.envrc", "x")
	full := func() *scan {
		fd, err := openRoot(root)
		require.NoError(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		s := newScan(Query{Root: root}, &walker{rules: &rules{root: root, files: hide(root, "**/.env*")}, fd: fd}, &dir{}, &index{})
		for i := range maxMounts - 1 {
			s.pins[fmt.Sprint(root, "/", i)] = Pin{Node: Node{Path: fmt.Sprint(root, "/", i)}}
			s.matches[fmt.Sprint(root, "/", i)] = Match{}
		}
		return s
	}
	s := full()
	defer s.close()
	require.NoError(t, s.pin(root+"/a/.envrc", protect(".envrc")[0])) // the control: the last one
	err := s.pin(root+"/a", protect("a")[0])
	require.ErrorIs(t, err, ErrTooMuch)
	require.ErrorContains(t, err, root+"/a")
	_, err = s.finish() // its anchor is one too many
	require.ErrorIs(t, err, ErrTooMuch)

	require.NoError(t, s.match(root+"/a", hit{}))
	err = s.match(root+"/a/.envrc", hit{})
	require.ErrorIs(t, err, ErrTooMuch)
	require.ErrorContains(t, err, root+"/a/.envrc")
}
