//go:build unix

package state

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFind(t *testing.T) {
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	d, err := Find(env(), "/home/u")
	require.NoError(t, err)
	require.Equal(t, Dirs{"/home/u/.local/state/pccrun", "/home/u/.config/pccrun", "/home/u/.cache/pccrun"}, d)
	d, err = Find(env("XDG_STATE_HOME", "/s", "XDG_CONFIG_HOME", "relative", "XDG_CACHE_HOME", "/c\x00"), "/home/u")
	require.NoError(t, err)
	require.Equal(t, Dirs{"/s/pccrun", "/home/u/.config/pccrun", "/home/u/.cache/pccrun"}, d)
	_, err = Find(env(), "")
	require.Error(t, err)
}

// Real says what filepath.EvalSymlinks does. What is straight has no link that could lead elsewhere, also where it ends.
func TestReal(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(top+"/dir/below", 0o700))
	require.NoError(t, os.WriteFile(top+"/file", nil, 0o600))
	require.NoError(t, os.Symlink("dir", top+"/link"))
	require.NoError(t, os.Symlink("nothing", top+"/dangling"))
	for path, straight := range map[string]bool{
		"/": true, top + "/dir/below": true, top + "/file": true, top + "/none": true, top + "/dir/none/below": true,
		top + "/link": false, top + "/link/below": false, top + "/link/none": false, top + "/dangling": false, top + "/dangling/none": false,
		top + "/file/none": false, top + "/dir/../link": false, top + "/link/..": false, top + "//dir": false, "dir": false, "": false, "/a\x00": false,
		"/proc/self/cwd": false,
	} {
		require.Equal(t, straight && runtime.GOOS == "linux", Straight(path), path)
		want, wrong := filepath.EvalSymlinks(path)
		got, err := Real(path)
		require.Equal(t, want, got, path)
		require.Equal(t, wrong == nil, err == nil, path)
	}
}

// home returns a directory of our own whose parents nobody else can change.
func home(t *testing.T) string {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o700))
	return dir
}

func open(t *testing.T) *os.Root {
	root, err := Open(filepath.Join(home(t), "a/b"), "")
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	return root
}

func TestOpen(t *testing.T) {
	dir := home(t)
	_, err := OpenExisting(filepath.Join(dir, "a"), "")
	require.ErrorIs(t, err, fs.ErrNotExist)
	root, err := Open(filepath.Join(dir, "a/b"), filepath.Join(dir, "work"))
	require.NoError(t, err)
	root.Close()
	for _, name := range []string{"a", "a/b"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	}
	root, err = OpenExisting(filepath.Join(dir, "a/b"), "")
	require.NoError(t, err)
	root.Close()
}

func TestOpenRefuses(t *testing.T) {
	dir := home(t)
	sub := func(name string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(path, 0o700))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	link := func(name, to string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Symlink(to, path))
		return path
	}
	work := sub("work", 0o755)
	sub("work/state", 0o700)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	sub("open", 0o777)
	sub("open/below", 0o700)
	for name, path := range map[string]string{
		"others can write": sub("others", 0o702),
		"the group can":    sub("group", 0o720),
		"a link":           link("link", sub("target", 0o700)),
		"a file":           file,
		"in the workspace": filepath.Join(work, "state"),
		"new, in it":       filepath.Join(work, "new/deep"),
		"the workspace":    work,
		"led into it":      filepath.Join(link("into", work), "state"),
		"led to nothing":   filepath.Join(link("nothing", filepath.Join(dir, "gone")), "state"),
		"a parent of all":  filepath.Join(dir, "open/below"),
		"relative":         "state",
	} {
		for _, f := range []func(string, string) (*os.Root, error){Open, OpenExisting} {
			root, err := f(path, work)
			if err == nil {
				root.Close()
			}
			require.ErrorIs(t, err, ErrUnsafe, name)
		}
	}
	_, err := os.Lstat(filepath.Join(work, "new"))
	require.ErrorIs(t, err, fs.ErrNotExist, "nothing is made in the workspace")

	// The same, less the faults.
	root, err := Open(filepath.Join(link("fine", sub("else", 0o700)), "state"), work)
	require.NoError(t, err)
	root.Close()
	require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o777|fs.ModeSticky))
	root, err = Open(filepath.Join(dir, "open/below"), work)
	require.NoError(t, err, "sticky")
	root.Close()
}

func TestOpenForeign(t *testing.T) {
	if os.Geteuid() != 0 {
		// Whatever is root's is not ours.
		_, err := OpenExisting("/usr", "")
		require.ErrorIs(t, err, ErrUnsafe)
		return
	}
	dir := home(t)
	path := filepath.Join(dir, "theirs")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(path, "state"), 0o700))
	require.NoError(t, os.Chown(path, 12345, 12345))
	_, err := OpenExisting(path, "")
	require.ErrorIs(t, err, ErrUnsafe)
	_, err = OpenExisting(filepath.Join(path, "state"), "")
	require.ErrorIs(t, err, ErrUnsafe, "a parent is theirs")
}

