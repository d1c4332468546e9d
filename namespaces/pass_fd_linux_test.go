package namespaces

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// A file that is open for reading only can be opened again for writing where
// Landlock does not rule files.
func TestPassedReadOnly(t *testing.T) {
	passed := func(flags int) (*bench, *os.File) {
		b := newBench(t, []string{"f.txt"})
		f, err := os.OpenFile(b.path("f.txt"), flags, 0)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		b.plan.Mounts = nil // the file's directory is read-only
		b.plan.Command.Dir = "/"
		return b, f
	}
	needLandlock := func(b *bench) {
		if b.plan.Landlock < landlockRefer {
			t.Skip("needs Landlock")
		}
	}
	write := func(b *bench, f *os.File) bool {
		fd := strconv.Itoa(int(f.Fd()))
		b.plan.PassFDs = []int{int(f.Fd())}
		return b.succeeds("echo evil > /proc/self/fd/" + fd)
	}
	b, f := passed(os.O_RDONLY)
	needLandlock(b)
	require.NoError(t, b.plan.JudgePassing([]int{int(f.Fd())}))
	require.False(t, write(b, f))

	for name, plan := range map[string]func(*Plan){
		"nested":     func(p *Plan) { p.Nested = true },
		"old kernel": func(p *Plan) { p.Landlock = 1 },
		"layer":      func(p *Plan) { p.Without = []profiles.Layer{profiles.LayerLandlock} },
	} {
		t.Run(name, func(t *testing.T) {
			b, f := passed(os.O_RDONLY)
			plan(b.plan)
			err := b.plan.JudgePassing([]int{int(f.Fd())})
			var refused *hint.Error
			require.ErrorAs(t, err, &refused)
			require.ErrorContains(t, err, "--pass-fd "+strconv.Itoa(int(f.Fd())))
			require.NotEmpty(t, refused.Hint())
			require.True(t, write(b, f), "control: it would be written")

			b, f = passed(os.O_RDWR)
			plan(b.plan)
			require.NoError(t, b.plan.JudgePassing([]int{int(f.Fd())}), "it may be written anyway")
		})
	}
	require.ErrorIs(t, b.plan.JudgePassing([]int{-1}), unix.EBADF)
}

// A file that a mount makes read-only in a directory that may be written can be
// opened past that mount.
func TestPassedPinned(t *testing.T) {
	b := newBench(t, []string{"pinned.txt", "d/x.txt", "open.txt"}, "read pinned.txt pin protect", "read d")
	require.NoError(t, os.Link(b.path("pinned.txt"), b.path("other.txt")))
	for name, refused := range map[string]bool{"pinned.txt": true, "d/x.txt": true, "other.txt": true, "open.txt": false} {
		f, err := os.Open(b.path(name))
		require.NoError(t, err)
		defer f.Close()
		require.False(t, refused && b.succeeds("echo evil > "+b.path(name)) && name != "other.txt", name)
		b.plan.PassFDs = []int{int(f.Fd())}
		require.True(t, b.succeeds("echo evil > /proc/self/fd/"+strconv.Itoa(int(f.Fd()))), "control: %s can be written by its descriptor", name)
		b.plan.PassFDs = nil
		err = b.plan.JudgePassing([]int{int(f.Fd())})
		if !refused {
			require.NoError(t, err, name)
			continue
		}
		var passed *hint.Error
		require.ErrorAs(t, err, &passed, name)
		require.ErrorContains(t, err, "is read-only only by a mount: the command could reopen it for writing")
	}
}
