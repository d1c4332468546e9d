package changes

import (
	"cmp"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/fixture"
)

// A stand is a host directory and what a run left of an overlay on it, made by
// hand as the kernel makes it: test/overlay has the kernel's own.
type stand struct {
	t       testing.TB
	host    string
	session string
	tree    string
}

func newStand(t testing.TB, files map[string]string, rules ...profiles.ProtectRule) *stand {
	return newStandFrom(t, "", files, rules...)
}

// newStandFrom is one whose overlay lies outside of a workspace, if that is not "".
func newStandFrom(t testing.TB, elsewhere string, files map[string]string, rules ...profiles.ProtectRule) *stand {
	s := &stand{t: t, host: fixture.Dir(t), session: fixture.Dir(t)}
	t.Cleanup(func() { // the test's own clean-up cannot enter what is closed
		_ = exec.Command("chmod", "-R", "u+rwX", s.host, s.session).Run()
	})
	for name, text := range files {
		s.put(s.host, name, text)
	}
	time.Sleep(10 * time.Millisecond) // the clock that stamps files has ticks
	info, err := os.Stat(s.host)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	r := &Record{Workspace: cmp.Or(elsewhere, s.host), Started: Clock(), Layers: []Layer{{Path: s.host, Dev: st.Dev, Ino: st.Ino}}, Protect: rules}
	require.NoError(t, CreateUpper(s.root(), r, nil))
	s.tree = filepath.Join(s.session, UpperName, "0", treeName)
	return s
}

// put makes what a text says: "dir", "-> target" for a link, else a file; a mode
// may stand in front, as "0755 ".
func (s *stand) put(root, name, text string) {
	path := filepath.Join(root, name)
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	mode := fs.FileMode(0)
	if m, rest, ok := strings.Cut(text, " "); ok && len(m) == 4 && m[0] == '0' {
		n, err := strconv.ParseUint(m, 8, 32)
		require.NoError(s.t, err)
		mode, text = fs.FileMode(n), rest
	}
	if target, ok := strings.CutPrefix(text, "-> "); ok {
		require.NoError(s.t, os.Symlink(target, path))
		return
	}
	if text == "dir" {
		require.NoError(s.t, os.MkdirAll(path, 0o755))
	} else {
		require.NoError(s.t, os.WriteFile(path, []byte(text), 0o644))
	}
	if mode != 0 {
		require.NoError(s.t, os.Chmod(path, mode))
	}
}

// run writes into the upper layer: "gone" is a whiteout, "whole" an opaque
// directory, the rest as put has it.
func (s *stand) run(changes ...[2]string) *stand {
	for _, c := range changes {
		path := filepath.Join(s.tree, c[0])
		switch c[1] {
		case "gone":
			require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(s.t, unix.Mknod(path, unix.S_IFCHR, 0))
		case "whole":
			s.put(s.tree, c[0], "dir")
			require.NoError(s.t, unix.Setxattr(path, "user.overlay.opaque", []byte("y"), 0))
		default:
			s.put(s.tree, c[0], c[1])
		}
	}
	return s
}

func (s *stand) root() *os.Root {
	root, err := os.OpenRoot(s.session)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { root.Close() })
	return root
}

func (s *stand) open() *Upper {
	u, err := OpenUpper(s.root(), nil)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { u.Close() })
	return u
}

func (s *stand) settle() *stand {
	u := s.open()
	_, _, err := u.Settle()
	require.NoError(s.t, err)
	require.NoError(s.t, u.Close())
	return s
}

// diff is the changes as one text each.
func (s *stand) diff() []string {
	u, err := OpenUpper(s.root(), nil)
	require.NoError(s.t, err)
	sets, err := u.Changes()
	require.NoError(s.t, err)
	require.NoError(s.t, u.Close())
	list := []string{}
	for _, c := range sets[0].Changes {
		text := c.String()
		if c.Conflict != "" {
			text += ": " + c.Conflict
		}
		if c.Protect != "" {
			text += " (" + c.Protect + ")"
		}
		list = append(list, text)
	}
	return list
}

