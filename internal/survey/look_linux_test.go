package survey

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/procfs"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// A country is a made-up host: a home with a workspace ws in it, and a policy.
type country struct {
	t      testing.TB
	root   string
	policy *profiles.Policy
}

// newCountry makes the files of [fakeHome] and a policy of rules, each "access
// path [glob]" with a path below the root; what stands outside it is read. A rule
// with a + in front of it is a built-in one.
func newCountry(t *testing.T, files []string, rules ...string) *country {
	c := &country{t: t, root: fakeHome(t, append(files, "ws/", "home/")...)}
	for dir := c.root; dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) { // what root hides behind a closed door is not covered
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	c.policy = &profiles.Policy{Home: c.path("home"), Homes: []string{c.path("home")}, Workspace: c.path("ws"), WorkDir: c.path("ws")}
	c.policy.Files = []profiles.FileRule{{Path: "/", Access: profiles.Read, Origin: profiles.Origin{Source: "default"}}}
	for _, rule := range append([]string{"+private home", "write ws"}, rules...) {
		f := strings.Fields(rule)
		word, builtin := strings.CutPrefix(f[0], "+")
		access, err := profiles.ParseAccess(word)
		require.NoError(t, err)
		r := profiles.FileRule{Path: c.path(f[1]), Access: access, Origin: profiles.Origin{Source: "flag", Key: rule}}
		if builtin {
			r.Origin.Source = "default"
		}
		if len(f) > 2 {
			r.Glob = f[2]
		}
		c.policy.Files = append(c.policy.Files, r)
	}
	return c
}

func (c *country) path(name string) string { return filepath.Join(c.root, name) }

func (c *country) finder() *finder { return newFinder(c.policy) }

// found describes the places of a finder, as [place] reads them, less what it
// met outside the root.
func (c *country) found(f *finder) []string {
	require.NoError(c.t, f.err)
	return c.describe(f.places)
}

func (c *country) describe(places []Place) (list []string) {
	for _, p := range places {
		name, ok := strings.CutPrefix(p.Path, c.root+"/")
		if !ok {
			continue
		}
		text := fmt.Sprintf("%s %s %s", p.Access, [...]string{"absent", "file", "dir", "link", "special"}[p.Node], name)
		if p.Pin {
			text += " pin"
		}
		if p.Protect {
			text += " protect"
		}
		if p.Optional {
			text += " optional"
		}
		if p.Scratch {
			text += " scratch"
		}
		if p.Link != "" {
			text += " -> " + strings.TrimPrefix(p.Link, c.root+"/")
		}
		require.Equal(c.t, p.Node != Absent && (p.Node != Link || p.Pin), p.Ino != 0, text)
		list = append(list, text)
	}
	return list
}

