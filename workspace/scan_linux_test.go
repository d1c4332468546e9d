package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/beneath"
)

func TestScanNames(t *testing.T) {
	root := fixture.Dir(t)
	for _, path := range []string{
		".envrc", "a/.envrc", "a/b/.vscode/tasks.json", ".github/workflows/ci.yml", "sub/.github/workflows/ci.yml",
		"x.iml", "a/deep.iml", "AGENTS.md", "a/AGENTS.md", "node_modules/p/.vscode/settings.json", "node_modules/p/AGENTS.md", "docs/HEAD", "plain",
	} {
		fixture.Write(t, root+"/"+path, "x")
	}
	origin := profiles.Origin{Source: "p.jsonc", Line: 3}
	rules := append(fixture.Protect(".envrc", ".vscode", "*.iml", ".idea"), fixture.Review("AGENTS.md", ".github/workflows")...)
	rules[0].Origin = origin
	f := scanOf(t, Query{Root: root, Protect: rules})
	require.Equal(t, []string{".envrc", "a/.envrc", "a/b/.vscode", "a/deep.iml", "x.iml"}, pinPaths(t, root, f))
	require.Equal(t, origin, f.Pins[0].Origin)
	require.Equal(t, ".envrc", f.Pins[0].Why)
	require.Equal(t, []string{"a", "a/b"}, relative(t, root, f.Anchors))
	var reviewed []string
	for _, r := range f.Review {
		reviewed = append(reviewed, r.Path)
		info, err := os.Lstat(r.Path)
		require.NoError(t, err)
		st := info.Sys().(*syscall.Stat_t)
		require.Equal(t, Node{r.Path, File, st.Dev, st.Ino}, r.Node)
		require.True(t, f.Start.After(time.Unix(st.Ctim.Unix())))
	}
	// What package managers replace is reviewed instead of pinned.
	require.Equal(t, []string{".github/workflows/ci.yml", "AGENTS.md", "a/AGENTS.md", "node_modules/p/.vscode/settings.json"}, relative(t, root, reviewed))
}

// Of two rules that match the stricter counts, whichever is the later.
func TestScanStricterRuleWins(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/.npmrc", "")
	for _, denies := range []string{".npmrc", ".npm*"} {
		deny, review := fixture.Protect(denies), fixture.Review(".npmrc")
		for _, rules := range [][]profiles.ProtectRule{slices.Concat(deny, review), slices.Concat(review, deny)} {
			f := scanOf(t, Query{Root: root, Protect: rules})
			require.Len(t, f.Pins, 1)
			require.Empty(t, f.Review)
		}
	}
}

func TestScanGlobs(t *testing.T) {
	top := fixture.Dir(t)
	root := top + "/home/ws"
	for _, path := range []string{
		".env", ".env.local", ".env.example", "a/.env", "a/key.pem", "a/b/c.pem.txt", "secrets/one", "secrets/deep/two",
		"conf/x.json", "conf/sub/y.json", "[id].js", "i.js", "UPPER.PEM",
	} {
		fixture.Write(t, root+"/"+path, "x")
	}
	for name, c := range map[string]struct {
		rules []profiles.FileRule
		want  []string
	}{
		"a name at any depth":      {hide(root, "**/.env*"), []string{".env", ".env.local", "a/.env"}},
		"from above":               {hide(top, "**/.env"), []string{".env", "a/.env"}},
		"from above, by path":      {hide(top, "home/*/a/.env"), []string{"a/.env"}},
		"from the top":             {hide("/", "**/key.*"), []string{"a/key.pem"}},
		"from below":               {hide(root+"/a", "*.pem"), []string{"a/key.pem"}},
		"elsewhere":                {hide(top+"/other", "**/.env"), nil},
		"a sibling with a prefix":  {hide(root+"2", "**/.env"), nil},
		"a suffix":                 {hide(root, "**/*.pem"), []string{"a/key.pem"}},
		"everything below":         {hide(root, "secrets/**"), []string{"secrets", "secrets/deep", "secrets/deep/two", "secrets/one"}},
		"everything in one":        {hide(root, "conf/*.json"), []string{"conf/x.json"}},
		"everything in one and on": {hide(root, "conf/**/*.json"), []string{"conf/sub/y.json", "conf/x.json"}},
		"a class":                  {hide(root, "[hi].js"), []string{"i.js"}},
		"its own spelling":         {hide(root, "[id].js"), []string{"[id].js", "i.js"}},
		"a template that is named": {hide(root, "**/.env.example"), []string{".env.example"}},
		"the stricter of two": {[]profiles.FileRule{
			{Path: root, Glob: "**/.env", Access: profiles.Read}, {Path: root, Glob: "**/.e*", Access: profiles.Hide},
		}, []string{".env", ".env.local", "a/.env"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := scanOf(t, Query{Root: root, Files: c.rules})
			got := matchPaths(t, root, f)
			if len(c.want) == 0 {
				require.Empty(t, got)
				return
			}
			// The rule itself is the witness: what is below a hidden directory
			// may go without being named.
			for _, path := range c.want {
				covered := false
				for _, g := range got {
					_, ok := beneath.Path(g, path)
					covered = covered || ok
				}
				require.True(t, covered, "%s not in %q", path, got)
			}
			for _, g := range got {
				require.Contains(t, c.want, g)
			}
			for _, m := range f.Matches {
				require.Equal(t, profiles.Hide, m.Rule.Access)
			}
		})
	}
}

