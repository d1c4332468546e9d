package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// git runs the real git with no configuration but the repository's.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = append(fixture.GitEnv(t), "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// newRepo makes a repository with one commit in dir.
func newRepo(t testing.TB, dir string, args ...string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	git(t, dir, append([]string{"init", "-q", "-b", "main"}, args...)...)
	fixture.Write(t, filepath.Join(dir, "README"), "hello\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-qm", "first")
	return dir
}

func scanOf(t testing.TB, q Query) *Found {
	t.Helper()
	f, err := Scan(q)
	require.NoError(t, err)
	return f
}

func hide(root string, globs ...string) []profiles.FileRule {
	var all []profiles.FileRule
	for _, glob := range globs {
		all = append(all, profiles.FileRule{Path: root, Glob: glob, Access: profiles.Hide})
	}
	return all
}

// relative cuts the root off, so that expectations can be written down.
func relative(t testing.TB, root string, paths []string) []string {
	t.Helper()
	out := []string{}
	for _, p := range paths {
		if rest, ok := beneath.Path(root, p); ok {
			p = rest
		}
		out = append(out, p)
	}
	return out
}

func pinPaths(t testing.TB, root string, f *Found) []string {
	t.Helper()
	var all []string
	for _, p := range f.Pins {
		all = append(all, p.Path)
	}
	return relative(t, root, all)
}

func matchPaths(t testing.TB, root string, f *Found) []string {
	t.Helper()
	var all []string
	for _, m := range f.Matches {
		all = append(all, m.Path)
	}
	return relative(t, root, all)
}

func TestScanRepository(t *testing.T) {
	root := newRepo(t, fixture.Dir(t))
	fixture.Write(t, root+"/.git/info/attributes", "*.x filter=y\n")
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{".git/config", ".git/hooks", ".git/info/attributes"}, pinPaths(t, root, f))
	require.Equal(t, []string{".git", ".git/info"}, relative(t, root, f.Anchors))
	require.Equal(t, []string{".git/commondir"}, relative(t, root, f.Vacant))
	require.Equal(t, map[string]string{root + "/.git/config.worktree": root + "/.git/config"}, f.forGuard.stood.Late)
	require.Empty(t, f.Common)
	require.Empty(t, f.Notes)
	for _, p := range f.Pins {
		info, err := os.Lstat(p.Path)
		require.NoError(t, err)
		require.Equal(t, info.IsDir(), p.Kind == Dir)
		require.NotZero(t, p.Ino)
		require.True(t, strings.HasPrefix(p.Why, ".git/"), p.Why)
	}
}

func TestScanNoRepository(t *testing.T) {
	root := fixture.Dir(t)
	fixture.Write(t, root+"/a/b", "")
	f := scanOf(t, Query{Root: root})
	require.Empty(t, f.Pins)
	require.Empty(t, f.Anchors)
	require.Equal(t, Stats{Dirs: 2, Read: 2, Entries: 2}, f.Stats)
}

func TestScanReviewMovesGit(t *testing.T) {
	root := newRepo(t, fixture.Dir(t))
	f := scanOf(t, Query{Root: root, Protect: fixture.Review(".git/config")})
	require.Equal(t, []string{".git/hooks"}, pinPaths(t, root, f))
	require.Len(t, f.Review, 1)
	require.Equal(t, root+"/.git/config", f.Review[0].Path)
	require.NotZero(t, f.Review[0].Ino)
}

func TestScanWorktreeInside(t *testing.T) {
	root := newRepo(t, fixture.Dir(t))
	git(t, root, "config", "extensions.worktreeConfig", "true")
	git(t, root, "worktree", "add", "-q", "-b", "side", "trees/side")
	git(t, root+"/trees/side", "config", "--worktree", "core.hooksPath", "my hooks")
	fixture.Write(t, root+"/trees/side/my hooks/pre-commit", "#!/bin/sh\n")
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{".git/config", ".git/hooks", ".git/worktrees/side/commondir", ".git/worktrees/side/config.worktree", "trees/side/.git", "trees/side/my hooks"}, pinPaths(t, root, f))
	require.Equal(t, []string{".git", ".git/worktrees", ".git/worktrees/side", "trees", "trees/side"}, relative(t, root, f.Anchors))
	require.True(t, f.Pins[3].Private)
}