// Each path is a rule's: what it leads to is found, as the kernel would.
func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		rules []string
		paths []string // given to rule
		want  []string
		err   string
	}{
		"what exists":   {files: []string{"a/f", "a/d/"}, rules: []string{"read a/f", "hide a/d"}, paths: []string{"a/f", "a/d"}, want: []string{"read file a/f", "hide dir a/d"}},
		"what does not": {rules: []string{"hide a/b/c"}, paths: []string{"a/b/c"}, want: []string{"hide absent a/b/c"}},
		"below a file":  {files: []string{"a"}, rules: []string{"hide a/b"}, paths: []string{"a/b"}, want: []string{"hide absent a/b"}},
		"a link":        {files: []string{"l -> d/f", "d/f"}, rules: []string{"hide l"}, paths: []string{"l"}, want: []string{"hide link l -> d/f", "hide file d/f"}},
		"a link on the way, and a link there": {
			files: []string{"l -> HOME/d", "d/f -> ../e", "e"}, rules: []string{"read l/f"}, paths: []string{"l/f"},
			want: []string{"read link l -> d", "read link d/f -> ../e", "read file e"}},
		"a link to nothing":        {files: []string{"l -> gone"}, rules: []string{"hide l"}, paths: []string{"l"}, want: []string{"hide link l -> gone", "hide absent gone"}},
		"a link that leads upward": {files: []string{"a/b/l -> ../../c", "c"}, rules: []string{"hide a/b/l"}, paths: []string{"a/b/l"}, want: []string{"hide link a/b/l -> ../../c", "hide file c"}},
		"a loop":                   {files: []string{"l -> m", "m -> l"}, rules: []string{"hide l"}, paths: []string{"l"}, err: "too many levels of symbolic links"},
		"a link to itself below":   {files: []string{"l -> l/x"}, rules: []string{"hide l"}, paths: []string{"l"}, err: "too many levels"},
		"a grant through a link that the command could have made": {
			files: []string{"ws/l -> HOME/secret", "secret"}, rules: []string{"read ws/l"}, paths: []string{"ws/l"}, err: "leads through the link"},
		"a grant to write, likewise": {
			files: []string{"ws/d -> HOME/secret", "secret/"}, rules: []string{"write ws/d/x"}, paths: []string{"ws/d/x"}, err: "which the command could have made"},
		"a grant through a link that the workspace brings": {
			files: []string{"ws/d -> HOME/home/secret", "home/secret/"}, rules: []string{"read ws", "write ws/d"}, paths: []string{"ws/d"}, err: "leads through the link"},
		"one to read what the home hides, likewise": {
			files: []string{"ws/v/d -> HOME/home/secret", "home/secret/"}, rules: []string{"read ws/v", "read ws/v/d"}, paths: []string{"ws/v/d"}, err: "which is in the workspace"},
		"one that leads where as much is allowed": {
			files: []string{"ws/v/d -> ../e", "ws/e/"}, rules: []string{"read ws/v", "read ws/v/d"}, paths: []string{"ws/v/d"}, want: []string{"read link ws/v/d -> ../e", "read dir ws/e"}},
		"the control: the same link elsewhere is the user's": {
			files: []string{"v/d -> HOME/home/secret", "home/secret/"}, rules: []string{"write v/d"}, paths: []string{"v/d"}, want: []string{"write link v/d -> home/secret", "write dir home/secret"}},
		"hiding through such a link is no grant, and the link stays where it is": {
			files: []string{"ws/l -> HOME/secret", "secret"}, rules: []string{"hide ws/l"}, paths: []string{"ws/l"}, want: []string{"hide link ws/l pin -> secret", "hide file secret"}},
		"where it leads has a stricter rule": {
			files: []string{"l -> secret", "secret"}, rules: []string{"read l", "hide secret"}, paths: []string{"l", "secret"}, want: []string{"read link l -> secret", "hide file secret"}},
		"where it leads has a looser rule": {
			files: []string{"l -> open", "open"}, rules: []string{"hide l", "read open"}, paths: []string{"l", "open"}, want: []string{"hide link l -> open", "hide file open"}},
		"the home's own rule does not count": {
			files: []string{"l -> home/f", "home/f"}, rules: []string{"read l"}, paths: []string{"l"}, want: []string{"read link l -> home/f", "read file home/f"}},
		"twice, the stricter":   {files: []string{"f", "l -> f"}, rules: []string{"read f", "hide l"}, paths: []string{"f", "l"}, want: []string{"hide file f", "hide link l -> f"}},
		"a name of odd letters": {files: []string{"a b\n\\"}, rules: nil, paths: []string{"a b\n\\"}, want: []string{"read file a b\n\\"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newCountry(t, c.files, c.rules...)
			f := w.finder()
			for _, p := range c.paths {
				f.rule(w.path(p))
			}
			if c.err != "" {
				require.ErrorContains(t, f.err, c.err)
				return
			}
			require.Equal(t, c.want, w.found(f))
		})
	}
}

// A directory that the command's user could open again hides nothing.
//
//test:root
func TestResolveUnsearchable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user who is not root: root searches everything")
	}
	w := newCountry(t, []string{"closed/f"}, "hide closed/f")
	require.NoError(t, os.Chmod(w.path("closed"), 0))
	defer os.Chmod(w.path("closed"), 0o755)
	f := w.finder()
	f.rule(w.path("closed/f"))
	require.ErrorContains(t, f.err, "cannot be searched")
	f = w.finder()
	f.rule("/root/secret")
	require.NoError(t, f.err, "somebody else's is out of the command's reach too")
	require.Equal(t, Absent, f.places[0].Node)
}

func TestAnchorsFound(t *testing.T) {
	w := newCountry(t, []string{"ws/a/b/secret", "ws/c/f"}, "hide ws/a/b/secret", "read ws/c/f")
	f := w.finder()
	f.rule(w.path("ws/a/b/secret"))
	f.rule(w.path("ws/c/f"))
	f.anchors()
	require.Equal(t, []string{"hide file ws/a/b/secret", "read file ws/c/f", "write dir ws/a/b pin protect", "write dir ws/a pin protect", "write dir ws/c pin protect"}, w.found(f))
	f.anchor(w.path("gone"))
	require.ErrorIs(t, f.err, unix.ENOENT)
}

