//go:build linux || darwin

package postrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A tree is a workspace with a repository, and a session.
type tree struct {
	*testing.T
	dir     string
	session *os.Root
	record  *Record
}

func newTree(t *testing.T) *tree {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	session, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { session.Close() })
	w := &tree{T: t, dir: dir, session: session}
	w.git(".", "init", "-q", "-b", "main")
	w.write("file", "1\n")
	w.git(".", "add", "file")
	w.git(".", "commit", "-qm", "first")
	return w
}

func (w *tree) git(dir string, args ...string) string {
	cmd := exec.Command("git", args...)
	cmd.Dir = filepath.Join(w.dir, dir)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_EDITOR=true")
	out, err := cmd.CombinedOutput()
	require.NoError(w, err, "git %v: %s", args, out)
	return string(out)
}

func (w *tree) write(name, text string) {
	name = filepath.Join(w.dir, name)
	require.NoError(w, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(w, os.WriteFile(name, []byte(text), 0o644))
}

func (w *tree) rules() Rules {
	return Rules{
		Hidden: func(path string) bool { return filepath.Base(path) == "hidden" },
		Protected: func(path string) (string, bool) {
			for _, pattern := range []string{".envrc", ".vscode", ".cargo/config.toml"} {
				if strings.HasSuffix(strings.ToLower(path), "/"+pattern) {
					return pattern, true
				}
			}
			return "", false
		},
	}
}

func (w *tree) take(roots ...string) {
	var err error
	w.record, err = Take(append([]string{w.dir}, roots...), w.rules())
	require.NoError(w, err)
}

// check returns what is found, by path with its kind.
func (w *tree) check() (list []string) {
	found, err := w.record.Check(func() (*os.Root, error) { return w.session, nil })
	require.NoError(w, err)
	for _, f := range found {
		rel, err := filepath.Rel(w.dir, f.Path)
		require.NoError(w, err)
		list = append(list, string(f.Kind)+" "+rel)
	}
	slices.Sort(list)
	return list
}

func (w *tree) there(name string) bool {
	_, err := os.Lstat(filepath.Join(w.dir, name))
	return err == nil
}

// TestOrdinaryWork is the control: what git does in daily work is not found.
func TestOrdinaryWork(t *testing.T) {
	w := newTree(t)
	w.write(".vscode/settings.json", "{}")
	w.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n")
	w.write(".git/gk/config", "of another tool\n")
	w.write("old.git/x", "")
	w.git(".", "init", "-q", "--bare", "stood.git")
	w.take()
	w.write("file", "2\n")
	w.git(".", "commit", "-qam", "second")
	w.git(".", "switch", "-qc", "topic")
	w.write("other", "3\n")
	w.git(".", "add", "-A", "other")
	w.git(".", "commit", "-qm", "third")
	w.git(".", "switch", "-q", "main")
	w.git(".", "merge", "-q", "--no-ff", "-m", "merged", "topic")
	w.git(".", "tag", "v1")
	w.git(".", "stash", "list")
	w.git(".", "push", "-q", "./stood.git", "main")
	w.git(".", "init", "-q", "--bare", "new.git")
	w.git(".", "gc", "-q")
	w.write(".vscode/settings.json", "{\"a\":1}") // the user's editor
	w.write(".git/gk/config", "changed\n")
	require.Empty(t, w.check())
	require.True(t, w.there("new.git/HEAD"))
	w.git(".", "fsck")
	require.False(t, w.there(".git/objects/info/commit-graph"), "git computes it again")
}

func TestWhatGitWouldExecute(t *testing.T) {
	w := newTree(t)
	w.write("fixtures/user", "the user's")
	w.take()
	w.write(".git/rebase-merge/git-rebase-todo", "exec touch /tmp/x\n")
	w.write(".git/objects/info/alternates", "/elsewhere\n")
	require.NoError(t, os.Symlink("/etc", filepath.Join(w.dir, ".git/logs2")))
	w.write(".git/refs/heads/bad", "not an id\n")
	w.write(".git/modules/sub/HEAD", "ref: refs/heads/main\n")
	w.write(".git/modules/sub/config", "[core]\n\tfsmonitor = touch /tmp/x\n")
	w.write(".git/modules/sub/refs/.keep", "")
	w.write(".git/modules/sub/objects/aa/"+strings.Repeat("0", 38), "")
	// A directory of the user's becomes a repository that names a program.
	w.write("fixtures/HEAD", "ref: refs/heads/main\n")
	w.write("fixtures/objects/x", "")
	w.write("fixtures/refs/x", "")
	w.write("fixtures/config", "[core]\n\tbare = true\n\tfsmonitor = touch /tmp/x\n")
	// One by a hook, and one by a link.
	w.git(".", "init", "-q", "--bare", "hook.git")
	w.write("hook.git/hooks/post-receive", "touch /tmp/x\n")
	w.git(".", "init", "-q", "--bare", "link.git")
	require.NoError(t, os.Rename(filepath.Join(w.dir, "link.git/hooks"), filepath.Join(w.dir, "elsewhere")))
	require.NoError(t, os.Symlink("../elsewhere", filepath.Join(w.dir, "link.git/hooks")))
	// A directory that is given the name, and a file.
	w.write("x/HEAD", "ref: refs/heads/main\n")
	w.write("x/config", "[core]\n\tfsmonitor = touch /tmp/x\n")
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "sub"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(w.dir, "x"), filepath.Join(w.dir, "sub/.git")))
	w.write("file2/.git", "gitdir: ../x\n")
	// A directory that its maker has closed.
	w.write("closed/.envrc", "touch /tmp/x\n")
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "closed"), 0))
	// One with a protected name in it is given the name that makes it one.
	w.write("y/config.toml", "")
	require.NoError(t, os.Rename(filepath.Join(w.dir, "y"), filepath.Join(w.dir, ".cargo")))
	w.write("hidden/.envrc", "")
	w.write("readonly/.envrc", "touch /tmp/x\n")
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "readonly"), 0o500))
	w.write("vs/.vscode/tasks.json", "{}")
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "vs/.vscode"), 0o100))
	require.Equal(t, []string{
		"inert .git", "inert .git/modules/sub", "inert sub/.git/config", "stashed .cargo/config.toml", "stashed closed/.envrc",
		"stashed file2/.git", "stashed fixtures/HEAD", "stashed hook.git/HEAD", "stashed link.git/HEAD", "stashed readonly/.envrc", "stashed vs/.vscode",
	}, w.check())
	require.True(t, w.there("fixtures/user"), "what was the user's stays")
	require.False(t, w.there(".git/rebase-merge"))
	require.Contains(t, w.git(".", "status", "--short"), "fixtures/")
	require.Empty(t, w.check(), "nothing is found twice")

	// The journal is the one that every verb reads.
	found, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	require.Len(t, found, 11)
	i := slices.IndexFunc(found, func(f quarantine.Finding) bool { return f.Path == w.dir+"/.git" })
	require.Len(t, found[i].Parts, 4)
	require.Contains(t, found[i].Why, "rebase-merge: git would execute")
	require.NoError(t, found[i].PutBack(w.session))
	require.True(t, w.there(".git/rebase-merge/git-rebase-todo"))
	require.ErrorContains(t, found[i].PutBack(w.session), "no such file")
	again, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	require.Len(t, again, 10)
	j := slices.IndexFunc(again, func(f quarantine.Finding) bool { return strings.HasSuffix(f.Path, "closed/.envrc") })
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "closed"), 0o755))
	w.write("closed/.envrc", "newer")
	require.ErrorIs(t, again[j].PutBack(w.session), quarantine.ErrInTheWay)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "closed")))
	require.NoError(t, os.Symlink("/tmp", filepath.Join(w.dir, "closed")))
	require.Error(t, again[j].PutBack(w.session), "through no link")
}