func TestScanWorktreeOutside(t *testing.T) {
	top := fixture.Dir(t)
	main := newRepo(t, top+"/main")
	root := top + "/side"
	git(t, main, "worktree", "add", "-q", "-b", "side", root)
	git(t, main, "worktree", "add", "-q", "-b", "other", top+"/other")
	git(t, main, "config", "core.hooksPath", "tools/hooks")
	fixture.Write(t, root+"/tools/hooks/pre-commit", "#!/bin/sh\n")
	f := scanOf(t, Query{Root: root})
	gitDir := main + "/.git"
	own := gitDir + "/worktrees/side"
	require.Equal(t, []Common{{Path: gitDir, GitDir: own, Write: []string{own, gitDir + "/objects", gitDir + "/refs", gitDir + "/logs"}, sure: true}}, f.Common)
	require.Equal(t, []string{gitDir + "/config", own + "/commondir", ".git", "tools/hooks"}, pinPaths(t, root, f))
	require.True(t, f.Pins[0].Private)
	require.Equal(t, map[string]string{own + "/config.worktree": gitDir + "/config"}, f.forGuard.stood.Late)
	require.Equal(t, []string{"tools"}, relative(t, root, f.Anchors))
	require.Empty(t, f.Notes)
	require.Contains(t, f.Vacant, own+"/modules")
	require.Equal(t, []string{own}, f.Standing("x", Query{Root: root}).GitDirs)

	// Nobody looks through submodules out there: they stay as they are.
	require.NoError(t, os.Mkdir(own+"/modules", 0o755))
	withModules := scanOf(t, Query{Root: root})
	require.Equal(t, []string{gitDir + "/config", own + "/commondir", own + "/modules", ".git", "tools/hooks"}, pinPaths(t, root, withModules))
	require.NotContains(t, withModules.Vacant, own+"/modules")
	require.NoError(t, os.Remove(own+"/modules"))

	// What the list says a commit writes is all that it writes.
	before := snapshot(t, gitDir)
	fixture.Write(t, root+"/new", "x")
	git(t, root, "add", ".")
	git(t, root, "-c", "core.hooksPath=", "commit", "-qm", "second")
	for path := range changes(before, snapshot(t, gitDir)) {
		in := false
		for _, w := range f.Common[0].Write {
			_, ok := beneath.Path(w, path)
			in = in || ok
		}
		require.True(t, in, "a commit wrote %s", path)
	}
}

// snapshot returns the mode, size and modification time of all below dir.
func snapshot(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		all[path] = info.Mode().String() + info.ModTime().String()
		return nil
	}))
	return all
}

func changes(before, after map[string]string) map[string]bool {
	out := map[string]bool{}
	for path, state := range after {
		if before[path] != state {
			out[path] = true
		}
	}
	return out
}

func TestScanWorktreeForged(t *testing.T) {
	for name, forge := range map[string]func(t *testing.T, top, root string) string{
		"a directory of secrets": func(t *testing.T, top, root string) string {
			fixture.Write(t, top+"/secret/id", "key")
			return top + "/secret"
		},
		"a repository that does not point back": func(t *testing.T, top, root string) string {
			return newRepo(t, top+"/other") + "/.git"
		},
		"another's worktree": func(t *testing.T, top, root string) string {
			other := newRepo(t, top+"/other")
			git(t, other, "worktree", "add", "-q", "-b", "side", top+"/side")
			return other + "/.git/worktrees/side"
		},
		"a commondir that leads elsewhere": func(t *testing.T, top, root string) string {
			other := newRepo(t, top+"/other")
			fixture.Write(t, top+"/fake/commondir", other+"/.git\n")
			fixture.Write(t, top+"/fake/gitdir", root+"/.git\n")
			fixture.Write(t, top+"/fake/HEAD", "ref: refs/heads/main\n")
			return top + "/fake"
		},
		"above the workspace": func(t *testing.T, top, root string) string {
			fixture.Write(t, top+"/HEAD", "ref: refs/heads/main\n")
			return ".."
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := fixture.Dir(t)
			root := top + "/ws"
			require.NoError(t, os.Mkdir(root, 0o755))
			fixture.Write(t, root+"/.git", "gitdir: "+forge(t, top, root)+"\n")
			f := scanOf(t, Query{Root: root})
			require.Empty(t, f.Common)
			require.Len(t, f.Notes, 1)
			require.Contains(t, f.Notes[0], "and is not shown")
			require.Equal(t, []string{".git"}, pinPaths(t, root, f))
		})
	}
}