func TestProtectedOutsideTheWorkspace(t *testing.T) {
	w := newCountry(t, []string{"home/.agent/settings", "home/.agent/hooks/x", "home/.agent/l -> settings2", "elsewhere/f"}, "write home/.agent")
	w.policy.Protect = []profiles.ProtectRule{
		{Pattern: w.path("home/.agent/settings")}, {Pattern: w.path("home/.agent/hooks")}, {Pattern: w.path("home/.agent/gone")},
		{Pattern: w.path("elsewhere/f")}, {Pattern: w.path("ws/f")}, {Pattern: ".git/hooks"}, {Pattern: w.path("home/.agent/reviewed"), Review: true},
	}
	f := w.finder()
	f.protected()
	require.Equal(t, []string{"read file home/.agent/settings pin protect", "read dir home/.agent/hooks pin protect", "read absent home/.agent/gone protect"}, w.found(f))
}

func TestToolsShown(t *testing.T) {
	files := []string{"home/bin/tool", "home/kept/tool", "cache/f", "ws/x"}
	w := newCountry(t, files, "hide home/kept", "+hide home/cache")
	require.NoError(t, os.MkdirAll(w.path("home/cache"), 0o755))
	f := w.finder()
	f.tools(Tools{
		Show: []Tool{{w.path("home/bin"), "PATH"}, {w.path("home/kept"), "PATH"}, {w.path("ws"), "PATH"}, {w.path("home/cache"), "PATH"}},
	}, []string{w.path("home/kept/tool"), w.path("home/bin/tool")})
	require.Equal(t, []string{"read file home/bin/tool", "read dir home/bin", "read dir home/cache"}, w.found(f), "a rule of the user's own stands")
}

// listen binds a unix socket for the time of the test.
func listen(t *testing.T, path string) {
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
}

func TestSocketsAreCovered(t *testing.T) {
	t.Chdir("/") // paths of sockets are short
	w := newCountry(t, []string{"shown/", "home/d/"}, "read shown", "hide home/d")
	listen(t, w.path("shown/a b"))
	listen(t, w.path("shown/given"))
	listen(t, w.path("home/d/hidden"))
	listen(t, w.path("ws/agent"))
	listen(t, "@"+w.path("shown/abstract"))
	w.policy.Network.Sockets = []profiles.PathRule{{Path: w.path("shown/given")}}
	f := w.finder()
	require.NoError(t, f.sockets())
	require.ElementsMatch(t, []string{"read special shown/given", "hide special shown/a b optional", "hide special ws/agent optional"}, w.found(f))

	w.policy.Without = []profiles.Layer{profiles.LayerSockets}
	f = w.finder()
	require.NoError(t, f.sockets())
	require.Equal(t, []string{"read special shown/given"}, w.found(f), "control")
}

// TestServiceIsHidden: what a service listens at tomorrow is hidden today, unless a rule
// speaks of it.
func TestServiceIsHidden(t *testing.T) {
	for name, c := range map[string]struct {
		rule   string
		socket string
		want   []string
	}{
		"shown":             {"read shown", "", []string{"hide dir shown/pipes optional"}},
		"a rule names it":   {"read shown/pipes", "", nil},
		"hidden anyway":     {"hide shown", "", nil},
		"a socket is given": {"read shown", "shown/pipes/nss", nil},
	} {
		w := newCountry(t, []string{"shown/pipes/"}, c.rule)
		if c.socket != "" {
			w.policy.Network.Sockets = []profiles.PathRule{{Path: w.path(c.socket)}}
		}
		f := w.finder()
		require.Equal(t, c.want != nil, f.service(w.path("shown/pipes")), name)
		require.Equal(t, c.want, w.found(f), name)
		require.False(t, f.service(w.path("shown/none")), "there is none")
	}
}

// Anybody on the host can bind a socket, whatever its name does to the kernel's
// list.
func TestSocketsWithHostileNames(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") // short: a name has 108 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("f", nil, 0o644))
	require.NoError(t, os.MkdirAll("x\n0: 2 0 1 1 1 1 "+dir, 0o755))
	require.NoError(t, os.Mkdir("y\n", 0o755))
	for _, name := range []string{"x\n0: 2 0 1 1 1 1 " + dir + "/f", "y\n/s", "\n", " "} {
		listen(t, name)
	}
	w := newCountry(t, nil)
	f := w.finder()
	require.NoError(t, f.sockets())
	w.found(f)
	for _, p := range f.places {
		require.NotEqual(t, filepath.Join(dir, "f"), p.Path, "a file is no socket")
	}
}

