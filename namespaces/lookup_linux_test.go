package namespaces

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where an outer sandbox has no openat2(2), paths are walked name by name, and
// everything holds as it does with it.
func TestWithoutOpenat2(t *testing.T) {
	require.True(t, hasOpenat2(), "the control: this kernel has the call")
	defer func(asked func() bool) { hasOpenat2 = asked }(hasOpenat2)
	hasOpenat2 = func() bool { return false }
	for name, test := range map[string]func(*testing.T){
		"mounts": TestMounts, "optional": TestOptional, "keeper": TestRemountWatcher, "keeper gives up": TestRemountWatcherGivesUp, "texts": TestTexts,
		"steps fail": TestStepFails, "shed": TestShed,
	} {
		t.Run(name, test)
	}
}

// Both ways find the same, and follow no link.
func TestOpenPlain(t *testing.T) {
	dir := fakeHome(t, "d/e/f", "other/e/f")
	require.NoError(t, os.Symlink("other", dir+"/link"))
	require.NoError(t, os.Symlink("f", dir+"/d/e/last"))
	at, err := unix.Open(dir, lookup|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	defer unix.Close(at)
	inode := func(dir int, path string, flags uint64) (uint64, error) {
		fd, err := openPlain(dir, path, lookup|flags)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(fd, &st))
		return st.Ino, nil
	}
	defer func(asked func() bool) { hasOpenat2 = asked }(hasOpenat2)
	for _, c := range []struct {
		dir   int
		path  string
		flags uint64
		fails bool
	}{
		{at, "d/e/f", 0, false}, {at, ".", 0, false}, {unix.AT_FDCWD, dir + "/d/e/f", 0, false}, {unix.AT_FDCWD, "/", unix.O_DIRECTORY, false},
		{at, "d/e/last", unix.O_NOFOLLOW, false}, {at, "link/e/f", 0, true}, {unix.AT_FDCWD, dir + "/link/e", 0, true}, {at, "d/none", 0, true},
		{at, "link", unix.O_DIRECTORY | unix.O_NOFOLLOW, true},
	} {
		hasOpenat2 = func() bool { return true }
		want, err := inode(c.dir, c.path, c.flags)
		require.Equal(t, c.fails, err != nil, "%s: %v", c.path, err)
		hasOpenat2 = func() bool { return false }
		got, err := inode(c.dir, c.path, c.flags)
		require.Equal(t, c.fails, err != nil, "%s: %v", c.path, err)
		require.Equal(t, want, got, c.path)
	}
}

// A link in the place of what the plan lends is another inode, and covering
// one covers the name.
func TestWalkMeetsALink(t *testing.T) {
	defer func(asked func() bool) { hasOpenat2 = asked }(hasOpenat2)
	hasOpenat2 = func() bool { return false }
	b := newBench(t, []string{"d/secret", "evil/secret", "f"}, "private d")
	b.write("evil/secret", "evil")
	require.NoError(t, os.Rename(b.path("d"), b.path("was")))
	require.NoError(t, os.Symlink("evil", b.path("d")))
	b.sh("cat $DIR/d/secret")
	if run, err := b.begin(); err == nil {
		require.NotContains(t, run.end().out, "evil")
	}

	b = newBench(t, []string{"f", "g"}, "read f")
	require.NoError(t, os.Rename(b.path("f"), b.path("h"))) // its inode stays in use
	require.NoError(t, os.Symlink("g", b.path("f")))
	_, err := b.sh("true").begin()
	require.ErrorIs(t, err, unix.ESTALE)
}