func (s *stand) apply(paths ...string) (*Outcome, error) {
	sel := Selection{}
	for _, p := range paths {
		if p == "--force" {
			sel.Force = true
			continue
		}
		sel.Paths = append(sel.Paths, filepath.Join(s.host, p))
	}
	u, err := OpenUpper(s.root(), nil)
	require.NoError(s.t, err)
	u.AskGit = plainGit
	defer u.Close()
	require.NoError(s.t, u.Begin())
	return u.Apply(sel)
}

// tree is what stands in a directory: each path with its mode and content.
func treeOf(t testing.TB, root string) map[string]string {
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		text := ""
		switch {
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(b)
		case d.Type()&fs.ModeSymlink != 0:
			text, _ = os.Readlink(path)
		}
		if d.Type()&fs.ModeSymlink == 0 {
			text = info.Mode().String() + " " + text
		}
		all[rel] = text
		return nil
	}))
	return all
}

var before = map[string]string{
	"f": "old", "same": "same", "gone": "x", "d/a": "a", "d/b": "b", "d/c/deep": "deep", "whole/x": "x", "whole/y": "y",
	"file": "to be a directory", "dir/in": "to be a file", "link": "-> f", "exec": "run", "closed": "0755 dir", "moved/from": "what was moved",
	"odd\nname": "odd", "keep/k": "k",
}

var work = [][2]string{
	{"f", "new"}, {"same", "same"}, {"gone", "gone"}, {"d", "gone"}, {"whole", "whole"}, {"whole/y", "Y"}, {"whole/z", "z"},
	{"file/now", "dir"}, {"dir", "a file"}, {"link", "-> same"}, {"exec", "0755 run"}, {"closed", "0700 dir"},
	{"moved/from", "gone"}, {"to", "what was moved"}, {"new/empty", "dir"}, {"new/l", "-> /etc/passwd"}, {"new/ro/f", "0400 r"}, {"new/ro", "0555 dir"},
	{"odd\nname", "ODD"}, {"n\nn", "n"}, {"bin", "\x00\xff"},
}

func TestUpperChanges(t *testing.T) {
	s := newStand(t, before).run(work...)
	want := []string{
		"A bin", "M closed", "D d", "D d/a", "D d/b", "D d/c", "D d/c/deep", "T dir", "D dir/in", "M exec", "M f", "T file", "A file/now", "D gone", "M link",
		"D moved/from", "A n\nn", "A new", "A new/empty", "A new/l", "A new/ro", "A new/ro/f", "M odd\nname", "A to", "D whole/x", "M whole/y", "A whole/z",
	}
	require.Equal(t, want, s.diff())
	require.Equal(t, want, s.settle().diff(), "and so when it is over")
}

// A change set of an overlay is that of the two trees.
func TestCompare(t *testing.T) {
	s := newStand(t, before).run(work...)
	old := fixture.Dir(t)
	require.NoError(t, exec.Command("cp", "-a", s.host+"/.", old).Run())
	want := s.diff()
	_, err := s.apply()
	require.NoError(t, err)
	a, err := os.OpenRoot(old)
	require.NoError(t, err)
	defer a.Close()
	b, err := os.OpenRoot(s.host)
	require.NoError(t, err)
	defer b.Close()
	set, err := Compare(a, b)
	require.NoError(t, err)
	var got []string
	for _, c := range set.Changes {
		text := c.String()
		got = append(got, text)
	}
	require.Equal(t, want, got)
	_, ok := set.find("f")
	require.True(t, ok)
	_, ok = set.find("nothing")
	require.False(t, ok)
}

