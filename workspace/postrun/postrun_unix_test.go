//go:build linux || darwin

package postrun

import (
	"bytes"
	"encoding/gob"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
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
		Protected: func(path string) (string, bool, bool) {
			for _, pattern := range []string{".envrc", ".vscode", ".cargo/config.toml", "AGENTS.md", ".github/workflows"} {
				if strings.HasSuffix(path, "/"+pattern) {
					return pattern, pattern == "AGENTS.md" || pattern == ".github/workflows", true
				}
			}
			return "", false, false
		},
		Tails: []string{"config.toml"},
		AskGit: func(questions []workspace.GitQuestion) (answers []workspace.GitAnswer) {
			for _, q := range questions {
				var a workspace.GitAnswer
				for _, args := range [][]string{q.Args, q.Else} {
					cmd := exec.Command("git", append([]string{"--git-dir=" + q.Dir, "--shallow-file", ""}, args...)...)
					cmd.Stdin = strings.NewReader(q.Input)
					if a.Text, a.Err = cmd.Output(); a.Err == nil {
						break
					}
				}
				answers = append(answers, a)
			}
			return answers
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
	require.NoError(t, os.Remove(filepath.Join(w.dir, ".git/HEAD")))
	require.NoError(t, os.Symlink("refs/heads/main", filepath.Join(w.dir, ".git/HEAD"))) // by core.preferSymlinkRefs
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
	require.NoError(t, found[i].Restore(w.session))
	require.True(t, w.there(".git/rebase-merge/git-rebase-todo"))
	require.ErrorIs(t, found[i].Restore(w.session), quarantine.ErrInTheWay, "it is back")
	again, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	require.Len(t, again, 10)
	j := slices.IndexFunc(again, func(f quarantine.Finding) bool { return strings.HasSuffix(f.Path, "closed/.envrc") })
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "closed"), 0o755))
	w.write("closed/.envrc", "newer")
	require.ErrorIs(t, again[j].Restore(w.session), quarantine.ErrInTheWay)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "closed")))
	require.NoError(t, os.Symlink("/tmp", filepath.Join(w.dir, "closed")))
	require.Error(t, again[j].Restore(w.session), "through no link")
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
	w.write(".git/packed-refs", strings.TrimSpace(w.git(".", "rev-parse", "HEAD"))+" refs/heads/a;b\n")
	require.Equal(t, []string{"inert .git", "review .git/MERGE_HEAD", "review .git/packed-refs"}, w.check())
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
	found, err := w.record.Check(func() (*os.Root, error) { return nil, os.ErrPermission })
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Contains(t, found[0].What, "renamed to "+quarantine.Prefix)
	require.False(t, w.there(".envrc"))
	names, err := filepath.Glob(w.dir + "/" + quarantine.Prefix + "*")
	require.NoError(t, err)
	require.Len(t, names, 1)
}

// findings returns what a check finds, each as what it is and why.
func (w *tree) findings() (list []string) {
	found, err := w.record.Check(func() (*os.Root, error) { return w.session, nil })
	require.NoError(w, err)
	for _, f := range found {
		what, _, _ := strings.Cut(f.What, " (")
		if commit, in := strings.CutPrefix(what, "in "); in && commit != "the index" {
			what = "in a commit"
		}
		list = append(list, what+": "+strings.TrimPrefix(f.Path, w.dir+"/")+" ("+f.Why+")")
	}
	slices.Sort(list)
	return list
}

// TestCommits finds what git would write outside, and nothing of what stood: also by a record that
// another process reads.
func TestCommits(t *testing.T) {
	w := newTree(t)
	w.write(".envrc", "the user's\n")
	w.write(".vscode/tasks.json", "{}")
	w.git(".", "add", "-A")
	w.git(".", "commit", "-qm", "what stood")
	w.git(".", "switch", "-qc", "stood")
	w.write(".cargo/config.toml", "of a branch that stood")
	w.git(".", "add", "-A")
	w.git(".", "commit", "-qm", "on a branch")
	w.git(".", "switch", "-q", "main")
	linked := filepath.Join(t.TempDir(), "linked")
	w.git(".", "worktree", "add", "-q", linked, "-b", "topic")
	w.take()
	var text bytes.Buffer
	require.NoError(t, gob.NewEncoder(&text).Encode(w.record))
	w.record = new(Record)
	require.NoError(t, gob.NewDecoder(&text).Decode(w.record))
	w.record.Under(w.rules())
	w.git(".", "merge", "-q", "-m", "x", "--no-ff", "--no-commit", "stood")
	w.git(".", "reset", "-q", "--hard")
	w.write("file", "3")
	w.git(".", "commit", "-qam", "the control")
	require.Empty(t, w.findings())

	w.git(".", "switch", "-qc", "bad")
	blob := strings.TrimSpace(w.git(".", "hash-object", "-w", "file"))
	w.git(".", "update-index", "--add", "--cacheinfo", "100644,"+blob+",sub/.envrc", "--cacheinfo", "100644,"+blob+",.envrc")
	w.git(".", "commit", "-qm", "bad")
	w.git(".", "init", "-q", "--bare", "-b", "bad", "new.git")
	w.git(".", "push", "-q", "./new.git", "bad")
	less := strings.TrimSpace(w.git(".", "commit-tree", "-p", "bad", "-m", "less", "main^{tree}"))
	w.git(".", "update-ref", "refs/heads/bad", less)
	w.write(".git/shallow", less+"\n") // the bad commit seems to be no part of its history
	w.git(".", "switch", "-q", "-f", "main")
	w.git(".", "update-index", "--add", "--cacheinfo", "100644,"+blob+",.vscode/tasks.json")
	why := ": git writes it at checkout, merge or stash pop)"
	require.Equal(t, []string{
		"in a commit: .envrc (.envrc" + why, "in a commit: sub/.envrc (.envrc" + why,
		"in the index: .vscode/tasks.json (.vscode: git writes it at `git restore`, `checkout` and `stash`)",
		"its commits contain .envrc, .vscode/tasks.json, sub/.envrc: new.git (git writes it at checkout, merge or stash pop)",
	}, w.findings())

	// What git cannot say is reported.
	rules := w.rules()
	rules.AskGit = func(q []workspace.GitQuestion) []workspace.GitAnswer {
		return slices.Repeat([]workspace.GitAnswer{{Err: workspace.ErrTooMuch}}, len(q))
	}
	w.record.Under(rules)
	require.Contains(t, w.findings()[0], "cannot be read: ")
}

