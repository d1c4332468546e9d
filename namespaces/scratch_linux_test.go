package namespaces

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// scratched makes a directory of a bench one whose changes are thrown away.
func (b *bench) scratched(rules ...string) *bench {
	var list []Place
	for _, rule := range rules {
		list = append(list, b.place(rule))
	}
	var err error
	b.plan.Mounts, err = Mounts(list)
	require.NoError(b.t, err)
	return b
}

func TestScratch(t *testing.T) {
	b := newBench(t, []string{"c/f", "c/d/g", "c/old/x", "c/secret", "c/ro/h", "c/live/x", "out", "c/l -> ../out"})
	b.write("c/f", "old\n")
	require.NoError(t, os.Chmod(b.path("c/ro"), 0o555))
	t.Cleanup(func() { os.Chmod(b.path("c/ro"), 0o755) })
	b.scratched("overlay c scratch", "hide c/secret", "read c/d", "write c/live")
	const script = `cd c; echo new > f; cat f; rm -r old; mkdir old; ls old; echo y > live/x; mkdir -p made/in; mv f made/in
		cat secret; echo x > d/g; echo x > l; rm -f ro/h; chmod u+w ro; rm ro/h && echo gone`
	got := b.sh(script).run().out
	if kernel.AtLeast(6, 6) {
		require.Equal(t, Scratch, b.plan.Mounts[0].Kind)
		require.Contains(t, got, "new\n")
		require.Contains(t, got, "gone\n")
	}
	for _, refusal := range []string{"secret: Permission denied", "d/g: Read-only file system", "l: Read-only file system", "ro/h': Permission denied"} {
		require.Contains(t, got, refusal)
	}
	require.Equal(t, "old\n", b.read("c/f"), "the host's stays as it was")
	require.Equal(t, "y\n", b.read("c/live/x"), "what may be written within is the host's own")
	require.FileExists(t, b.path("c/old/x"))
	require.FileExists(t, b.path("c/ro/h"))
	require.NoDirExists(t, b.path("c/made"))

	// Read-only, as a control: what the overlay lets be done fails.
	b.scratched("read c")
	require.Contains(t, b.sh("echo new > c/f").run().out, "Read-only file system")
}

// What is put into it counts as private, and a full one is full.
func TestScratchIsBounded(t *testing.T) {
	b := newBench(t, []string{"c/f"}).scratched("overlay c scratch")
	b.plan.Disk, b.plan.Inodes = 1<<20, 128
	got := b.sh("head -c 2m /dev/zero > c/big; for i in $(seq 200); do touch c/n$i || break; done; rm c/*; echo x > c/again && cat c/again").run().out
	if kernel.AtLeast(6, 6) {
		require.Equal(t, 2, strings.Count(got, "No space left on device"), got)
		require.True(t, strings.HasSuffix(got, "x\n"), got)
	}
	require.FileExists(t, b.path("c/f"))
}

// The kernel makes no overlay of some file systems. What is there then is
// read-only, and the plan says so when the command begins.
func TestScratchThatCannotBe(t *testing.T) {
	const dir = "/proc/sys/vm"
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(dir, &st))
	b := newBench(t, nil).without(profiles.LayerPidns, profiles.LayerProcMasks) // the host's /proc
	mounts, err := Mounts([]Place{{Path: dir, Node: Directory, Dev: survey.Device(st.Dev), Ino: st.Ino, Access: profiles.Overlay, Scratch: true}})
	require.NoError(t, err)
	b.plan.Mounts = mounts
	require.False(t, b.plan.At(dir).ReadOnly)
	got := b.sh("cat " + dir + "/swappiness; grep -o ' " + dir + " proc ro,' /proc/self/mounts").run()
	require.Regexp(t, `^\d+\n `+dir+` proc ro,\n$`, got.out)
	require.Equal(t, "bind on "+dir+" read-only", b.plan.Mounts[0].String())
	require.True(t, b.plan.At(dir).ReadOnly)
}