// Nor may it stop everybody's launch by a path that leads nowhere, or by
// thousands of sockets.
func TestSocketsOfAStranger(t *testing.T) {
	t.Chdir("/")
	w := newCountry(t, []string{"shown/x/", "shown/y/"}, "read shown")
	listen(t, w.path("shown/x/s"))
	require.NoError(t, os.Remove(w.path("shown/x/s")))
	require.NoError(t, os.Remove(w.path("shown/x")))
	require.NoError(t, os.Symlink("x", w.path("shown/x")))
	listen(t, w.path("shown/y/s"))
	f := w.finder()
	require.NoError(t, f.sockets())
	require.Equal(t, []string{"hide special shown/y/s optional"}, w.found(f))

	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("/srv/a/%d", i), fmt.Sprintf("/w/sub/%d", i), fmt.Sprintf("/srv/b/%d/s", i))
	}
	got := crowd(slices.Clone(many), 256, func(dir string) bool { return dir == "/srv" || Below(dir, "/w") })
	require.Len(t, got, 1002)
	require.Equal(t, []string{"/srv/a", "/srv/b"}, got[:2])
	require.Equal(t, "/w/sub/0", got[2], "what the command works in stays open")
	require.Equal(t, many[:3], crowd(many[:3], 3, nil), "few are covered one by one")
}

func TestTightenedTables(t *testing.T) {
	w := newCountry(t, nil, "hide ws *.key", "hide elsewhere *.key")
	f := w.finder()
	f.patterns(w.policy.Files[:4])
	require.NoError(t, f.err, "control: within the workspace")
	f.patterns(w.policy.Files)
	var pattern *hint.Error
	require.ErrorAs(t, f.err, &pattern)
	require.ErrorContains(t, f.err, w.path("elsewhere")+"/*.key: patterns work only in the workspace")
	require.Equal(t, "name the directory itself: "+w.path("elsewhere"), pattern.Hint())
}

//test:root
func TestSetIDs(t *testing.T) {
	w := newCountry(t, []string{"ws/d/plain", "ws/d/setgid", "ws/d/setuid", "ws/l -> d/setuid"})
	require.NoError(t, os.Chmod(w.path("ws/d/setuid"), 0o755|os.ModeSetuid))
	require.NoError(t, os.Chmod(w.path("ws/d/setgid"), 0o755|os.ModeSetgid))
	f := w.finder()
	require.NoError(t, f.setIDs())
	require.Equal(t, []string{"read file ws/d/setgid pin protect", "read file ws/d/setuid pin protect"}, w.found(f))
	w.policy.Workspace = w.path("gone")
	require.Error(t, w.finder().setIDs())
}

// TestSetIDsDeep: a tree deeper than the kernel takes a path stops no launch, and a program far down is found.
//
//test:root
func TestSetIDsDeep(t *testing.T) {
	w := newCountry(t, []string{"ws/d/plain"})
	program := "ws" + strings.Repeat("/e", maxDirectories+8)
	require.NoError(t, os.MkdirAll(w.path(program), 0o755))
	require.NoError(t, os.WriteFile(w.path(program+"/setuid"), nil, 0o755))
	require.NoError(t, os.Chmod(w.path(program+"/setuid"), 0o755|os.ModeSetuid))
	deep, err := os.OpenRoot(w.path("ws"))
	require.NoError(t, err)
	for range 3000 {
		require.NoError(t, deep.Mkdir("deep", 0o755))
		next, err := deep.OpenRoot("deep")
		require.NoError(t, err)
		deep.Close()
		deep = next
	}
	_, err = os.Stat(w.path("ws" + strings.Repeat("/deep", 3000)))
	require.ErrorIs(t, err, unix.ENAMETOOLONG, "control")
	f := w.finder()
	require.NoError(t, f.setIDs())
	require.Equal(t, []string{"read file " + program + "/setuid pin protect"}, w.found(f))

	require.NoError(t, deep.WriteFile("setuid", nil, 0o755))
	require.NoError(t, deep.Chmod("setuid", 0o755|os.ModeSetuid))
	deep.Close()
	f = w.finder()
	require.NoError(t, f.setIDs(), "nothing can be mounted on it, and no launch is refused for it")
	shut := w.path("ws")
	for strings.Count(shut, "/") < maxDirectories {
		shut += "/deep"
	}
	require.Contains(t, w.found(f), "read dir ws"+strings.TrimPrefix(shut, w.path("ws"))+" pin protect")
}

