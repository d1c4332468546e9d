//go:build linux

package agent

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestTask has each real agent do a task: it edits, the check passes, what it leaves is committed, a branch comes back, and
// the conversation goes on.
//
//test:root claude
func TestTask(t *testing.T) {
	for name, agent := range TaskedAgents {
		t.Run(name, func(t *testing.T) {
			if agent.Long {
				verdicts.SkipUnlessLong(t)
			}
			project := newProject(t)
			installed := agent.Install(t, project)
			tree := filepath.Join(filepath.Dir(project.Workspace), "sums-worktrees", "mend")
			file := filepath.Join(tree, "sums.go")
			run := func(calls []Call, last string, args ...string) (stdout, stderr string, results []string) {
				flags, brought := agent.Play(t, project, calls, last)
				cmd := project.Command(host.Program(t), slices.Concat([]string{"task", "--agent", name}, installed, flags, args)...)
				var out, said bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &said
				err := cmd.Run()
				t.Logf("pccrun said:\n%s", said.String())
				require.NoErrorf(t, err, "on standard output:\n%s", out.String())
				results = brought()
				require.Len(t, results, len(calls))
				return out.String(), said.String(), results
			}
			calls := []Call{
				agent.Read(file), agent.Shell("git status --short && git branch --show-current"), agent.Edit(file), agent.Shell("echo mended > NOTES"),
				agent.Shell("git update-ref refs/heads/main HEAD; cat " + project.Home + "/.ssh/id_ed25519; cat " + project.Workspace + "/sums.go"),
			}
			stdout, stderr, results := run(calls, "Add adds now.", "--name", "mend", "--check", "grep -q 'a + b' sums.go", "mend Add")
			require.Equal(t, "Add adds now.\n", stdout)
			require.Contains(t, results[0], "a - b")
			require.Contains(t, results[1], "task/mend")
			require.NotContains(t, results[4], project.Secret)
			require.NotContains(t, results[4], "package sums", "the user's own work tree is not there")
			for _, want := range []string{"task mend: " + name + " on a new branch task/mend from main", "  edit ", "sums.go", "  run ", "the check passed", "1 commit, 2 files changed, +2 −1", "git merge task/mend"} {
				require.Contains(t, stderr, want)
			}
			git := func(args ...string) string {
				out, err := project.Command("git", args...).Output()
				require.NoError(t, err)
				return strings.TrimSpace(string(out))
			}
			require.Equal(t, "mend Add Dev\nbegin Dev", git("log", "--format=%s %an", "task/mend"))
			require.Equal(t, "Add adds now.\n\nAssisted-by: "+name+agent.By, git("log", "-1", "--format=%b", "task/mend"))
			require.Equal(t, "begin", git("log", "-1", "--format=%s", "main"), "the user's own branch does not move")
			require.Empty(t, git("status", "--porcelain"))

			// The conversation goes on: the request carries what the first run said.
			more := append(slices.Clip(calls), agent.Shell("echo more > MORE"))
			stdout, _, results = run(more, "There is more.", "--json", "--continue", "mend", "and more")
			require.Contains(t, results[1], "task/mend")
			var last struct {
				Type, Branch, Message string
				Status, Commits       int
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
			require.Equal(t, "result", last.Type)
			require.Equal(t, "There is more.", last.Message)
			require.Equal(t, 2, last.Commits)
			require.Equal(t, "more", git("show", "task/mend:MORE"))

			git("merge", "-q", "task/mend")
			out, err := project.Command(host.Program(t), "task", "clean").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.NoDirExists(t, tree)
			require.Equal(t, "* main", git("branch"))
			_, err = os.Stat(filepath.Dir(tree))
			require.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}