// What root lends to be written to is lent as its owner's: the owner of a repository must not
// give another's directory a name of git's.
//
//test:root
func TestScanWorktreeOwners(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	top := fixture.Dir(t)
	common := newRepo(t, top+"/repo") + "/.git"
	root := top + "/side"
	git(t, top+"/repo", "worktree", "add", "-q", "-b", "side", root)
	for _, dir := range []string{root, common} {
		require.NoError(t, exec.Command("chown", "-R", "4711:4711", dir).Run())
	}
	require.NotEmpty(t, scanOf(t, Query{Root: root}).Common, "control")
	for _, name := range []string{"objects", "refs", "logs", "worktrees/side"} {
		require.NoError(t, os.Chown(common+"/"+name, 4712, 4712))
		f := scanOf(t, Query{Root: root})
		require.Empty(t, f.Common, name)
		require.Contains(t, f.Notes[0], "which belongs in part to somebody else, and is not shown")
		require.NoError(t, os.Chown(common+"/"+name, 4711, 4711))
	}
}

func TestScanSubmodules(t *testing.T) {
	top := fixture.Dir(t)
	lib := newRepo(t, top+"/lib")
	root := newRepo(t, top+"/ws")
	git(t, root, "submodule", "--quiet", "add", lib, "deep/lib")
	git(t, root, "commit", "-qm", "sub")
	fixture.Write(t, root+"/.git/modules/deep/lib/info/attributes", "")
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{
		".git/config", ".git/hooks", ".git/modules/deep/lib/config", ".git/modules/deep/lib/hooks",
		".git/modules/deep/lib/info/attributes", "deep/lib/.git",
	}, pinPaths(t, root, f))
	require.Contains(t, relative(t, root, f.Anchors), ".git/modules/deep/lib")
	require.Contains(t, relative(t, root, f.Anchors), "deep/lib")
	for _, p := range f.Pins { // git writes these
		name := strings.TrimPrefix(p.Path, root+"/")
		require.Equal(t, strings.HasSuffix(name, "/config") || name == "deep/lib/.git", p.Private, name)
		require.Equal(t, p.Private, p.Text != "", name)
	}

	// The submodule alone as a workspace: its git directory lies outside.
	f = scanOf(t, Query{Root: root + "/deep/lib"})
	gitDir := root + "/.git/modules/deep/lib"
	require.Equal(t, []Common{{Path: gitDir, GitDir: gitDir, Write: []string{gitDir}, sure: true}}, f.Common)
	require.Equal(t, []string{gitDir + "/config", gitDir + "/hooks", gitDir + "/info/attributes", ".git"}, pinPaths(t, root+"/deep/lib", f))
	require.Equal(t, []string{gitDir + "/info"}, f.Anchors)
}

// A copy is of what the command may read itself: root's is a stranger to what is not the
// owner's of the tree.
//
//test:root
func TestScanCopiesWhatTheCommandMayRead(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := newRepo(t, fixture.Dir(t)+"/ws")
	config := root + "/.git/modules/m/config"
	git(t, root, "init", "-q", "--bare", filepath.Dir(config))
	require.NoError(t, os.Chown(root, 4711, 4711))
	for _, c := range []struct {
		uid, gid int
		mode     os.FileMode
		copied   bool
	}{{4711, 4711, 0o600, true}, {0, 0, 0o644, true}, {0, 0, 0o600, false}, {0, 4711, 0o600, false}, {0, 4711, 0o640, true}, {4711, 4711, 0o044, false}} {
		require.NoError(t, os.Chown(config, c.uid, c.gid))
		require.NoError(t, os.Chmod(config, c.mode))
		i := slices.IndexFunc(scanOf(t, Query{Root: root}).Pins, func(p Pin) bool { return p.Path == config })
		require.Equal(t, c.copied, scanOf(t, Query{Root: root}).Pins[i].Private, "%+v", c)
	}
}