func TestScanClosedDirectories(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/secrets/.env", "x")
	fixture.Write(t, root+"/secrets/public/.env", "x")
	fixture.Write(t, root+"/secrets/public/.envrc", "x")
	fixture.Write(t, root+"/private/.envrc", "x")
	rules := append(hide(root, "**/.env"), profiles.FileRule{Path: root + "/secrets", Access: profiles.Hide}, profiles.FileRule{Path: root + "/private", Access: profiles.Private})
	f := scanOf(t, Query{Root: root, Files: rules, Protect: fixture.Protect(".envrc")})
	require.Empty(t, f.Matches)
	require.Empty(t, f.Pins)
	// Searched again as soon as a rule shows something in there.
	rules = append(rules, profiles.FileRule{Path: root + "/secrets/public", Access: profiles.Write})
	f = scanOf(t, Query{Root: root, Files: rules, Protect: fixture.Protect(".envrc")})
	require.Contains(t, matchPaths(t, root, f), "secrets/public/.env")
	require.Equal(t, []string{"secrets/public/.envrc"}, pinPaths(t, root, f))
}

// Root's command is to the tree what its owner is: a directory that another has
// closed is closed to it, and to the look at the end.
//
//test:root
func TestScanForeign(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := fixture.Dir(t)
	require.NoError(t, os.Chown(root, 4711, 4711))
	for name, c := range map[string]struct {
		uid, gid int
		mode     os.FileMode
		want     string
	}{
		"closed":              {4712, 4712, 0o700, "closed"},
		"root's":              {0, 0, 0o750, "root's"},
		"can be searched":     {4712, 4712, 0o711, "can be searched"},
		"its owner's":         {4711, 4711, 0o700, "its owner's/.envrc"},
		"its group's":         {4712, 4711, 0o750, "its group's/.envrc"},
		"closed to its group": {4712, 4711, 0o705, "closed to its group"},
		"open":                {4712, 4712, 0o755, "open/.envrc"},
	} {
		fixture.Write(t, root+"/"+name+"/.envrc", "x")
		require.NoError(t, os.Chown(root+"/"+name, c.uid, c.gid))
		require.NoError(t, os.Chmod(root+"/"+name, c.mode))
		require.Contains(t, pinPaths(t, root, scanOf(t, Query{Root: root, Protect: fixture.Protect(".envrc")})), c.want, name)
		require.NoError(t, os.RemoveAll(root+"/"+name))
	}
}

