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

	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
)

// TestTask has the real Claude Code do a task: it edits, the check passes, what it leaves is committed, a branch comes back,
// and the conversation goes on.
//
//test:root
func TestTask(t *testing.T) {
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	project := newProject(t)
	require.NoError(t, project.Install(program))
	tree := filepath.Join(filepath.Dir(project.Workspace), "sums-worktrees", "mend")
	file := filepath.Join(tree, "sums.go")
	steps := []Step{
		{Name: "look", Say: "I look at it.", Calls: []Call{Read(file), Bash("git status --short && git branch --show-current")}},
		{Name: "mend", Calls: []Call{Edit(file, "a - b", "a + b"), Write(filepath.Join(tree, "NOTES"), "mended\n")}},
		{Name: "try", Calls: []Call{Bash("git update-ref refs/heads/main HEAD; cat " + project.Home + "/.ssh/id_ed25519; cat " + project.Workspace + "/sums.go")}},
		{Say: "Add adds now."},
	}
	run := func(steps []Step, args ...string) (stdout, stderr string, endpoint *Endpoint) {
		endpoint, err := Start(steps)
		require.NoError(t, err)
		defer endpoint.Close()
		given := slices.DeleteFunc(endpoint.Flags(), func(f string) bool { return f == "GOCACHE" || f == "GOTOOLCHAIN" })
		for len(given) > 0 && given[len(given)-1] == "--env" {
			given = given[:len(given)-1]
		}
		cmd := project.Command(host.Program(t), slices.Concat([]string{"task"}, given, args)...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err = cmd.Run()
		t.Logf("pccrun said:\n%s", said.String())
		require.NoErrorf(t, err, "on standard output:\n%s", out.String())
		return out.String(), said.String(), endpoint
	}
	stdout, stderr, endpoint := run(steps, "--name", "mend", "--check", "grep -q 'a + b' sums.go", "mend Add")
	require.Equal(t, "Add adds now.\n", stdout)
	require.Contains(t, endpoint.Results("look")[1].Text, "task/mend")
	tried := endpoint.Results("try")[0].Text
	require.NotContains(t, tried, project.Secret)
	require.NotContains(t, tried, "package sums", "the user's own work tree is not there")
	for _, want := range []string{"task mend: claude on a new branch task/mend from main", "  edit ", "sums.go", "the check passed", "1 commit, 2 files changed, +2 −1", "git merge task/mend"} {
		require.Contains(t, stderr, want)
	}
	git := func(args ...string) string {
		out, err := project.Command("git", args...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	require.Equal(t, "mend Add Dev\nbegin Dev", git("log", "--format=%s %an", "task/mend"))
	require.Contains(t, git("log", "-1", "--format=%b", "task/mend"), "Assisted-by: claude "+claude.Version)
	require.Equal(t, "begin", git("log", "-1", "--format=%s", "main"), "the user's own branch does not move")
	require.Empty(t, git("status", "--porcelain"))

	// The conversation goes on: the endpoint gets what the first run said, and the same key.
	more := append(steps[:3:3], Step{Name: "more", Calls: []Call{Write(filepath.Join(tree, "MORE"), "more\n")}}, Step{Say: "There is more."})
	stdout, _, endpoint = run(more, "--json", "--continue", "mend", "and more")
	require.False(t, endpoint.Results("more")[0].IsError)
	require.NotEmpty(t, endpoint.Results("mend")[0].Text, "the request carries the conversation")
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
}
