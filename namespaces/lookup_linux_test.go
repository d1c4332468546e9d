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