func TestApply(t *testing.T) {
	s := newStand(t, before).run(work...).settle()
	old := treeOf(t, s.host)
	out, err := s.apply()
	require.NoError(t, err)
	require.Zero(t, out.Left)
	require.Len(t, out.Applied, 27)
	now := treeOf(t, s.host)
	require.Equal(t, "-rw-r--r-- new", now["f"])
	require.Equal(t, "-rwxr-xr-x run", now["exec"])
	require.Equal(t, "same", now["link"])
	require.Equal(t, "dr-xr-xr-x ", now["new/ro"])
	require.Equal(t, "-rw-r--r-- what was moved", now["to"])
	require.Equal(t, old["keep/k"], now["keep/k"])
	for _, gone := range []string{"gone", "d", "dir/in", "whole/x", "moved/from"} {
		require.NotContains(t, now, gone)
	}
	require.Empty(t, s.diff())
	require.False(t, s.open().Interrupted())
}

func TestApplyPaths(t *testing.T) {
	s := newStand(t, before).run(work...).settle()
	out, err := s.apply("new/ro/f", "d/c", "whole", "f")
	require.NoError(t, err)
	now := treeOf(t, s.host)
	require.Equal(t, "-r-------- r", now["new/ro/f"], "with the directories around it")
	require.NotContains(t, now, "new/empty")
	require.NotContains(t, now, "d/c")
	require.Contains(t, now, "d/a")
	require.Equal(t, "-rw-r--r-- Y", now["whole/y"])
	require.Equal(t, []string{
		"A bin", "M closed", "D d", "D d/a", "D d/b", "T dir", "D dir/in", "M exec", "T file", "A file/now", "D gone", "M link",
		"D moved/from", "A n\nn", "A new/empty", "A new/l", "M odd\nname", "A to",
	}, s.diff(), "the rest is left, and no conflict with what was applied")
	require.Equal(t, 18, out.Left)
	out, err = s.apply()
	require.NoError(t, err)
	require.Zero(t, out.Left)
}

func TestConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		host func(path string) error // what the host does
		file string
		want string
	}{
		"edited":             {func(p string) error { return os.WriteFile(p, []byte("host"), 0o644) }, "f", "M f: changed on the host"},
		"replaced":           {replaced, "f", "M f: changed on the host"},
		"its mode":           {func(p string) error { return os.Chmod(p, 0o600) }, "f", "M f: changed on the host"},
		"removed":            {os.Remove, "f", "A f: removed on the host since the run"},
		"made":               {func(p string) error { return os.WriteFile(p, []byte("host"), 0o644) }, "bin", "M bin: "},
		"in what is removed": {func(p string) error { return os.WriteFile(p, []byte("host"), 0o644) }, "d/host", "D d: changed on the host"},
		"a link in its way":  {func(p string) error { return link2(p) }, "whole", " on the host"},
	} {
		for _, when := range []string{"during", "since"} {
			if name == "removed" && when == "during" {
				continue // that is none
			}
			t.Run(name+" "+when, func(t *testing.T) {
				s := newStand(t, before).run(work...)
				if when == "since" {
					s.settle()
				}
				require.NoError(t, c.host(filepath.Join(s.host, c.file)))
				if when == "during" {
					s.settle()
				}
				old := treeOf(t, s.host)
				require.Contains(t, strings.Join(s.diff(), "|"), c.want)
				_, err := s.apply()
				var conflict *ConflictError
				require.ErrorAs(t, err, &conflict)
				require.NotEmpty(t, conflict.Error()+conflict.Hint())
				require.Equal(t, old, treeOf(t, s.host), "nothing was applied")
				_, err = s.apply("exec")
				require.NoError(t, err, "what is not in conflict can be")
			})
		}
	}
}

func replaced(path string) error {
	if err := os.WriteFile(path+"~", []byte("old"), 0o644); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}

func link2(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Symlink("/etc", path)
}

