package namespaces

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// overlaid makes the directories that the plan's overlays need, and returns
// where what changed is found.
func (b *bench) overlaid() string {
	dir := b.t.TempDir()
	b.plan = b.plan.Bind(Bound{Upper: dir, Env: b.plan.Command.Env})
	for i := range b.plan.Overlays() {
		for _, name := range [...]string{UpperTree, UpperWork} {
			require.NoError(b.t, os.MkdirAll(filepath.Join(dir, strconv.Itoa(i), name), 0o755))
		}
	}
	b.t.Cleanup(func() { // the kernel's own directory is closed even to its owner
		require.NoError(b.t, exec.Command("chmod", "-R", "u+rwX", dir).Run())
	})
	return filepath.Join(dir, "0", UpperTree)
}

func TestOverlay(t *testing.T) {
	b := newBench(t, []string{"w/f", "w/d/g", "w/d/secret", "w/ro/h", "w/gone", "w/live/x"},
		"overlay w", "hide w/d/secret", "read w/ro", "write w/live", "read w/d/g pin protect")
	upper := b.overlaid()
	b.write("w/f", "old\n")
	got := b.sh(`cd w; cat f; echo new > f; rm gone; mkdir made; mv f made/f; echo x > live/x; ls
		cat d/secret; echo x > ro/h; echo x > d/g; mv d e; mv ro rw; rm -rf d; ls d`).run()
	require.Equal(t, "new\n", func() string { text, _ := os.ReadFile(upper + "/made/f"); return string(text) }(), got.out)
	require.Equal(t, "old\n", b.read("w/f"), "the host's stays as it was")
	require.FileExists(t, b.path("w/gone"))
	require.Equal(t, "x\n", b.read("w/live/x"), "what may be written within is the host's own")
	for _, refusal := range []string{"d/secret: Permission denied", "ro/h: Read-only file system", "d/g: Read-only file system"} {
		require.Contains(t, got.out, refusal)
	}
	require.Contains(t, got.out, "g\nsecret\n", "what is covered cannot be removed, nor what holds it")
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(upper+"/gone", &st))
	require.Equal(t, uint32(unix.S_IFCHR), st.Mode&unix.S_IFMT)
}

// What is named is taken by its descriptor, whatever the name holds.
func TestOverlayOddNames(t *testing.T) {
	name := "a:b,c\\d\ne"
	b := newBench(t, []string{name + "/f"}, "write .")
	place := b.place("overlay .")
	place.Path = b.path(name)
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(place.Path, &st))
	place.Ino = st.Ino
	mounts, err := Mounts([]Place{place})
	require.NoError(t, err)
	b.plan.Mounts = mounts
	upper := b.overlaid()
	require.Zero(t, b.sh(`cd "$DIR"/a*; echo x > new`).run().Status)
	require.FileExists(t, upper+"/new")
	require.NoFileExists(t, b.path(name+"/new"))
}

func TestOverlayRefused(t *testing.T) {
	b := newBench(t, []string{"w/f"}, "overlay w")
	b.plan = b.plan.Bind(Bound{Upper: b.path("w"), Env: b.plan.Command.Env}) // where there is no directory for it
	_, err := b.sh("true").begin()
	var refused *OverlayError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, b.path("w"), refused.Path)
	require.NotEmpty(t, refused.Hint())

	b.overlaid()
	b.plan.Overlays()[0].Ino++
	_, err = b.sh("true").begin()
	require.ErrorIs(t, err, unix.ESTALE)
	require.ErrorAs(t, err, &refused)
	for _, errno := range []unix.Errno{unix.ENODEV, unix.EPERM, unix.EINVAL, unix.ELOOP, unix.EIO} {
		e := &OverlayError{Path: "/w", Errno: errno}
		require.Contains(t, e.Error(), "overlay on /w: ")
		require.NotEmpty(t, e.Hint())
	}
}

func TestOverlayInOverlay(t *testing.T) {
	b := newBench(t, []string{"w/in/f", "w/ro/o/f"}, "overlay w", "overlay w/in", "read w/ro", "overlay w/ro/o")
	require.Len(t, b.plan.Overlays(), 2, "a directory of an overlay is in it already")
	b.overlaid()
	require.True(t, b.succeeds("cd w; echo x > in/f; echo x > ro/o/f; ! echo x > ro/g"))
	require.Equal(t, "", b.read("w/ro/o/f")+b.read("w/in/f"))
}
