package changes

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace"
)

// plainGit asks git without a sandbox.
func plainGit(questions []workspace.GitQuestion) (answers []workspace.GitAnswer) {
	for _, q := range questions {
		c := exec.Command("git", append([]string{"--git-dir=" + q.Dir, "--shallow-file", ""}, q.Args...)...)
		c.Stdin = strings.NewReader(q.Input)
		out, err := c.Output()
		answers = append(answers, workspace.GitAnswer{Text: out, Err: err})
	}
	return answers
}

// Wherever an apply is killed that brings commits, the one that completes it tells of the
// protected names in them: the first has told nobody.
func TestApplyKilledTellsOfCommits(t *testing.T) {
	repo := fixture.Dir(t)
	git := func(dir, script string) {
		cmd := exec.Command("sh", "-ec", `git() { command git -c user.name=x -c user.email=x@x "$@"; }; `+script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	files := func() map[string]string {
		all := map[string]string{}
		require.NoError(t, filepath.WalkDir(repo, func(path string, d fs.DirEntry, err error) error {
			require.NoError(t, err)
			rel, _ := filepath.Rel(repo, path)
			if d.IsDir() {
				all[rel] = "dir"
			} else if b, err := os.ReadFile(path); err == nil {
				all[rel] = string(b)
			}
			return nil
		}))
		return all
	}
	git(repo, "git init -q; rm -rf .git/hooks; git commit -q --allow-empty -m one")
	before := files()
	git(repo, "git update-index --add --cacheinfo 100755,$(echo hostile | git hash-object -w --stdin),.envrc; git branch x $(git commit-tree -p HEAD -m planted $(git write-tree)); git read-tree HEAD")
	var work [][2]string
	for name, text := range files() {
		if old, there := before[name]; !there || text != "dir" && old != text {
			work = append(work, [2]string{name, text})
		}
	}
	tells := func(o *Outcome) bool {
		for _, f := range o.Committed {
			if strings.HasSuffix(f.Path, "/.envrc") {
				return true
			}
		}
		return false
	}
	killed := 0
	for steps := 0; ; steps += 3 {
		s := newStand(t, before, fixture.Protect(".envrc")...).run(work...).settle()
		if !s.killed("apply", steps) {
			break
		}
		killed++
		out, err := s.apply()
		require.NoError(t, err)
		require.True(t, tells(out), "after %d steps: %v", steps, out.Committed)
		git(s.host, "git checkout -q x; test -e .envrc")
	}
	require.Greater(t, killed, 3)
}