// TestSetIDsOfLongNames: directories with the longest names, and no more than are shared, stop no launch either.
//
//test:root
func TestSetIDsOfLongNames(t *testing.T) {
	w := newCountry(t, []string{"ws/d/plain"})
	long := strings.Repeat("n", unix.NAME_MAX)
	in, err := os.OpenRoot(w.path("ws"))
	require.NoError(t, err)
	for range 20 {
		require.NoError(t, in.Mkdir(long, 0o755))
		next, err := in.OpenRoot(long)
		require.NoError(t, err)
		in.Close()
		in = next
	}
	require.NoError(t, in.WriteFile("setuid", nil, 0o755))
	require.NoError(t, in.Chmod("setuid", 0o755|os.ModeSetuid))
	in.Close()
	f := w.finder()
	require.NoError(t, f.setIDs())
	found := w.found(f)
	require.Len(t, found, 1)
	require.Regexp(t, "^read dir ws/n.* pin protect$", found[0])
}

// Wherever the command may write, not only in the workspace.
//
//test:root
func TestSetIDsElsewhere(t *testing.T) {
	w := newCountry(t, []string{"ws/f", "elsewhere/d/setuid", "single", "other/setuid"}, "write elsewhere", "write single", "read other")
	for _, name := range []string{"elsewhere/d/setuid", "single", "other/setuid"} {
		require.NoError(t, os.Chmod(w.path(name), 0o755|os.ModeSetuid))
	}
	f := w.finder()
	for _, r := range w.policy.Files {
		f.rule(r.Path)
	}
	require.NoError(t, f.setIDs())
	pinned := 0
	for _, p := range f.places {
		if p.Pin {
			require.Equal(t, profiles.Read, p.Access)
			require.Contains(t, []string{w.path("elsewhere/d/setuid"), w.path("single")}, p.Path)
			pinned++
		}
	}
	require.Equal(t, 2, pinned)
}

//test:root
func TestCapabilitiesOfFiles(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it gives a file capabilities")
	}
	w := newCountry(t, []string{"ws/plain", "ws/able"})
	require.NoError(t, os.Chmod(w.path("ws/able"), 0o755))
	require.NoError(t, os.Chmod(w.path("ws/plain"), 0o755))
	capability := make([]byte, 20)
	capability[3], capability[4] = 0x02, 0x80 // vfs_cap_data: version 2; CAP_SETUID
	require.NoError(t, unix.Setxattr(w.path("ws/able"), "security.capability", capability, 0))
	f := w.finder()
	require.NoError(t, f.setIDs())
	require.Equal(t, []string{"read file ws/able pin protect"}, w.found(f))
}

func TestWorkspaceScanned(t *testing.T) {
	w := newCountry(t, []string{"ws/.env", "ws/sub/.env", "ws/.envrc", "ws/main.go"}, "hide ws **/.env")
	w.policy.Protect = []profiles.ProtectRule{{Pattern: ".envrc"}, {Pattern: ".git/hooks"}, {Pattern: ".git/config"}}
	require.NoError(t, exec.Command("git", "init", "-q", w.policy.Workspace).Run())
	f := w.finder()
	scanned, err := workspace.Scan(workspace.Query{Root: w.policy.Workspace, Files: w.policy.Files, Protect: w.policy.Protect})
	require.NoError(t, err)
	f.workspace(scanned)
	found := w.found(f)
	for _, want := range []string{"hide file ws/.env", "hide file ws/sub/.env", "read file ws/.envrc pin protect", "read dir ws/.git/hooks pin protect", "read file ws/.git/config pin protect"} {
		require.Contains(t, found, want)
	}
	w.policy.Workspace = w.path("gone")
	_, err = Look(w.policy, Options{Getenv: os.Getenv})
	require.Error(t, err)
}