// What is refused for where it lies is not made.
func TestOpenLeavesNothing(t *testing.T) {
	dir := home(t)
	for _, c := range []struct {
		mode fs.FileMode
		made bool
	}{{0o777, false}, {0o755, true}} {
		require.NoError(t, os.Chmod(dir, c.mode))
		root, err := Open(filepath.Join(dir, "pccrun", "sessions"), "")
		if c.made {
			require.NoError(t, err)
			root.Close()
		} else {
			require.ErrorIs(t, err, ErrUnsafe)
		}
		require.Equal(t, c.made, exists(filepath.Join(dir, "pccrun")))
	}
}

func TestWriteFile(t *testing.T) {
	root := open(t)
	for _, d := range []Durability{Fast, Durable} {
		require.NoError(t, WriteFile(root, "f", []byte("one"), d))
		require.NoError(t, WriteFile(root, "f", []byte("two"), d))
		got, err := ReadFile(root, "f", 10)
		require.NoError(t, err)
		require.Equal(t, "two", string(got))
	}
	info, err := root.Stat("f")
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())

	// A link is replaced, and what it led to left alone.
	outside := filepath.Join(home(t), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("kept"), 0o600))
	require.NoError(t, root.Symlink(outside, "l"))
	require.NoError(t, WriteFile(root, "l", []byte("new"), Fast))
	kept, err := os.ReadFile(outside)
	require.NoError(t, err)
	require.Equal(t, "kept", string(kept))

	require.Error(t, WriteFile(root, "no/such", nil, Fast))
	require.NoError(t, root.Mkdir("d", 0o700))
	require.NoError(t, WriteFile(root, "d/x", nil, Durable))
	require.Error(t, WriteFile(root, "d", nil, Fast))
	names, err := fs.Glob(root.FS(), ".new-*")
	require.NoError(t, err)
	require.Empty(t, names, "nothing half done is left")
}

func TestWriteFileIsWhole(t *testing.T) {
	root := open(t)
	require.NoError(t, WriteFile(root, "f", []byte(strings.Repeat("0", 1000)), Fast))
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for range 100 {
				if err := WriteFile(root, "f", []byte(strings.Repeat(string(rune('0'+i)), 1000)), Fast); err != nil {
					t.Error(err)
				}
			}
		})
	}
	defer writers.Wait()
	for range 400 {
		got, err := ReadFile(root, "f", 1000)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat(string(got[0]), 1000), string(got))
	}
}

func TestReadFileRefuses(t *testing.T) {
	root := open(t)
	require.NoError(t, WriteFile(root, "f", []byte("12345"), Fast))
	_, err := ReadFile(root, "f", 5)
	require.NoError(t, err)
	_, err = ReadFile(root, "f", 4)
	require.ErrorContains(t, err, "more than 4")
	require.NoError(t, root.Symlink("f", "link"))
	require.NoError(t, root.Symlink("/etc/passwd", "out"))
	require.NoError(t, unix.Mkfifo(filepath.Join(root.Name(), "fifo"), 0o600))
	require.NoError(t, root.Mkdir("dir", 0o700))
	for _, name := range []string{"link", "out", "fifo", "dir", "none", "../b/f"} {
		_, err := ReadFile(root, name, 1<<20)
		require.Error(t, err, name)
	}
	_, err = ReadFile(root, "none", 1)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestWaitLock(t *testing.T) {
	root := open(t)
	first, err := WaitLock(t.Context(), root, "lock")
	require.NoError(t, err)
	require.True(t, first.Names(root, "lock"))
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = WaitLock(ended, root, "lock")
	require.ErrorIs(t, err, context.Canceled)
	second := make(chan *Lock)
	go func() {
		l, _ := WaitLock(t.Context(), root, "lock")
		second <- l
	}()
	require.NoError(t, root.Remove("lock"))
	require.NoError(t, first.Release())
	l := <-second // of the file that is gone, or of a new one
	require.NotNil(t, l)
	locked, err := Locked(root, "lock")
	require.NoError(t, err)
	require.Equal(t, l.Names(root, "lock"), locked)
	require.NoError(t, l.Release())
}

func TestLock(t *testing.T) {
	root := open(t)
	locked, err := Locked(root, "lock")
	require.NoError(t, err)
	require.False(t, locked)
	l, err := TryLock(root, "lock")
	require.NoError(t, err)
	for range 2 {
		locked, err = Locked(root, "lock")
		require.NoError(t, err)
		require.True(t, locked)
		_, err = TryLock(root, "lock")
		require.ErrorIs(t, err, ErrLocked)
	}
	shared, err := unix.Dup(int(l.f.Fd())) // as a process has it that is forked and has not executed anything yet
	require.NoError(t, err)
	defer unix.Close(shared)
	require.NoError(t, l.Release())
	locked, err = Locked(root, "lock")
	require.NoError(t, err)
	require.False(t, locked)
	l, err = TryLock(root, "lock")
	require.NoError(t, err)
	require.NoError(t, l.Release())

	require.NoError(t, unix.Mkfifo(filepath.Join(root.Name(), "fifo"), 0o600))
	_, err = Locked(root, "fifo")
	require.Error(t, err)
	_, err = TryLock(root, "no/such")
	require.Error(t, err)
	require.False(t, errors.Is(err, ErrLocked))
}