func TestApplyForce(t *testing.T) {
	s := newStand(t, before).run(work...).settle()
	s.put(s.host, "f", "host")
	_, err := s.apply()
	require.Error(t, err)
	_, err = s.apply("--force")
	require.NoError(t, err)
	require.Equal(t, "-rw-r--r-- new", treeOf(t, s.host)["f"])
}

// What the host did where the run left all as it was is no change.
func TestHostMovesOn(t *testing.T) {
	s := newStand(t, before).run([2]string{"same", "same"}, [2]string{"f", "new"}).settle()
	s.put(s.host, "same", "the host's")
	require.Equal(t, []string{"M f"}, s.diff())
	_, err := s.apply()
	require.NoError(t, err)
	require.Equal(t, "-rw-r--r-- the host's", treeOf(t, s.host)["same"])
}

// What has a protected name has it in an overlay of another directory too.
func TestApplyProtectedElsewhere(t *testing.T) {
	s := newStandFrom(t, "/nonexistent", map[string]string{"f": "x", ".git/config": "[core]"}, append(fixture.Protect(".envrc", ".git/hooks", ".git/config"), fixture.Review("Makefile")...)...)
	s.run([2]string{"f", "y"}, [2]string{".envrc", "x"}, [2]string{".git/hooks/pre-commit", "x"}, [2]string{".git/config", "evil"}).settle()
	require.Equal(t, []string{"A .envrc (.envrc)", "M .git/config (.git/config)", "A .git/hooks (.git/hooks)", "A .git/hooks/pre-commit (.git/hooks)", "M f"}, s.diff())
}

// A repository is not made in two halves, each of which is none.
func TestApplyHalfARepository(t *testing.T) {
	const why = " (a repository: git executes what its configuration names)"
	s := newStand(t, map[string]string{"r/HEAD": "ref", "r/config": "[core]", "whole/HEAD": "ref", "whole/objects/x": "x", "whole/refs/y": "y",
		"shared/objects/x": "x", "shared/refs/y": "y", "hostile/objects/x": "x", "hostile/refs/y": "y", "half/config": "x", "other/objects/x": "x"})
	s.run([2]string{"r/objects", "dir"}, [2]string{"r/refs", "dir"}, [2]string{"whole/objects/z", "z"}, [2]string{"shared/config", "[core]"}, [2]string{"shared/objects/z", "z"},
		[2]string{"half/objects", "dir"}, [2]string{"half/refs", "dir"}, [2]string{"other/config", "x"}, [2]string{"hostile/config", "[core]\nfsmonitor = x"}).settle()
	require.Equal(t, []string{"A half/objects" + why, "A half/refs" + why, "A hostile/config (git would execute what it names)", "A other/config", "A r/objects" + why, "A r/refs" + why, "A shared/config", "A shared/objects/z (git has no file of that name there)", "A whole/objects/z (git has no file of that name there)"}, s.diff())
}