// A link that somebody planted hides no more than files of a project.
func TestPlantedLinks(t *testing.T) {
	for target, want := range map[string]string{
		"/": "this rule does not hide", "/usr": "this rule does not hide", "/usr/bin": "this rule does not hide", "/etc": "this rule does not hide", "/proc/self": "this rule does not hide", "/dev/null": "this rule does not hide",
		".": "this rule does not hide", "..": "this rule does not hide", "../home": "this rule does not hide",
		"../other": "is hidden, since", "../other/file": "is hidden, since", "/etc/passwd": "is hidden, since", "sub": "", "sub/file": "", "/nonexistent": "",
	} {
		w := newCountry(t, []string{"ws/sub/file", "other/file"}, "hide ws **/.env*")
		require.NoError(t, os.Symlink(target, w.path("ws/.envlink")))
		f := w.finder()
		scanned, err := workspace.Scan(workspace.Query{Root: w.policy.Workspace, Files: w.policy.Files, Protect: w.policy.Protect})
		require.NoError(t, err)
		f.workspace(scanned)
		notes := strings.Join(f.notes, "\n")
		if want == "" {
			require.Empty(t, notes, target)
			continue
		}
		require.Contains(t, notes, want, target)
		require.Contains(t, notes, w.path("ws/.envlink"), target)
		kept := want == "this rule does not hide"
		real := filepath.Join(w.path("ws"), target)
		if filepath.IsAbs(target) {
			real = target
		}
		for _, p := range f.places {
			require.False(t, kept && p.Access == profiles.Hide && p.Node != Link, "%s: %s", target, p.Path)
			if p.Path == real {
				require.Equal(t, profiles.Hide, p.Access)
			}
		}
	}
}

// A directory that a rule names is shown, whatever link of a hidden name leads there.
func TestNamedBehindALink(t *testing.T) {
	for rule, want := range map[string]profiles.Access{"read ws/sub": profiles.Read, "read ws/sub/in": profiles.Hide} {
		w := newCountry(t, []string{"ws/sub/in/file"}, "hide ws **/.env*", rule)
		require.NoError(t, os.Symlink("sub", w.path("ws/.envlink")))
		f := w.finder()
		f.rule(w.policy.Files[len(w.policy.Files)-1].Path)
		found, err := workspace.Scan(workspace.Query{Root: w.policy.Workspace, Files: w.policy.Files, Protect: w.policy.Protect})
		require.NoError(t, err)
		f.workspace(found)
		require.Equal(t, want, f.places[f.seen[w.path("ws/sub")]].Access, rule)
	}
}