func TestScanBareAndNested(t *testing.T) {
	root := fixture.Dir(t)
	git(t, root, "init", "-q", "--bare", "store/x.git")
	git(t, root, "init", "-q", "--bare", "odd") // a bare repository needs no name
	newRepo(t, root+"/sub/project")
	newRepo(t, root+"/sub/project/vendor/inner")
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{
		"odd/config", "odd/hooks", "store/x.git/config", "store/x.git/hooks",
		"sub/project/.git/config", "sub/project/.git/hooks",
		"sub/project/vendor/inner/.git/config", "sub/project/vendor/inner/.git/hooks",
	}, pinPaths(t, root, f))

	// The workspace's own root as a bare repository.
	f = scanOf(t, Query{Root: root + "/odd"})
	require.Equal(t, []string{"config", "hooks"}, pinPaths(t, root+"/odd", f))

	// A worktree of a bare repository beside it.
	git(t, root+"/sub/project", "push", "-q", root+"/store/x.git", "main")
	git(t, root+"/store/x.git", "worktree", "add", "-q", root+"/tree", "main")
	f = scanOf(t, Query{Root: root})
	require.Contains(t, pinPaths(t, root, f), "tree/.git")
	require.Contains(t, pinPaths(t, root, f), "store/x.git/worktrees/tree/commondir")
}

func TestScanSeparateGitDir(t *testing.T) {
	root := fixture.Dir(t)
	newRepo(t, root+"/w", "--separate-git-dir", root+"/meta")
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{"meta/config", "meta/hooks", "w/.git"}, pinPaths(t, root, f))
}

func TestScanGitLinked(t *testing.T) {
	root := fixture.Dir(t)
	newRepo(t, root+"/w")
	require.NoError(t, os.Rename(root+"/w/.git", root+"/meta"))
	fixture.Link(t, "../links/meta", root+"/w/.git")
	fixture.Link(t, "../meta", root+"/links/meta")
	require.Equal(t, "first", git(t, root+"/w", "log", "--format=%s")) // git follows it too
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{"links/meta", "meta/config", "meta/hooks", "w/.git"}, pinPaths(t, root, f))
	require.Equal(t, Link, f.Pins[0].Kind)
	require.Equal(t, []string{"links", "meta", "w"}, relative(t, root, f.Anchors))
}