// TestWhatStoodInGit is changed by the command where git lets it.
func TestWhatStoodInGit(t *testing.T) {
	w := newTree(t)
	w.write(".git/sequencer/todo", "pick 1\n")
	require.NoError(t, os.Symlink("HEAD", filepath.Join(w.dir, ".git/link")))
	w.write(".git/foreign", "a")
	w.take()
	w.write(".git/sequencer/todo", "pick 2\n")
	require.NoError(t, os.Remove(filepath.Join(w.dir, ".git/link")))
	require.NoError(t, os.Symlink("config", filepath.Join(w.dir, ".git/link")))
	w.write(".git/foreign", "b")
	w.write(".git/index", "no index")
	w.write(".git/MERGE_HEAD", strings.Repeat("0", 40)+"\n")
	require.Equal(t, []string{"inert .git", "review .git/MERGE_HEAD"}, w.check())
	require.False(t, w.there(".git/sequencer/todo"))
	require.False(t, w.there(".git/index"))
	require.False(t, w.there(".git/link"))
	require.True(t, w.there(".git/foreign"))
}

// TestWorktree has its part of the repository outside the workspace.
func TestWorktree(t *testing.T) {
	w := newTree(t)
	main := w.dir
	linked := filepath.Join(t.TempDir(), "linked")
	w.git(".", "worktree", "add", "-q", linked, "-b", "topic")
	w.dir, _ = filepath.EvalSymlinks(linked)
	own := filepath.Join(main, ".git/worktrees/linked")
	w.take(own, filepath.Join(main, "gone"))
	w.write("new", "1")
	w.git(".", "add", "new")
	w.git(".", "commit", "-qm", "in it")
	require.Empty(t, w.check())
	require.NoError(t, os.MkdirAll(own+"/rebase-apply", 0o755))
	found, err := w.record.Check(func() (*os.Root, error) { return w.session, nil })
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, own+"/rebase-apply", found[0].Path)
}

// TestCannotBeMoved leaves under another name what no session takes.
func TestCannotBeMoved(t *testing.T) {
	w := newTree(t)
	w.take()
	w.write(".envrc", "x")
	w.write("sub/.envrc", "x")
	_, err := w.record.Check(func() (*os.Root, error) { return nil, os.ErrPermission })
	require.ErrorIs(t, err, os.ErrPermission)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "sub")))
	require.NoError(t, w.session.Mkdir(quarantine.StashName, 0o700))
	require.NoError(t, w.session.WriteFile(quarantine.StashName+"/0", nil, 0o600)) // not of this run
	require.Equal(t, []string{"stashed .envrc"}, w.check())
	require.False(t, w.there(".envrc"))
	names, err := filepath.Glob(w.dir + "/" + quarantine.Prefix + "*")
	require.NoError(t, err)
	require.Len(t, names, 1)
}