// What a user's rule names and is not there is said to be so.
func TestAbsent(t *testing.T) {
	for rule, want := range map[string]string{
		"hide ws/later": "if it appears during the run it is not hidden", "read ws/later": "can create and write", "hide elsewhere/later": "if it appears during the run it is not hidden",
		"write ws/later": "", "read elsewhere/later": "does not exist and is not shown", "read home/later": "does not exist and is not shown", "hide home/later": "", "+hide ws/later": "", "hide ws/there": "",
	} {
		w := newCountry(t, []string{"ws/there", "elsewhere/x"}, rule)
		f := w.finder()
		f.rule(w.policy.Files[len(w.policy.Files)-1].Path)
		require.Equal(t, strings.Contains(want, "hidden"), f.absent(), rule)
		require.NoError(t, f.err)
		if want == "" {
			require.Empty(t, f.notes, rule)
		} else {
			require.Len(t, f.notes, 1, rule)
			require.Contains(t, f.notes[0], want)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	for kind, want := range map[workspace.Kind]Node{workspace.File: File, workspace.Dir: Directory, workspace.Link: Link, workspace.Special: Special} {
		p := placeOf(workspace.Node{Path: "/x", Kind: kind, Dev: unix.Mkdev(8, 1), Ino: 7}, Place{Access: profiles.Read})
		require.Equal(t, Place{Path: "/x", Node: want, Dev: 8<<32 | 1, Ino: 7, Access: profiles.Read}, p)
	}
}

// A policy as it is made, on a host as it is.
func TestLook(t *testing.T) {
	w := newCountry(t, []string{"ws/f", "home/tools/x", "home/secret", "ws/.env"})
	look := func(change func(*profiles.Request)) (*Survey, error) {
		req := profiles.Request{Workspace: w.policy.Workspace, Host: profiles.Host{UID: os.Getuid(), Home: w.policy.Home, Cwd: w.policy.Workspace, Memory: 1 << 30, Environ: []string{"HOME=" + w.policy.Home, "PATH=/usr/bin"}}}
		change(&req)
		p, err := profiles.Resolve(req)
		require.NoError(t, err)
		return Look(p, Options{Getenv: req.Host.Getenv, Command: []string{w.path("home/tools/x")}})
	}
	s, err := look(func(*profiles.Request) {})
	require.NoError(t, err)
	found := w.describe(s.Places)
	for _, want := range []string{"private dir home", "read file home/tools/x", "write dir ws", "hide file ws/.env"} {
		require.Contains(t, found, want)
	}

	_, err = look(func(r *profiles.Request) {
		r.Files = []profiles.FileFlag{{Path: w.path("home/*.key"), Access: profiles.Hide}}
	})
	require.ErrorContains(t, err, "patterns work only in the workspace")
	p := *w.policy
	p.Workspace = "/proc/self"
	_, err = Look(&p, Options{Getenv: os.Getenv})
	require.EqualError(t, err, "workspace /proc/self: the sandbox replaces /proc")
}

func TestMountinfo(t *testing.T) {
	const text = `22 1 0:21 / /proc rw - proc proc rw
30 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
31 30 8:2 /@home /home rw - btrfs /dev/sdb rw
32 30 8:2 /@home/u /mnt/a\040b\134c rw - btrfs /dev/sdb rw
33 30 8:3 / /home/u/x rw - ext4 x rw
34 33 8:4 / /home/u/x rw - ext4 x rw
odd
`
	mounts := parseMountinfo(text)
	require.Len(t, mounts, 6)
	require.Equal(t, mountpoint{"8:2", "/@home/u", `/mnt/a b\c`}, mounts[3])
	for path, device := range map[string]string{"/etc": "8:1", "/home/u": "8:2", "/home/u/x/y": "8:4", "/homes": "8:1", "/proc/1": "0:21"} {
		require.Equal(t, device, mountOf(mounts, path).device, path)
	}
	for text, want := range map[string]string{`a\040`: "a ", `\`: `\`, `\04`: "\x04", `\999`: `\999`, `x\134040`: `x\040`, "": ""} {
		require.Equal(t, want, Unescape(text), text)
	}
}

func FuzzMountinfo(f *testing.F) {
	f.Add("32 30 8:2 /@home/u /mnt/a\\040b\\134c rw - btrfs /dev/sdb rw\n")
	f.Add("\\ \\ \\ \\ \\0 \\")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range parseMountinfo(text) {
			require.LessOrEqual(t, len(m.root)+len(m.target), len(text))
		}
	})
}

// otherMounts binds the home of a country to a second place, in a mount
// namespace of its own, and prints what of it is covered.
func otherMounts(root string) error {
	p := &profiles.Policy{Home: root + "/home", Workspace: root + "/ws", Files: []profiles.FileRule{
		{Path: "/", Access: profiles.Read, Origin: profiles.Origin{Source: "default"}}, {Path: root + "/home", Access: profiles.Private, Origin: profiles.Origin{Source: "default"}}, {Path: root + "/home/shown", Access: profiles.Read},
		{Path: root + "/f", Access: profiles.Hide}, {Path: root + "/disk/open", Access: profiles.Read, Origin: profiles.Origin{Source: "flag --read"}},
		{Path: root + "/named", Access: profiles.Write, Origin: profiles.Origin{Source: "flag --write"}}, {Path: root + "/f2", Access: profiles.Read, Origin: profiles.Origin{Source: "flag --read"}},
		{Path: root + "/around", Access: profiles.Read, Origin: profiles.Origin{Source: "flag --read"}},
	}}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, m := range [][2]string{{".", "around"}, {"home", "second"}, {"home/deep", "third"}, {"f", "g"}, {"f", "f2"}, {"home/deep", "named"}, {"disk/documents", "home/documents"}, {"disk/open", "home/open"}, {"/usr", "home/usr"}, {"disk/tool", "home/shown"}} {
		if !filepath.IsAbs(m[0]) {
			m[0] = root + "/" + m[0]
		}
		if err := unix.Mount(m[0], root+"/"+m[1], "", unix.MS_BIND|unix.MS_REC, ""); err != nil { // /usr with what is mounted in it: user_namespaces(7)
			return err
		}
	}
	f := newFinder(p)
	f.own = root + "/home/deep/state"
	f.rule(root + "/home")
	f.rule(root + "/f")
	table, err := procfs.Read("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	mountAliases{&f.paths, parseMountinfo(string(table))}.hide()
	for _, place := range f.places {
		reach := ""
		if place.Optional {
			reach = ", if in reach"
		}
		fmt.Println(place.Access, strings.TrimPrefix(place.Path, root+"/")+reach)
	}
	for _, note := range f.notes {
		fmt.Println(strings.ReplaceAll(note, root+"/", ""))
	}
	return f.err
}

// A rule that names another mount shows it, where only the defaults hide what it is of,
// and nothing of what pccrun keeps; one that names what lies around it does not.
// A second place that only root may enter is out of the command's reach, and
// out of that of the process that mounts for it.
//
//test:root
func TestAliases(t *testing.T) {
	w := newCountry(t, []string{"home/deep/f", "home/deep/state/", "second/", "third/", "named/", "around/", "f", "f2", "g", "disk/documents/", "disk/open/", "disk/tool/", "home/documents/", "home/open/", "home/usr/", "home/shown/"})
	cmd := self(t, w.root)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	documents := "hide disk/documents"
	if os.Getuid() == 0 {
		documents += ", if in reach"
		for _, dir := range []string{"documents", "open", "tool"} {
			require.NoError(t, os.Chown(w.root+"/disk/"+dir, 4711, 4711))
		}
		require.NoError(t, os.Chmod(w.root+"/disk", 0o700))
	} else {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}} // not root, whose own is no secret
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.ElementsMatch(t, []string{"private home", "hide f", "hide second", "hide third", "hide g", documents,
		"hide f2", "f2 is hidden: it is another mount of f", "hide named/state", "hide around/home", "hide around/f"}, strings.Split(strings.TrimSpace(string(out)), "\n"))
}

// What is hidden where root alone gets to is out of reach anyway; in what is lent
// to the command, whose owner is changed, it is not.
//
//test:root
func TestBeyond(t *testing.T) {
	w := newCountry(t, []string{"shut/f", "shut/d/", "open/f", "ws/shut/f", "home/shut/f"},
		"read shut", "hide shut/f", "hide shut/d", "hide open/f", "hide ws/shut/f", "read home/shut", "hide home/shut/f")
	optional := ""
	if os.Getuid() == 0 {
		optional = " optional"
	}
	for _, dir := range []string{"shut", "ws/shut", "home/shut"} {
		require.NoError(t, os.Chmod(w.path(dir), 0o700))
	}
	f := w.finder()
	for _, path := range []string{"shut/f", "shut/d", "open/f", "ws/shut/f", "home/shut/f"} {
		f.rule(w.path(path))
	}
	require.Equal(t, []string{"hide file shut/f" + optional, "hide dir shut/d" + optional, "hide file open/f", "hide file ws/shut/f", "hide file home/shut/f"}, w.found(f))
}

// A link of somebody else's in a directory where everybody may make names leads
// where that one likes; one in a directory of his own is his to make.
//
//test:root
func TestResolvePlanted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for name, c := range map[string]struct {
		mode   os.FileMode
		owner  int
		access string
		err    string
	}{
		"somebody's":               {0o1777, 4711, "write", "which uid 4711 made in a directory that everybody can write"},
		"somebody's, to be hidden": {0o1777, 4711, "hide", ""},
		"the caller's":             {0o1777, 0, "write", ""},
		"in a directory of his":    {0o755, 4711, "write", ""},
	} {
		w := newCountry(t, []string{"t/l -> HOME/home/secret", "home/secret/"}, c.access+" t/l")
		require.NoError(t, os.Chmod(w.path("t"), 0o777))
		require.NoError(t, unix.Chmod(w.path("t"), uint32(c.mode.Perm())|uint32(c.mode)&0o1000))
		require.NoError(t, os.Lchown(w.path("t/l"), c.owner, c.owner))
		f := w.finder()
		f.rule(w.path("t/l"))
		if c.err == "" {
			require.NoError(t, f.err, name)
			continue
		}
		require.ErrorContains(t, f.err, c.err, name)
	}
}

func FuzzNamesOfSockets(f *testing.F) {
	f.Add("Num       RefCount Protocol Flags    Type St Inode Path\n0000000000000000: 00000002 00000000 00010000 0001 01 21190 /run/a b\n0: 2 0 0 1 1 1 @/x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range namesOfSockets(text) {
			require.True(t, filepath.IsAbs(name), name)
			require.NotContains(t, name, "\n")
			require.Contains(t, text, " "+name)
		}
	})
}