// What the table of git directories does not keep is held back, in a repository with a .git and in one without,
// in a worktree and in a submodule; what git computes again is left behind without a message.
func TestApplyGitDirectories(t *testing.T) {
	hash := strings.Repeat("0123456789", 4)
	whole, forged := string(fixture.Index(2, nil)), string(fixture.Index(2, nil, fixture.Entry{Path: "../rc", Mode: 0o100755}))
	stood := map[string]string{"docs/x": "x", ".git/svn/x": "x"}
	for _, dir := range []string{".git", "bare", "n/.git", "o/.git"} {
		for _, name := range []string{"/HEAD", "/objects/info/x", "/refs/x"} {
			stood[dir+name] = "x"
		}
	}
	stood[".git/rebase-merge/onto"] = "1"
	s := newStand(t, stood)
	s.run([2]string{".git/index", forged}, [2]string{".git/worktrees/w/index", whole}, [2]string{"bare/index", forged}, [2]string{"docs/index", forged}, [2]string{"n/.git/index", whole}, [2]string{"n/.git/config", "[core]"},
		[2]string{"o/.git/index", whole}, [2]string{"o/.git/config", "[extensions]\nobjectFormat = sha256"}, [2]string{".git/sequencer/opts", ""}, [2]string{".git/rebase-merge/git-rebase-todo", "pick 1"}, [2]string{".git/rebase-merge/onto", "2"},
		[2]string{"bare/rebase-apply/apply-opt", " '-C3'"}, [2]string{".git/MERGE_RR", "x"}, [2]string{".git/objects/info/alternates", "/x"}, [2]string{".git/svn/x", "y"}, [2]string{".git/svn/y", "y"}, [2]string{".git/foreign/x", "y"},
		[2]string{".git/objects/ab/" + hash[:38], "x"}, [2]string{".git/refs/heads/x", hash + "\n"}, [2]string{".git/refs/heads/-x", hash + "\n"}, [2]string{".git/refs/heads/y", "ref: x\n"}, [2]string{"bare/refs/heads/x", hash + "\n"},
		[2]string{".git/objects/info/commit-graph", "x"}, [2]string{".git/modules/a/b/HEAD", hash + "\n"}, [2]string{".git/modules/a/b/x", "x"}, [2]string{".git/modules/a/b/ORIG_HEAD", hash + "\n"}, [2]string{".git/worktrees/w/x", "x"}, [2]string{".git/MERGE_HEAD", hash + "\n"}).settle()
	var held, taken []string
	for _, line := range s.diff() {
		name, why, is := strings.Cut(line[2:], " (")
		if is && why != "review)" {
			held = append(held, name)
		} else if strings.Contains(name, "/") {
			taken = append(taken, name)
		}
	}
	require.Equal(t, strings.Fields(".git/MERGE_RR .git/foreign .git/foreign/x .git/index .git/modules/a/b/x .git/objects/info/alternates .git/rebase-merge/git-rebase-todo .git/rebase-merge/onto .git/refs/heads/-x .git/refs/heads/y .git/sequencer .git/sequencer/opts .git/svn/y .git/worktrees/w/x bare/index bare/rebase-apply bare/rebase-apply/apply-opt o/.git/index"), held)
	for _, name := range []string{".git/objects/ab/" + hash[:38], ".git/refs/heads/x", "bare/refs/heads/x", ".git/modules/a/b/HEAD", ".git/modules/a/b/ORIG_HEAD", ".git/svn/x", "docs/index", "n/.git/index", ".git/worktrees/w/index"} {
		require.Contains(t, taken, name)
	}
	require.NotContains(t, strings.Join(s.diff(), " "), "commit-graph")
}

func TestApplyProtected(t *testing.T) {
	s := newStand(t, map[string]string{"f": "x", "bare/config": "[core]"}, append(fixture.Protect(".vscode", ".envrc"), fixture.Review("Makefile")...)...)
	s.run([2]string{"f", "y"}, [2]string{".vscode/tasks.json", "{}"}, [2]string{".vscode/more", "x"}, [2]string{"sub/.envrc", "x"}, [2]string{"Makefile", "all:"},
		[2]string{"sub/.git", "gitdir: ../evil"}, [2]string{"bare/HEAD", "ref"}, [2]string{"bare/objects", "dir"}, [2]string{"bare/refs", "dir"}).settle()
	require.Equal(t, []string{
		"A .vscode (.vscode)", "A .vscode/more (.vscode)", "A .vscode/tasks.json (.vscode)", "A Makefile", "A bare/HEAD (a repository: git executes what its configuration names)",
		"A bare/objects (a repository: git executes what its configuration names)", "A bare/refs (a repository: git executes what its configuration names)", "M f", "A sub", "A sub/.envrc (.envrc)", "A sub/.git (it leads to a repository of which it is no worktree or submodule)",
	}, s.diff())
	out, err := s.apply()
	require.NoError(t, err)
	require.Len(t, out.Withheld, 8)
	now := treeOf(t, s.host)
	require.Contains(t, now, "Makefile")
	for _, name := range []string{".vscode", "bare/HEAD", "sub/.envrc", "sub/.git"} {
		require.NotContains(t, now, name)
	}
	out, err = s.apply(".")
	require.NoError(t, err)
	require.Len(t, out.Withheld, 8, "a directory around it is not its name")
	out, err = s.apply(".vscode", "sub/.envrc")
	require.NoError(t, err)
	require.Empty(t, out.Withheld)
	require.Equal(t, 4, out.Left)
	require.Contains(t, treeOf(t, s.host), ".vscode/tasks.json")
	_, err = s.apply("sub/.git", "bare/HEAD", "bare/objects", "bare/refs")
	require.NoError(t, err)
	require.Empty(t, s.diff())
}