func TestScanLinks(t *testing.T) {
	top := fixture.Dir(t)
	root := top + "/ws"
	fixture.Write(t, top+"/outside/file", "x")
	fixture.Write(t, top+"/outside/.env", "x")
	fixture.Write(t, root+"/tools/direnv/rc", "x")
	fixture.Write(t, root+"/skills/one/SKILL.md", "x")
	fixture.Write(t, root+"/.claude/settings.json", "{}")
	fixture.Write(t, root+"/conf/dev", "x")
	fixture.Link(t, "hop", root+"/.envrc")
	fixture.Link(t, "tools/../tools/direnv/rc", root+"/hop")
	fixture.Link(t, "../skills", root+"/.claude/skills")
	fixture.Link(t, top+"/outside", root+"/.vscode")
	fixture.Link(t, "nowhere", root+"/.npmrc")
	fixture.Link(t, top+"/outside", root+"/out") // never walked
	fixture.Link(t, "conf/dev", root+"/.env")
	fixture.Link(t, top+"/outside/file", root+"/.env.out")
	fixture.Link(t, "conf", root+"/.env.d")
	fixture.Link(t, "loop", root+"/loop")
	fixture.Link(t, "loop", root+"/.idea")
	f := scanOf(t, Query{Root: root, Protect: fixture.Protect(".envrc", ".claude", ".vscode", ".npmrc", ".idea"), Files: hide(root, "**/.env", "**/.env.*")})
	require.Equal(t, []string{".claude", ".envrc", ".idea", ".npmrc", ".vscode", "hop", "loop", "skills", "tools/direnv/rc"}, pinPaths(t, root, f))
	require.Equal(t, []string{"tools", "tools/direnv"}, relative(t, root, f.Anchors))
	require.Contains(t, f.Vacant, root+"/nowhere")
	require.Equal(t, []string{".env.d", ".env.out", "conf/dev"}, matchPaths(t, root, f))
	require.Equal(t, top+"/outside/file", f.Matches[1].Target)
	require.Equal(t, "where "+root+"/.env leads", f.Matches[2].Why)
	require.Equal(t, []string{root + "/skills is read-only, because " + root + "/.claude/skills links to it"}, f.Notes)
}

func TestScanLinkToTheWhole(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Link(t, ".", root+"/.vscode")
	_, err := Scan(Query{Root: root, Protect: fixture.Protect(".vscode")})
	require.ErrorContains(t, err, "protect .vscode")
	require.NoError(t, os.Remove(root+"/.vscode"))
	fixture.Link(t, "..", root+"/.vscode/back") // inside a protected directory it is no reason to refuse
	f := scanOf(t, Query{Root: root, Protect: fixture.Protect(".vscode")})
	require.Equal(t, []string{".vscode"}, pinPaths(t, root, f))
	require.Len(t, f.Notes, 1)
}

func TestScanAliases(t *testing.T) {
	top := fixture.Dir(t)
	root := top + "/ws"
	newRepo(t, root)
	fixture.Write(t, root+"/.envrc", "x")
	fixture.Write(t, root+"/.vscode/tasks.json", "{}")
	fixture.Write(t, root+"/.env", "SECRET")
	fixture.Write(t, root+"/vault/key", "SECRET")
	fixture.Write(t, root+"/.git/hooks/pre-push", "")
	q := Query{
		Root: root, Protect: fixture.Protect(".envrc", ".vscode"), IndexDir: top + "/index",
		Files: append(hide(root, "**/.env"), profiles.FileRule{Path: root + "/vault", Access: profiles.Hide}),
	}
	base := pinPaths(t, root, scanOf(t, q))
	hard := func(from, to string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(root+"/"+to), 0o755))
		require.NoError(t, os.Link(root+"/"+from, root+"/"+to))
	}
	check := func(wantPins, wantMatches []string) {
		t.Helper()
		cold := q
		cold.IndexDir = ""
		for _, q := range []Query{q, q, cold} { // with what changed, without a change, and without an index
			f := scanOf(t, q)
			var pins []string
			for _, p := range f.Pins {
				if strings.HasPrefix(p.Why, "same file as ") {
					pins = append(pins, p.Path)
				}
			}
			require.ElementsMatch(t, wantPins, relative(t, root, pins))
			require.Len(t, f.Pins, len(base)+len(wantPins))
			require.ElementsMatch(t, wantMatches, matchPaths(t, root, f))
		}
	}
	check(nil, []string{".env"})
	hard(".envrc", "a/x")
	check([]string{"a/x"}, []string{".env"})
	hard(".vscode/tasks.json", "a/y")
	check([]string{"a/x", "a/y"}, []string{".env"})
	hard(".git/hooks/pre-push", "b/z")
	hard(".git/config", "b/c")
	check([]string{"a/x", "a/y", "b/c", "b/z"}, []string{".env"})
	hard(".env", "b/e")
	hard("vault/key", "b/k")
	check([]string{"a/x", "a/y", "b/c", "b/z"}, []string{".env", "b/e", "b/k"})
	// A name that goes away goes away here too, and one that another file gets.
	require.NoError(t, os.Remove(root+"/b/e"))
	require.NoError(t, os.Rename(root+"/a/x", root+"/moved"))
	fixture.Write(t, root+"/a/x", "harmless")
	check([]string{"moved", "a/y", "b/c", "b/z"}, []string{".env", "b/k"})
	// A file becomes protected by a name in a protected directory.
	fixture.Write(t, root+"/late", "x")
	hard("late", ".vscode/launch.json")
	check([]string{"moved", "a/y", "b/c", "b/z", "late"}, []string{".env", "b/k"})
	// Names within what is protected anyway are no news, nor are those outside.
	require.NoError(t, os.Link(root+"/.envrc", top+"/outside"))
	hard(".vscode/tasks.json", ".vscode/copy.json")
	check([]string{"moved", "a/y", "b/c", "b/z", "late"}, []string{".env", "b/k"})
}

