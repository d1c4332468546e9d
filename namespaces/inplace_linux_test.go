package namespaces

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// What stands in a tree that may be written is pinned and made read-only where
// it is, and what Landlock grants around it holds in it.
func TestInPlace(t *testing.T) {
	const script = `
echo new > d/new || echo cannot make
mkdir d/e/sub || echo cannot make a directory
mv d/new d/e/moved || echo cannot move
{ echo > d/e/f; } 2>/dev/null && echo wrote
mv d away 2>/dev/null && echo moved away
mv d/e d/away 2>/dev/null && echo moved away
rm -f d/e/f 2>/dev/null
cat d/e/f`
	rules := []string{"write d pin", "write d/e pin", "read d/e/f"}
	b := newBench(t, []string{"d/e/f"}, rules...).sh(script)
	b.write("d/e/f", "text\n")
	ran := b.run()
	require.Equal(t, "text\n", ran.out)
	require.Equal(t, "text\n", b.read("d/e/f"))
	require.Equal(t, "new\n", b.read("d/e/moved"))

	b = newBench(t, []string{"d/e/f"}, rules...).sh(script)
	b.plan.Mounts = b.plan.Mounts[:1]
	require.Contains(t, b.run().out, "wrote\nmoved away\n", "control")
	alone(t)
}

// A name is bound as what the survey saw there, or not at all.
func TestInPlaceReplaced(t *testing.T) {
	for name, replace := range map[string]func(path, aside string) error{
		"by another file":     func(path, _ string) error { return os.WriteFile(path, nil, 0o644) },
		"by a link to it":     func(path, aside string) error { return os.Symlink(aside, path) },
		"by a directory":      func(path, _ string) error { return os.Mkdir(path, 0o755) },
		"by nothing, it went": func(string, string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []string{"d/f"}, "write d pin", "read d/f").sh("echo > ran")
			require.NoError(t, os.Rename(b.path("d/f"), b.path("aside")))
			require.NoError(t, replace(b.path("d/f"), b.path("aside")))
			_, err := b.begin()
			want := unix.ESTALE
			if name == "by nothing, it went" {
				want = unix.ENOENT
			}
			require.ErrorIs(t, err, want)
			require.Equal(t, "open "+b.path("d/f")+": "+want.Error(), err.Error())
			require.NoFileExists(t, b.path("ran"))

			require.NoError(t, os.RemoveAll(b.path("d/f")))
			require.NoError(t, os.Rename(b.path("aside"), b.path("d/f")))
			require.Zero(t, b.run().Status, "control")
		})
	}
	alone(t)
}

// Of what lies in a tree that may be written only what is bound elsewhere, or
// by another name, is looked up by its path.
func TestWithin(t *testing.T) {
	mount := func(kind Kind, target string, readonly bool) Mount {
		return Mount{Kind: kind, Source: target, Target: target, Tree: true, ReadOnly: readonly, Donated: -1}
	}
	p := &Plan{Mounts: []Mount{
		mount(Bind, "/w", false), mount(Bind, "/w/a", false), mount(Bind, "/w/a/f", true), mount(Bind, "/w/b", true),
		mount(Bind, "/w/b/c", false), mount(Fresh, "/w/p", false), mount(Bind, "/w/p/q", false), mount(Bind, "/x", true), mount(Bind, "/w/d/e", true),
	}}
	require.Equal(t, []int{-1, 0, 1, 0, -1, 0, -1, -1, -1}, p.within())
	p.Mounts[1].Protect, p.Without = true, []profiles.Layer{profiles.LayerProtect}
	require.Equal(t, []int{-1, -1, 0, 0, -1, 0, -1, -1, -1}, p.within(), "what is left out is around nothing")
}