// What a configuration executes or includes from within the workspace is
// protected like the configuration itself. Git itself is the witness that each
// spelling means what the scan takes it for.
func TestScanConfigured(t *testing.T) {
	for name, c := range map[string]struct {
		set   [][]string
		files []string
		links map[string]string
		want  []string
	}{
		"hooks":            {set: [][]string{{"core.hooksPath", ".githooks"}}, files: []string{".githooks/pre-commit"}, want: []string{".githooks"}},
		"hooks, absolute":  {set: [][]string{{"core.hooksPath", "@/h"}}, files: []string{"h/pre-commit"}, want: []string{"h"}},
		"hooks, link":      {set: [][]string{{"core.hooksPath", "h"}}, links: map[string]string{"h": "real/hooks"}, files: []string{"real/hooks/x"}, want: []string{"h", "real/hooks"}},
		"a hook's link":    {links: map[string]string{".git/hooks/pre-commit": "../../scripts/check"}, files: []string{"scripts/check"}, want: []string{"scripts/check"}},
		"configured link":  {set: [][]string{{"core.hooksPath", "h"}}, links: map[string]string{"h/pre-commit": "../scripts/check"}, files: []string{"scripts/check"}, want: []string{"h", "scripts/check"}},
		"git-lfs":          {set: [][]string{{"lfs.customtransfer.x.path", "./tools/agent"}}, files: []string{"tools/agent"}, want: []string{"tools/agent"}},
		"git-annex":        {set: [][]string{{"annex.freezecontent-command", "./tools/freeze %path"}}, files: []string{"tools/freeze"}, want: []string{"tools/freeze"}},
		"git-flow":         {set: [][]string{{"gitflow.path.hooks", "flow"}}, files: []string{"flow/pre-flow-feature-start"}, want: []string{"flow"}},
		"an address":       {set: [][]string{{"remote.o.url", "ext::tools/connect %S"}}, files: []string{"tools/connect"}, want: []string{"tools/connect"}},
		"include":          {set: [][]string{{"include.path", "../.gitconfig"}}, files: []string{".gitconfig"}, want: []string{".gitconfig"}},
		"conditional":      {set: [][]string{{"includeIf.onbranch:x.path", "@/conf/git"}}, files: []string{"conf/git"}, want: []string{"conf/git"}},
		"filter":           {set: [][]string{{"filter.x.clean", "./tools/clean.sh --fast"}}, files: []string{"tools/clean.sh"}, want: []string{"tools/clean.sh"}},
		"interpreter":      {set: [][]string{{"diff.x.textconv", "python3 'my tools/conv.py'"}}, files: []string{"my tools/conv.py"}, want: []string{"my tools/conv.py"}},
		"fsmonitor":        {set: [][]string{{"core.fsmonitor", "tools/watch"}}, files: []string{"tools/watch"}, want: []string{"tools/watch"}},
		"a shell's":        {set: [][]string{{"filter.x.clean", "sh -c 'tools/clean.sh %f'"}}, files: []string{"tools/clean.sh"}, want: []string{"tools/clean.sh"}},
		"alias":            {set: [][]string{{"alias.x", "!sh tools/x.sh; true"}}, files: []string{"tools/x.sh"}, want: []string{"tools/x.sh"}},
		"a git alias":      {set: [][]string{{"alias.x", "log tools/x.sh"}}, files: []string{"tools/x.sh"}},
		"a path elsewhere": {set: [][]string{{"core.sshCommand", "/bin/sh"}}},
		"outside by dots":  {set: [][]string{{"core.sshCommand", "../../../../../../../../bin/sh"}}},
		"absent hooks":     {set: [][]string{{"core.hooksPath", "later"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRepo(t, fixture.Dir(t))
			for _, kv := range c.set {
				git(t, root, "config", kv[0], strings.ReplaceAll(kv[1], "@", root))
			}
			for _, file := range c.files {
				fixture.Write(t, root+"/"+file, "")
			}
			for path, target := range c.links {
				fixture.Link(t, target, root+"/"+path)
			}
			var extra []string
			f := scanOf(t, Query{Root: root, Home: "/nonexistent"})
			for _, p := range pinPaths(t, root, f) {
				if !strings.HasPrefix(p, ".git/") {
					extra = append(extra, p)
				}
			}
			require.Equal(t, c.want, extra)
			if name == "absent hooks" {
				require.Contains(t, f.Vacant, root+"/later")
			}
		})
	}
}

// What a repository around the workspace executes of it is protected as if it were the
// workspace itself, and nothing else of that repository is of interest.
func TestScanRepositoryAround(t *testing.T) {
	for name, c := range map[string]struct {
		set    [2]string
		link   string // among the hooks
		vacant bool
	}{
		"hooks":                {set: [2]string{"core.hooksPath", "sub/x"}},
		"a program":            {set: [2]string{"core.fsmonitor", "./sub/x"}},
		"not there":            {set: [2]string{"core.fsmonitor", "./sub/x"}, vacant: true},
		"a hook's link":        {link: "../../sub/x"},
		"a link to all":        {link: "../.."},
		"a program of its own": {set: [2]string{"core.fsmonitor", "./x"}},
	} {
		root := newRepo(t, fixture.Dir(t))
		if c.set[0] != "" {
			git(t, root, "config", c.set[0], c.set[1])
		}
		if c.link != "" {
			fixture.Link(t, c.link, root+"/.git/hooks/pre-commit")
		}
		fixture.Write(t, root+"/sub/y", "")
		if !c.vacant {
			fixture.Write(t, root+"/sub/x", "")
		}
		var want, vacant []string
		if name != "a link to all" && name != "a program of its own" {
			if want = []string{"x"}; c.vacant {
				want, vacant = nil, []string{root + "/sub/x"}
			}
		}
		f := scanOf(t, Query{Root: root + "/sub", Home: "/nonexistent"})
		require.ElementsMatch(t, want, pinPaths(t, root+"/sub", f), name)
		require.ElementsMatch(t, vacant, f.Vacant, name)
	}
}

func TestScanIncludesNest(t *testing.T) {
	root := newRepo(t, fixture.Dir(t))
	git(t, root, "config", "include.path", "../a.inc")
	fixture.Write(t, root+"/a.inc", "[include]\n path = b/c.inc\n")
	fixture.Write(t, root+"/b/c.inc", "\uFEFF[core]\r\n\thooksPath = hooks ; here\r\n[include]\npath = ../a.inc\n") // and round again
	fixture.Write(t, root+"/hooks/pre-commit", "")
	f := scanOf(t, Query{Root: root})
	require.Equal(t, []string{".git/config", ".git/hooks", "a.inc", "b/c.inc", "hooks"}, pinPaths(t, root, f))
}

func TestScanUserConfig(t *testing.T) {
	top := fixture.Dir(t)
	root := newRepo(t, top+"/home/ws")
	fixture.Write(t, root+"/dotfiles/gitconfig", "[core]\nhooksPath = ~/ws/shared\n")
	fixture.Link(t, "ws/dotfiles/gitconfig", top+"/home/.gitconfig")
	fixture.Write(t, root+"/shared/pre-push", "")
	f := scanOf(t, Query{Root: root, Home: top + "/home"})
	require.Equal(t, []string{".git/config", ".git/hooks", "shared"}, pinPaths(t, root, f))
}

// What git is told by variables counts as what its configuration says: the control in each
// case is the same look without them.
func TestScanUserEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string // @ is the workspace
		want []string
	}{
		"another configuration":   {map[string]string{"GIT_CONFIG_GLOBAL": "@/../gitconfig"}, []string{"hooks", "tools/fsm"}},
		"one of the system":       {map[string]string{"GIT_CONFIG_SYSTEM": "@/../gitconfig"}, []string{"hooks", "tools/fsm"}},
		"in the workspace":        {map[string]string{"GIT_CONFIG_GLOBAL": "@/gitconfig"}, []string{"gitconfig", "tools/fsm"}},
		"from the working tree":   {map[string]string{"GIT_CONFIG_GLOBAL": "gitconfig"}, []string{"gitconfig", "tools/fsm"}},
		"pairs":                   {map[string]string{"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "x", "GIT_CONFIG_KEY_1": "Core.hooksPath", "GIT_CONFIG_VALUE_1": "hooks"}, []string{"hooks"}},
		"pairs beyond the number": {map[string]string{"GIT_CONFIG_COUNT": "0", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "hooks"}, nil},
		"a driver":                {map[string]string{"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "filter.a.b.clean", "GIT_CONFIG_VALUE_0": "sh tools/fsm %f"}, []string{"tools/fsm"}},
		"a program":               {map[string]string{"GIT_EXTERNAL_DIFF": "tools/fsm"}, []string{"tools/fsm"}},
		"an editor with options":  {map[string]string{"EDITOR": "@/tools/fsm --wait"}, []string{"tools/fsm"}},
		"an editor of the path":   {map[string]string{"EDITOR": "vi"}, nil},
		"a template":              {map[string]string{"GIT_TEMPLATE_DIR": "@/hooks"}, []string{"hooks"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := fixture.Dir(t)
			root := newRepo(t, top+"/ws")
			fixture.Write(t, top+"/gitconfig", "[core]\nhooksPath = hooks\nfsmonitor = ./tools/fsm\n")
			fixture.Write(t, root+"/gitconfig", "[core]\nfsmonitor = ./tools/fsm\n")
			fixture.Write(t, root+"/hooks/pre-push", "")
			fixture.Write(t, root+"/tools/fsm", "")
			fixture.Write(t, root+"/vi", "")
			q := Query{Root: root, Home: top + "/home"}
			require.Equal(t, []string{".git/config", ".git/hooks"}, pinPaths(t, root, scanOf(t, q)))
			q.Git = vcs.Environment(func(name string) string { return strings.ReplaceAll(c.env[name], "@", root) })
			require.Equal(t, append([]string{".git/config", ".git/hooks"}, c.want...), pinPaths(t, root, scanOf(t, q)))
		})
	}
}

func TestScanWholeWorkspaceRefused(t *testing.T) {
	root := newRepo(t, fixture.Dir(t))
	git(t, root, "config", "core.hooksPath", ".")
	_, err := Scan(Query{Root: root})
	require.ErrorContains(t, err, "core.hookspath in "+root+"/.git/config")
	git(t, root, "config", "core.hooksPath", "..")
	_, err = Scan(Query{Root: root})
	require.ErrorContains(t, err, "would become read-only")
}

func TestScanTracked(t *testing.T) {
	for name, args := range map[string][]string{
		"sha1": nil, "sha256": {"--object-format=sha256"},
	} {
		for _, version := range []string{"2", "4"} {
			t.Run(name+" version "+version, func(t *testing.T) {
				top := fixture.Dir(t)
				root := newRepo(t, top+"/ws", args...)
				for i := range 60 {
					fixture.Write(t, root+"/src/"+strings.Repeat("x", i%40+1)+"/f"+string(rune('a'+i%26)), "x")
				}
				fixture.Write(t, root+"/.env.test", "PUBLIC=1\n")
				fixture.Write(t, root+"/conf/.env.ci", "CI=1\n")
				fixture.Write(t, root+"/conf/.env.changed", "A=1\n")
				git(t, root, "add", "-f", ".")
				git(t, root, "update-index", "--index-version", version)
				git(t, root, "commit", "-qm", "all")
				fixture.Write(t, root+"/conf/.env.changed", "SECRET=1\n")
				fixture.Write(t, root+"/.env", "SECRET=1\n")
				fixture.Write(t, root+"/.env.example", "A=\n")
				q := Query{Root: root, Files: hide(root, "**/.env*"), IndexDir: top + "/index"}
				for range 2 { // the second from the index
					f := scanOf(t, q)
					require.Equal(t, []string{".env", "conf/.env.changed"}, matchPaths(t, root, f))
					require.Len(t, f.Spared, 2)
					require.Equal(t, root+"/.env.test", f.Spared[0].Path)
					require.Equal(t, root+"/conf/.env.ci", f.Spared[1].Path)
					require.Empty(t, f.Notes)
				}
				// A glob that names it hides it.
				f := scanOf(t, Query{Root: root, Files: hide(root, "**/.env.test")})
				require.Equal(t, []string{".env.test"}, matchPaths(t, root, f))
				// It stays hidden once it says something else.
				fixture.Write(t, root+"/.env.test", "SECRET=1\n")
				require.Equal(t, []string{".env", ".env.test", "conf/.env.changed"}, matchPaths(t, root, scanOf(t, q)))
				// It is shown again once the index has that.
				git(t, root, "add", "-f", ".env.test")
				require.Equal(t, []string{".env", "conf/.env.changed"}, matchPaths(t, root, scanOf(t, q)))
			})
		}
	}
}

func TestScanTrackedInWorktree(t *testing.T) {
	top := fixture.Dir(t)
	main := newRepo(t, top+"/main")
	fixture.Write(t, main+"/.env.test", "PUBLIC=1\n")
	git(t, main, "add", "-f", ".")
	git(t, main, "commit", "-qm", "env")
	root := top + "/side"
	git(t, main, "worktree", "add", "-q", "-b", "side", root)
	f := scanOf(t, Query{Root: root, Files: hide(root, "**/.env*")})
	require.Empty(t, f.Matches)
	require.Len(t, f.Spared, 1)

	git(t, root, "update-index", "--split-index")
	f = scanOf(t, Query{Root: root, Files: hide(root, "**/.env*")})
	require.Equal(t, []string{".env.test"}, matchPaths(t, root, f))
	require.Contains(t, f.Notes[0], "split index")
}

// Git takes a working tree for gone whose .git file it does not see: of those elsewhere
// the files are found that lead back, by no forged path.
func TestWorktreesElsewhere(t *testing.T) {
	w := newWatchman(t)
	top := filepath.Dir(w.root)
	w.sh(asUser + `for d in ../a ../b ../c in; do git worktree add -q $d; done; rm -r ../b; echo 'gitdir: x' > ../c/.git; mkdir ../links; ln -s ../a ../links/a
		for n in d e f; do cp -r .git/worktrees/a .git/worktrees/$n; done; echo $PWD/../links/a/.git > .git/worktrees/d/gitdir; echo /etc/passwd > .git/worktrees/e/gitdir; echo $PWD/.git/worktrees/f > .git/worktrees/f/gitdir
		mkdir -p ../g x; echo gitdir: $PWD/x > ../g/.git; cp -r .git/worktrees/a/* x/; echo $PWD/../g/.git > x/gitdir`)
	require.Equal(t, []string{top + "/a/.git"}, scanOf(t, w.query).Worktrees)
	w.sh("echo gitdir: $PWD/.git/worktrees/d > ../a/.git")
	require.Equal(t, []string{top + "/a/.git"}, scanOf(t, w.query).Worktrees)
	w.sh("echo $(dirname $PWD)/links/a/.git > .git/worktrees/d/gitdir")
	require.Equal(t, []string{top + "/links/a/.git"}, scanOf(t, w.query).Worktrees, "as git looks for it")
}
