//go:build linux || darwin

package beneath

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var all = Limits{Entries: 1 << 20, Depth: 1 << 20, Time: time.Hour}

// paths are those of a tree, up to an error.
func paths(t *testing.T, dir string, l Limits) (list []string, err error) {
	t.Helper()
	f, err := os.Open(dir)
	require.NoError(t, err)
	defer f.Close()
	err = Walk(int(f.Fd()), l, func(_ int, _ string, _ *unix.Stat_t, path func() string) error {
		list = append(list, path())
		return nil
	})
	slices.Sort(list)
	return list, err
}

// TestWalk: all below a directory is visited, and nothing behind a link.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(dir+"/a/b/c", 0o755))
	require.NoError(t, os.MkdirAll(dir+"/a/d", 0o755))
	require.NoError(t, os.WriteFile(dir+"/a/d/f", nil, 0o644))
	require.NoError(t, os.Symlink(dir, dir+"/a/b/link"))
	list, err := paths(t, dir, all)
	require.NoError(t, err)
	want := []string{"a", "a/b", "a/b/c", "a/b/link", "a/d", "a/d/f"}
	require.Equal(t, want, list)

	few := all
	few.Depth = 1
	list, err = paths(t, dir, few)
	require.ErrorIs(t, err, ErrTooMuch)
	require.Equal(t, []string{"a", "a/b", "a/d"}, list)
	few = all
	few.Entries = 5
	_, err = paths(t, dir, few)
	require.ErrorIs(t, err, ErrTooMuch)
	few.Entries = 6
	_, err = paths(t, dir, few)
	require.NoError(t, err)
	few.Time = -1
	_, err = paths(t, dir, few)
	require.ErrorIs(t, err, ErrTooMuch)
}

// TestDeepWalk: a tree deeper than the kernel takes a path is walked with few descriptors, one
// directory of which is moved meanwhile too.
func TestDeepWalk(t *testing.T) {
	dir := t.TempDir()
	const levels = 3000
	f, err := os.Open(dir)
	require.NoError(t, err)
	for range levels {
		require.NoError(t, unix.Mkdirat(int(f.Fd()), "deep", 0o755))
		next, err := openDir(int(f.Fd()), "deep")
		require.NoError(t, err)
		f.Close()
		f = next
	}
	require.NoError(t, unix.Mkdirat(int(f.Fd()), "last", 0o755))
	f.Close()
	_, err = os.Stat(dir + strings.Repeat("/deep", levels))
	require.ErrorIs(t, err, unix.ENAMETOOLONG, "control")
	list, err := paths(t, dir, all)
	require.NoError(t, err)
	require.Len(t, list, levels+1)

	require.NoError(t, os.Mkdir(dir+"/beside", 0o755))
	top, err := os.Open(dir)
	require.NoError(t, err)
	defer top.Close()
	seen := map[string]bool{}
	err = Walk(int(top.Fd()), all, func(_ int, name string, _ *unix.Stat_t, _ func() string) error {
		if seen[name] = true; name == "last" {
			return os.Rename(dir+"/deep/deep/deep", dir+"/moved")
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, seen["last"] && seen["beside"])

	stop := errors.New("stop")
	require.ErrorIs(t, Walk(int(top.Fd()), all, func(int, string, *unix.Stat_t, func() string) error { return stop }), stop)
}

// FuzzWalk: any tree is visited whole and removed, and nothing that a link leads to.
func FuzzWalk(f *testing.F) {
	f.Add([]byte("aabblc\x00ufddux"))
	f.Add([]byte("dddddddduuxudlf"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		dir, outside := t.TempDir(), t.TempDir()
		require.NoError(t, os.WriteFile(outside+"/kept", nil, 0o600))
		at, made := dir+"/tree", 1
		require.NoError(t, os.Mkdir(at, 0o700))
		closed := map[string]bool{}
		for i, step := range steps[:min(len(steps), 200)] {
			name, err := at+"/"+string(rune('0'+i%7))+strings.Repeat("x", int(step)), errors.New("nothing was made")
			if len(name) < 3000 {
				switch step % 5 {
				case 0:
					if err = os.Mkdir(name, 0o700); err == nil {
						at = name
					}
				case 1:
					err = os.WriteFile(name, steps, 0o400)
				case 2:
					err = os.Symlink(outside, name)
				case 3:
					if at != dir+"/tree" {
						at = at[:strings.LastIndexByte(at, '/')]
					}
				case 4:
					closed[at] = true
				}
			}
			if err == nil {
				made++
			}
		}
		top, err := os.Open(dir)
		require.NoError(t, err)
		defer top.Close()
		list, err := paths(t, dir, all)
		require.NoError(t, err)
		require.Len(t, list, made)
		for _, path := range slices.Backward(slices.Sorted(maps.Keys(closed))) { // the deepest first
			require.NoError(t, os.Chmod(path, 0))
		}
		require.NoError(t, RemoveTree(int(top.Fd()), "tree"))
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		require.FileExists(t, outside+"/kept")
	})
}
