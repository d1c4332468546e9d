package namespaces

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/profiles"
)

func TestCaches(t *testing.T) {
	const scratch, readOnly = "overlay dir home/go/mod scratch", "read dir home/go/mod"
	for name, c := range map[string]struct {
		files  []string
		rules  []string
		change func(w *country)
		mount  string // of the host
		cache  string // "" is home/go/mod
		want   []string
	}{
		"the control":               {want: []string{scratch}},
		"a rule of the user's":      {rules: []string{"read home/go/mod"}},
		"hidden by the user":        {rules: []string{"hide home/go/mod"}},
		"written by the user":       {rules: []string{"write home/go/mod"}},
		"private by the user":       {rules: []string{"private home/go"}},
		"a rule above":              {rules: []string{"read home/go"}},
		"another tool's table":      {rules: []string{"+write home/go"}, want: []string{}},
		"something mounted in it":   {mount: "home/go/mod/x", want: []string{readOnly}},
		"a mount of its own":        {mount: "home/go/mod", want: []string{scratch}},
		"mounted beside it":         {mount: "home/go/mod2", want: []string{scratch}},
		"strict":                    {change: func(w *country) { w.policy.Strict = true }, want: []string{readOnly}},
		"a link":                    {files: []string{"home/l -> HOME/home/go/mod"}, cache: "home/l", want: []string{scratch, "overlay link home/l -> home/go/mod"}},
		"a link into the workspace": {files: []string{"home/l -> HOME/ws/d", "ws/d/"}, cache: "home/l"},
		"a link to what is written": {files: []string{"home/l -> HOME/data", "data/"}, rules: []string{"write data"}, cache: "home/l"},
		"a link to what is read":    {files: []string{"home/l -> HOME/data", "data/"}, rules: []string{"read data"}, cache: "home/l", want: []string{"read dir data", "read link home/l -> data"}},
		"a link to nothing":         {files: []string{"home/l -> HOME/gone"}, cache: "home/l"},
		"a link to the home":        {files: []string{"home/l -> HOME/home"}, cache: "home/l"},
		"gone":                      {cache: "home/gone"},
		"where all may be read":     {files: []string{"data/mod/"}, cache: "data/mod", want: []string{"overlay dir data/mod scratch"}},
		"and read-only there":       {files: []string{"data/mod/"}, cache: "data/mod", mount: "data/mod/x", want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountry(t, append(slices.Clone(c.files), "home/go/mod/cache/", "home/go/mod2/"), c.rules...)
			if c.change != nil {
				c.change(w)
			}
			if c.cache == "" {
				c.cache = "home/go/mod"
			}
			mounts := []mountpoint{{target: "/"}}
			if c.mount != "" {
				mounts = append(mounts, mountpoint{target: w.path(c.mount)})
			}
			f := w.finder()
			f.caches([]Cache{{Path: w.path(c.cache), Access: profiles.Overlay}, {Path: w.path("home/go"), Access: profiles.Private}}, mounts)
			want := c.want
			if !kernel.AtLeast(6, 6) { // read-only, or as it is
				want = nil
				for _, text := range c.want {
					if text = strings.TrimSuffix(strings.Replace(text, "overlay ", "read ", 1), " scratch"); text != "read dir data/mod" {
						want = append(want, text)
					}
				}
			}
			require.ElementsMatch(t, want, w.found(f))
		})
	}
}

// Modules that lie elsewhere than Go looks for them without its variables are of
// no use unless the command is told.
func TestModuleCacheIsTold(t *testing.T) {
	w := newCountry(t, []string{"home/go/pkg/mod/", "home/x/mod/"})
	told := func(path string, change func(*profiles.Environment)) []Variable {
		w.policy.Environment = profiles.Environment{}
		change(&w.policy.Environment)
		return w.finder().caches([]Cache{{Path: w.path(path), Access: profiles.Overlay, Env: moduleCache}}, nil)
	}
	nothing := func(*profiles.Environment) {}
	if kernel.AtLeast(6, 6) {
		require.Equal(t, []Variable{{"GOMODCACHE=" + w.path("home/x/mod"), "where the tool's cache is"}}, told("home/x/mod", nothing))
	}
	require.Empty(t, told("home/go/pkg/mod", nothing))
	require.Empty(t, told("home/x/mod", func(e *profiles.Environment) { e.Pass = []profiles.EnvRule{{Pattern: "GO*"}} }))
	require.Empty(t, told("home/x/mod", func(e *profiles.Environment) { e.Scrub = []profiles.EnvRule{{Pattern: "GOMODCACHE"}} }))
	require.Empty(t, told("home/x/mod", func(e *profiles.Environment) { e.Set = map[string]profiles.EnvSet{moduleCache: {Value: "/x"}} }))
}

// scratched makes a directory of a bench one whose changes are thrown away.
func (b *bench) scratched(rules ...string) *bench {
	var list []Place
	for _, rule := range rules {
		list = append(list, b.place(rule))
	}
	var err error
	b.plan.Mounts, err = layout(list)
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
	mounts, err := layout([]Place{{Path: dir, Node: Directory, Dev: device(st.Dev), Ino: st.Ino, Access: profiles.Overlay, Scratch: true}})
	require.NoError(t, err)
	b.plan.Mounts = mounts
	require.False(t, b.plan.At(dir).ReadOnly)
	got := b.sh("cat " + dir + "/swappiness; grep -o ' " + dir + " proc ro,' /proc/self/mounts").run()
	require.Regexp(t, `^\d+\n `+dir+` proc ro,\n$`, got.out)
	require.Equal(t, "bind on "+dir+" read-only", b.plan.Mounts[0].String())
	require.True(t, b.plan.At(dir).ReadOnly)
}
