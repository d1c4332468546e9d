package workspace

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Whatever a command makes, the post-run check comes to its end, and nothing is left
// that runs.
func TestGuardFinishesOnChains(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p old/.vscode; echo x > old/.npmrc")
	w.begin()
	defer func(n int) { maxWeight = n }(maxWeight)
	maxWeight = 1 << 18
	const depth = 2200 // beyond the length of a path
	for i := range 2 {
		w.chain(fmt.Sprint("chain", i), depth)
	}
	w.chain("old/chain", depth)
	w.sh("git init -q r; git -C r config core.pager x; echo x > .envrc; echo x > old/.envrc; echo x > old/f")
	list := w.end()
	require.Subset(t, list, []string{"stashed .envrc", "stashed .pccrun-set-aside-directories", "stashed old/.envrc"})
	require.NoDirExists(t, w.path("r"), "it went with the others")
	require.FileExists(t, w.path("old/f"))
	require.FileExists(t, w.path("old/.npmrc"))
	require.NoFileExists(t, w.path(".envrc"))
}

// So many side by side that they are not looked at one by one go together, and
// come back together; light ones elsewhere stay.
func TestGuardFinishesOnMany(t *testing.T) {
	defer func(n int) { maxDirs = n }(maxDirs)
	for name, other := range map[string]bool{"same file system": false, "another file system": true} {
		t.Run(name, func(t *testing.T) {
			maxDirs = 1 << 20
			w := newWatchman(t)
			if other {
				w.elsewhere()
			}
			w.sh("mkdir -p old/kept; echo x > old/kept/.npmrc")
			w.begin()
			w.sh("cd old; seq 600 | xargs mkdir; mkdir 17/.vscode; git init -q 18; git -C 18 config core.pager x; echo x > kept/.envrc; mkdir ../new; echo x > ../new/.envrc")
			maxDirs = 300
			found, err := w.guard.Finish()
			require.NoError(t, err)
			w.guard.Close()
			list := w.names(found)
			require.Equal(t, []string{"stashed new/.envrc", "stashed old/.pccrun-set-aside-directories", "stashed old/kept/.envrc"}, list)
			require.FileExists(t, w.path("old/kept/.npmrc"))
			for _, f := range found {
				if f.Why != TooMuch {
					continue
				}
				require.Contains(t, f.What, "600 directories")
				if other {
					require.Contains(t, f.What, "closed")
					continue
				}
				w.sh("test $(ls old | wc -l) = 1")
				require.NoError(t, f.Restore(w.session))
				w.sh("test -e old/.pccrun-set-aside-directories/17/.vscode")
			}
			if other {
				require.ErrorIs(t, unix.Access(w.path("old/17"), unix.F_OK), unix.ENOENT)
				w.sh("test $(ls -A old | wc -l) = 2; test -d old/.pccrun-set-aside-[0-9]*; test $(stat -c %a old/.pccrun-*) = 0")
			}
		})
	}
}

// What the post-run check gets through and the next launch does not, the next launch refuses by its name.
func TestScanRefusesWhatHasGrown(t *testing.T) {
	defer func(n int) { maxDirs = n }(maxDirs)
	for name, c := range map[string]struct {
		script string
		most   string // where most of it lies; "" if a launch takes it
	}{
		"the control":      {"mkdir -p pkgs/a; cd pkgs/a; seq 130 | xargs mkdir", ""},
		"side by side":     {"mkdir -p pkgs/a; cd pkgs/a; seq 180 | xargs mkdir", "/pkgs/a"},
		"in node_modules":  {"mkdir -p node_modules/x; cd node_modules/x; seq 13 | xargs mkdir; for d in *; do (cd $d; seq 13 | xargs mkdir); done", "/node_modules/x"},
		"all over it":      {"seq 180 | xargs mkdir", "/"},
		"two, and neither": {"for d in a b; do mkdir $d; (cd $d; seq 90 | xargs mkdir); done", "/"},
	} {
		t.Run(name, func(t *testing.T) {
			maxDirs = 1 << 20
			w := newWatchman(t)
			w.begin()
			w.sh(c.script)
			maxDirs = 660
			found, err := w.guard.Finish()
			require.NoError(t, err)
			w.guard.Close()
			_, refusal := Scan(w.query)
			require.Empty(t, found)
			if c.most == "" {
				require.NoError(t, refusal)
				return
			}
			require.ErrorIs(t, refusal, ErrTooMuch)
			var hint interface{ Hint() string }
			require.ErrorAs(t, refusal, &hint)
			if c.most == "/" {
				require.ErrorContains(t, refusal, w.root+": too many or too deep directories, in all of it")
				require.Equal(t, "--workspace DIR uses a part of it", hint.Hint())
				w.query.Aside = true
				_, refusal = Scan(w.query)
				require.ErrorAs(t, refusal, &hint)
				require.Equal(t, "--write DIR uses a part of it", hint.Hint())
				return
			}
			require.ErrorContains(t, refusal, " in "+strconv.Quote(w.root+c.most)+": ")
			require.Contains(t, hint.Hint(), "remove it")
		})
	}
}

// chain makes a chain of directories that no path reaches.
func (w *watchman) chain(name string, depth int) {
	at, err := unix.Open(w.root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	require.NoError(w.t, err)
	for range depth {
		require.NoError(w.t, unix.Mkdirat(at, name, 0o755))
		next, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(w.t, err)
		unix.Close(at)
		at, name = next, "d"
	}
	unix.Close(at)
}

// A chain that the next launch would not look through goes, though the post-run check gets through more; a shorter one
// stays, and what is new in another directory.
func TestGuardTakesWhatIsTooDeep(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir old other")
	w.begin()
	w.chain("old/chain", deepest+100)
	w.chain("other/chain", deepest-100)
	require.Equal(t, []string{"stashed old/.pccrun-set-aside-directories"}, w.end())
	require.NoDirExists(t, w.path("old/chain"))
	require.DirExists(t, w.path("other/chain"), "control")
	scanOf(t, w.query)
}