// A link that stands for a directory on the way to a protected name is held
// back: where it leads there is what the name would have been.
func TestApplyLinkOnTheWay(t *testing.T) {
	s := newStand(t, map[string]string{"f": "x", ".git/HEAD": "ref"}, fixture.Protect("**/.cargo/config", ".git/info/attributes", "top/name")...)
	s.run([2]string{"d/config", "evil"}, [2]string{"a/.cargo", "-> ../d"}, [2]string{".git/info", "-> ../d"}, [2]string{"top", "-> d"}, [2]string{"other", "-> d"}).settle()
	require.Equal(t, []string{
		"A .git/info (.git/info/attributes)", "A a", "A a/.cargo (**/.cargo/config)", "A d", "A d/config", "A other", "A top (top/name)",
	}, s.diff())
	out, err := s.apply()
	require.NoError(t, err)
	require.Len(t, out.Withheld, 3)
	require.NotContains(t, treeOf(t, s.host), "a/.cargo")
}

// A directory that is gone, with something protected in it, stays.
func TestApplyKeepsWhatHoldsProtected(t *testing.T) {
	s := newStand(t, map[string]string{"d/.envrc": "x", "d/f": "f", "e/.envrc": "x"}, fixture.Protect(".envrc")...)
	s.run([2]string{"d", "gone"}, [2]string{"e", "a file"}).settle()
	out, err := s.apply()
	require.NoError(t, err)
	require.Len(t, out.Withheld, 4)
	require.Equal(t, []string{s.host + "/d/f"}, out.Applied)
	require.Equal(t, []string{"D d", "D d/.envrc (.envrc)", "T e", "D e/.envrc (.envrc)"}, s.diff())
}