//test:root
func TestScanUnreadable(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("needs an unprivileged user: root reads every directory")
	}
	root := fixture.Dir(t)
	fixture.Write(t, root+"/shut/.envrc", "x")
	require.NoError(t, os.Chmod(root+"/shut", 0o311))
	t.Cleanup(func() { _ = os.Chmod(root+"/shut", 0o755) })
	f := scanOf(t, Query{Root: root, Protect: fixture.Protect(".envrc")})
	require.Equal(t, []string{"shut"}, pinPaths(t, root, f))
}

func TestScanBadQuery(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/file", "")
	fixture.Link(t, ".", root+"/link")
	for want, q := range map[string]Query{
		"want an absolute, clean path":               {Root: "relative"},
		"scan workspace \"/tmp/\": want an absolute": {Root: "/tmp/"},
		"no workspace":                                      {Root: "/"},
		root + "/absent: no such file":                      {Root: root + "/absent"},
		root + "/file: not a directory":                     {Root: root + "/file"},
		root + "/link: ":                                    {Root: root + "/link"},
		root + "/link/x: too many levels":                   {Root: root + "/link/x"},
		"its index may not lie inside":                      {Root: root, IndexDir: root + "/index"},
		"pattern \"\": want a name or a path":               {Root: root, Protect: fixture.Protect("")},
		"pattern \"a\\x00\": want a name or a path":         {Root: root, Protect: fixture.Protect("a\x00")},
		"pattern with NUL":                                  {Root: root, Files: hide(root, "a\x00*")},
		"scan workspace \"/tmp/a\\x00b\": want an absolute": {Root: "/tmp/a\x00b"},
	} {
		_, err := Scan(q)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestScanOddNames(t *testing.T) {
	root := fixture.Dir(t)
	for _, name := range []string{"new\nline", "-rf", "\xff\xfe", strings.Repeat("n", 255), " ", "…"} {
		fixture.Write(t, root+"/"+name+"/.envrc", "x")
		fixture.Write(t, root+"/"+name+"/"+name, "x")
	}
	require.NoError(t, unix.Mkfifo(root+"/.git", 0o644))
	require.NoError(t, unix.Mkfifo(root+"/.npmrc", 0o644))
	f := scanOf(t, Query{Root: root, Protect: fixture.Protect(".envrc", ".npmrc")})
	require.Len(t, f.Pins, 8)
	for _, p := range f.Pins {
		require.Equal(t, filepath.Dir(p.Path) == root, p.Kind == Special, p.Path)
	}
}

// A path that is longer than the kernel takes at once is walked all the same.
func TestScanDeep(t *testing.T) {
	root := fixture.Dir(t)
	name := strings.Repeat("d", 200)
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	require.NoError(t, err)
	for range 40 {
		require.NoError(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		unix.Close(fd)
		fd = next
	}
	file, err := unix.Openat(fd, ".envrc", unix.O_CREAT|unix.O_WRONLY, 0o644)
	require.NoError(t, err)
	unix.Close(file)
	unix.Close(fd)
	idx := fixture.Dir(t)
	for range 2 {
		f := scanOf(t, Query{Root: root, Protect: fixture.Protect(".envrc"), IndexDir: idx})
		require.Len(t, f.Pins, 1)
		require.Equal(t, File, f.Pins[0].Kind)
		require.Len(t, f.Anchors, 40)
		require.Equal(t, 41, f.Stats.Dirs)
	}
}

// cpuTime is how long this process has had a processor.
func cpuTime(t *testing.T) time.Duration {
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What the content of a workspace controls is bounded.
func TestScanHostile(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, root string) (tooMuch bool){
		"16 links of 800 a/../": func(t *testing.T, root string) bool {
			require.NoError(t, os.Mkdir(root+"/a", 0o755))
			for i := range 16 {
				fixture.Link(t, strings.Repeat("a/../", 800)+fmt.Sprintf("l%d", i+1), fmt.Sprintf("%s/l%d", root, i))
			}
			fixture.Write(t, root+"/l16", "x")
			fixture.Link(t, "l0", root+"/.envrc")
			return false
		},
		"the same from 100 places": func(t *testing.T, root string) bool {
			require.NoError(t, os.Mkdir(root+"/a", 0o755))
			for i := range 16 {
				fixture.Link(t, strings.Repeat("a/../", 800)+fmt.Sprintf("l%d", i+1), fmt.Sprintf("%s/l%d", root, i))
			}
			for i := range 100 {
				fixture.Link(t, "../l0", fmt.Sprintf("%s/d%d/.envrc", root, i))
			}
			return true
		},
		"a pointer of 1 MB": func(t *testing.T, root string) bool {
			fixture.Write(t, root+"/.git", "gitdir: "+strings.Repeat("a/../", 200_000)+"x")
			return false
		},
		"a pointer of 2 MB": func(t *testing.T, root string) bool {
			fixture.Write(t, root+"/.git", "gitdir: "+strings.Repeat("x", 2<<20))
			return false
		},
		"a pointer of 1 MB that exists": func(t *testing.T, root string) bool {
			require.NoError(t, os.Mkdir(root+"/a", 0o755))
			fixture.Write(t, root+"/.git", "gitdir: "+strings.Repeat("a/../", 209_000)+"x")
			return true
		},
		"a configuration of 2 MB": func(t *testing.T, root string) bool {
			fixture.Write(t, root+"/.git/config", strings.Repeat("#", 2<<20))
			return true
		},
		"includes without end": func(t *testing.T, root string) bool {
			fixture.Write(t, root+"/.git/config", "[include]\npath = i0\npath = i1\n")
			for i := range 40 {
				fixture.Write(t, fmt.Sprintf("%s/.git/i%d", root, i), fmt.Sprintf("[include]\npath=i%d\npath=i%d\npath=i%d\npath=i%d\n", i*2%40, i*2%40+1, i*3%40, i*7%40))
			}
			return true
		},
		"a well": func(t *testing.T, root string) bool {
			t.Cleanup(func(n int) func() { return func() { maxWeight = n } }(maxWeight))
			maxWeight = 1 << 18
			fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY, 0)
			require.NoError(t, err)
			for range 800 {
				require.NoError(t, unix.Mkdirat(fd, "a", 0o755))
				next, err := unix.Openat(fd, "a", unix.O_PATH|unix.O_DIRECTORY, 0)
				require.NoError(t, err)
				unix.Close(fd)
				fd = next
			}
			unix.Close(fd)
			return true
		},
		"60 submodules": func(t *testing.T, root string) bool {
			for i := range 60 {
				d := fmt.Sprintf("%s/.git/modules/s%d", root, i)
				for _, name := range []string{"HEAD", "config", "hooks/x", "objects/x", "refs/x"} {
					fixture.Write(t, d+"/"+name, "[core]\nhooksPath = ../../hooks\n")
				}
				fixture.Write(t, fmt.Sprintf("%s/s%d/.git", root, i), fmt.Sprintf("gitdir: ../.git/modules/s%d\n", i))
			}
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := fixture.Dir(t)
			tooMuch := make(t, root)
			start := cpuTime(t)
			_, err := Scan(Query{Root: root, Protect: fixture.Protect(".envrc")})
			require.Less(t, cpuTime(t)-start, 20*time.Second) // on a slow machine, too
			if !tooMuch {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrTooMuch)
			require.Contains(t, err.Error(), root)
			require.Less(t, len(err.Error()), 500)
		})
	}
}

// While another process moves directories and puts links in their place, a
// scan neither fails nor says anything of what lies outside.
func TestScanRace(t *testing.T) {
	top := fixture.Dir(t)
	root := top + "/ws"
	fixture.Write(t, top+"/outside/deep/.envrc", "x")
	fixture.Write(t, top+"/outside/.git/config", "[core]\nhooksPath = /\n")
	for i := range 50 {
		fixture.Write(t, fmt.Sprintf("%s/d%d/deep/.envrc", root, i), "x")
	}
	stop, done := make(chan struct{}), make(chan struct{})
	halt := sync.OnceFunc(func() { close(stop); <-done })
	defer halt()
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			d := fmt.Sprintf("%s/d%d", root, i%50)
			_ = os.Rename(d, top+"/aside")
			_ = os.Symlink(top+"/outside", d)
			_ = os.Remove(d)
			_ = os.Rename(top+"/aside", d)
		}
	}()
	q := Query{Root: root, Protect: fixture.Protect(".envrc"), IndexDir: top + "/index"}
	var outside unix.Stat_t
	require.NoError(t, unix.Stat(top+"/outside/deep/.envrc", &outside))
	for range 100 {
		f, err := Scan(q)
		if errors.Is(err, errUnsteady) {
			continue
		}
		require.NoError(t, err)
		for _, p := range f.Pins {
			require.NotEqual(t, outside.Ino, p.Ino, p.Path)
		}
	}
	halt()
	require.Len(t, scanOf(t, q).Pins, 50)
}