// TestReview finds what may change and has changed, and shows what it held before.
func TestReview(t *testing.T) {
	w := newTree(t)
	for _, name := range []string{"AGENTS.md", "a/AGENTS.md", "b/AGENTS.md", "same/AGENTS.md", ".github/workflows/ci.yml"} {
		w.write(name, "before\n")
	}
	w.take()
	w.write("AGENTS.md", "after\n")
	w.write("same/AGENTS.md", "before\n")
	w.write("c/AGENTS.md", "new\n")
	w.write(".github/workflows/ci.yml", "after\n")
	require.NoError(t, os.Remove(filepath.Join(w.dir, "a/AGENTS.md")))
	require.NoError(t, os.Symlink("sub", filepath.Join(w.dir, ".cargo"))) // the way to a protected name
	require.NoError(t, os.Symlink("sub", filepath.Join(w.dir, "control")))
	require.Equal(t, []string{
		"changed: .github/workflows/ci.yml (.github/workflows)", "changed: AGENTS.md (AGENTS.md)", "link: .cargo (.cargo/config.toml)",
		"new: c/AGENTS.md (AGENTS.md)", "removed: a/AGENTS.md (AGENTS.md)",
	}, w.findings())
	found, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	shown := map[string]string{}
	for _, f := range found {
		if f.Stash == "" {
			continue
		}
		require.NoError(t, f.Show(w.session, func(path string, content []byte, why string) {
			shown[strings.TrimPrefix(f.Path, w.dir+"/")+path] = string(content) + why
		}))
	}
	require.Equal(t, map[string]string{
		".github/workflows/ci.yml": "before\n", "AGENTS.md": "before\n", "a/AGENTS.md": "before\n", ".cargo": "a link to sub",
	}, shown)
	text, err := quarantine.ReadNow(w.dir + "/AGENTS.md")
	require.NoError(t, err)
	require.Equal(t, "after\n", string(text))
}

// TestShow shows what is in quarantine; what is sealed has another body than a name outside has.
func TestShow(t *testing.T) {
	w := newTree(t)
	w.take()
	w.write("twin", "shown\n")
	w.write("x/.vscode/big", strings.Repeat("x", vcs.MaxOriginal+1))
	require.NoError(t, os.Link(filepath.Join(w.dir, "twin"), filepath.Join(w.dir, "x/.vscode/tasks.json")))
	w.write("x/.vscode/closed/f", "f")
	require.NoError(t, syscall.Mkfifo(filepath.Join(w.dir, "x/.vscode/fifo"), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(w.dir, "x/.vscode/closed"), 0))
	w.write(".git/rebase-merge/git-rebase-todo", "exec true\n")
	require.Len(t, w.check(), 2)
	found, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	shown := map[string]string{}
	for _, f := range found {
		require.NoError(t, f.Show(w.session, func(path string, content []byte, why string) {
			shown[strings.TrimPrefix(f.Path, w.dir+"/")+path] = string(content) + why
		}))
	}
	require.Equal(t, map[string]string{
		"x/.vscode/tasks.json": "shown\n", "x/.vscode/big": "262145 bytes, not shown", "x/.vscode/closed/f": "f", "x/.vscode/fifo": "a special file",
		".git/rebase-merge/git-rebase-todo": "exec true\n",
	}, shown)
	for _, f := range found {
		_, err := f.Seal(w.session, true)
		require.NoError(t, err)
	}
	w.write("twin", "changed\n")
	i := slices.IndexFunc(found, func(f quarantine.Finding) bool { return f.Kind == quarantine.Stashed })
	require.NoError(t, found[i].Restore(w.session))
	text, err := os.ReadFile(filepath.Join(w.dir, "x/.vscode/tasks.json"))
	require.NoError(t, err)
	require.Equal(t, "shown\n", string(text))
}