// What git would write through, or find a repository by, is applied only if it is named.
func TestApplyHoldsGitLinks(t *testing.T) {
	held := [][2]string{
		{".git/COMMIT_EDITMSG", "-> ../../rc"}, {".git/logs/HEAD", "-> /rc"}, {".git/modules/s", "-> ../x"}, {".git/remotes/origin", "URL: /x"},
		{".git/objects/x/HEAD", "ref: refs/heads/main"}, {".git/objects/x/config", "x"}, {"r/packed-refs", "-> ../../rc"},
		{".git/refs/x", "-> /o/.git/refs/x"}, {".git/packed-refs", "-> ../o/.git/packed-refs"}, {".git/info", "-> ../../o/.git/info"},
	}
	fine := [][2]string{
		{".git/refs/remotes/origin/HEAD", "-> refs/remotes/origin/main"}, {".git/refs/remotes/origin/main", strings.Repeat("a", 40) + "\n"}, {".hg/wlock", "-> host:1"}, {"out", "-> /etc"}, {"f", "-> .git/annex/objects/k"}, {"sub", "-> .git/objects/x"},
		{"r/x", "x"},
	}
	bare := [][2]string{{".git/objects/x/objects/i", "x"}, {".git/objects/x/refs/i", "x"}}
	s := newStand(t, map[string]string{".git/HEAD": "ref: refs/heads/main", "r/HEAD": "x", "r/objects/i": "x", "r/refs/i": "x"})
	s.run(slices.Concat(held, fine, bare)...).settle()
	out, err := s.apply()
	require.NoError(t, err)
	var withheld []string
	for _, c := range out.Withheld {
		withheld = append(withheld, c.Path)
	}
	for _, c := range held {
		require.Contains(t, withheld, c[0])
		_, err := os.Lstat(filepath.Join(s.host, c[0]))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	for _, c := range fine {
		require.NotContains(t, withheld, c[0])
		_, err := os.Lstat(filepath.Join(s.host, c[0]))
		require.NoError(t, err)
	}
	_, err = s.apply("--force", ".git/COMMIT_EDITMSG")
	require.NoError(t, err)
	_, err = os.Lstat(filepath.Join(s.host, ".git/COMMIT_EDITMSG"))
	require.NoError(t, err, "control: what is named is applied")
}

func TestApplyThroughLinks(t *testing.T) {
	outside := fixture.Dir(t)
	s := newStand(t, map[string]string{"d/f": "old", "d/e/g": "g"}).run([2]string{"d/f", "new"}, [2]string{"d/n", "n"}, [2]string{"d/e", "gone"}).settle()
	require.NoError(t, os.Rename(filepath.Join(s.host, "d"), filepath.Join(outside, "d")))
	require.NoError(t, os.Symlink(filepath.Join(outside, "d"), filepath.Join(s.host, "d")))
	old := treeOf(t, outside)
	_, err := s.apply("--force")
	require.Error(t, err)
	require.Equal(t, old, treeOf(t, outside), "nothing is written through a link")
	// The control: without it, the same is applied.
	require.NoError(t, os.Remove(filepath.Join(s.host, "d")))
	require.NoError(t, os.Rename(filepath.Join(outside, "d"), filepath.Join(s.host, "d")))
	_, err = s.apply("--force")
	require.NoError(t, err)
	require.Equal(t, "-rw-r--r-- new", treeOf(t, s.host)["d/f"])
}

func TestOpenUpperReplaced(t *testing.T) {
	s := newStand(t, before).settle()
	require.NoError(t, os.Rename(s.host, s.host+"-away"))
	defer os.RemoveAll(s.host + "-away")
	_, err := OpenUpper(s.root(), nil)
	require.Error(t, err)
	require.NoError(t, os.Mkdir(s.host, 0o755))
	_, err = OpenUpper(s.root(), nil)
	require.ErrorIs(t, err, errReplaced)
	require.NoError(t, os.Remove(s.host))
	require.NoError(t, os.Symlink(s.host+"-away", s.host))
	_, err = OpenUpper(s.root(), nil)
	require.ErrorIs(t, err, errReplaced)
	require.NoError(t, os.Remove(s.host))
}

// It does not hide anything to have closed the root itself.
func TestClosedRoot(t *testing.T) {
	s := newStand(t, nil).run([2]string{"f", "x"})
	require.NoError(t, os.Chmod(s.tree, 0))
	if os.Getuid() != 0 {
		_, err := os.OpenRoot(s.tree)
		require.ErrorIs(t, err, fs.ErrPermission, "control: it cannot be opened as it is")
	}
	require.Contains(t, s.diff(), "A f")
}

func TestLost(t *testing.T) {
	s := newStand(t, map[string]string{"f": "x"})
	require.NoError(t, unix.Mkfifo(filepath.Join(s.tree, "fifo"), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(s.tree, "d"), 0o755))
	require.NoError(t, unix.Mkfifo(filepath.Join(s.tree, "d/fifo"), 0o644))
	require.NoError(t, unix.Mkfifo(filepath.Join(s.tree, "f"), 0o644))
	sets, err := s.open().Changes()
	require.NoError(t, err)
	require.Equal(t, []string{"d/fifo", "f", "fifo"}, sets[0].Lost)
	require.Equal(t, []string{"A d", "D f"}, s.diff())
}