// TestScanBlinded has another run close a directory, or move it away, while it
// is looked through: what it holds is covered, or there is no answer.
//
//test:root
func TestScanBlinded(t *testing.T) {
	top := fixture.Dir(t)
	root := top + "/ws"
	fixture.Write(t, root+"/d/.envrc", "x")
	for i := range 300 {
		fixture.Write(t, fmt.Sprintf("%s/m%d/.envrc", root, i), "x")
	}
	var flip func()
	if os.Getuid() == 0 { // no mode closes a directory to root
		flip = func() {
			_ = os.Rename(root+"/d", top+"/away")
			time.Sleep(700 * time.Microsecond)
			_ = os.Rename(top+"/away", root+"/d")
		}
	} else {
		flip = func() {
			_ = os.Chmod(root+"/d", 0)
			time.Sleep(700 * time.Microsecond)
			_ = os.Chmod(root+"/d", 0o755)
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				flip()
				time.Sleep(1500 * time.Microsecond)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	q := Query{Root: root, Protect: fixture.Protect(".envrc")}
	unsteady := 0
	for end := await.Deadline(); unsteady == 0 && time.Now().Before(end); {
		_, err := scanOnce(q)
		if errors.Is(err, errUnsteady) {
			unsteady++
		}
	}
	require.Positive(t, unsteady, "control: it does change under the scan")
	if os.Getuid() == 0 {
		return // what is away at the end of a scan is no more there than what comes later
	}
	for range 100 {
		f, err := Scan(q)
		if errors.Is(err, errUnsteady) {
			continue
		}
		require.NoError(t, err)
		covered := slices.ContainsFunc(f.Pins, func(p Pin) bool { return p.Path == root+"/d/.envrc" || p.Path == root+"/d" })
		require.True(t, covered)
	}
}

// Links at the top, and those of node_modules that lead out, are listed; a second scan has them from its index.
func TestScanLeads(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/node_modules/@a/x/f", "")
	fixture.Write(t, root+"/sub/f", "")
	for name, to := range map[string]string{
		"top": "sub", "node_modules/out": "../../lib", "node_modules/@a/out": "/elsewhere",
		"node_modules/in": "../sub", "node_modules/@a/in": root + "/sub", "node_modules/@a/x/out": "../../../../lib", "sub/out": "../../lib",
	} {
		require.NoError(t, os.Symlink(to, root+"/"+name))
	}
	q := Query{Root: root, IndexDir: fixture.Dir(t)}
	for range 2 {
		require.ElementsMatch(t, []string{root + "/top", root + "/node_modules/out", root + "/node_modules/@a/out"}, scanOf(t, q).Leads)
	}
}
