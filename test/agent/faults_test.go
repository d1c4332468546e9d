//go:build linux

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
)

// claudeTasks is a project in which the real Claude Code does tasks against an endpoint of these steps. The function that it returns
// is `pccrun task`, with the way to the endpoint where a task begins.
func claudeTasks(t *testing.T, steps func(tree string) []Step) (p Project, e *Endpoint, do func(args ...string) (status int, stdout, stderr string)) {
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	p = newProject(t)
	require.NoError(t, p.Install(program))
	e, err = Start(steps(filepath.Join(filepath.Dir(p.Workspace), "sums-worktrees", "mend")))
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return p, e, func(args ...string) (int, string, string) {
		cmd := p.Command(host.Program(t), append([]string{"task"}, args...)...)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		err := cmd.Run()
		t.Logf("pccrun said:\n%s", said.String())
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), said.String()
	}
}

// way are the flags of a task that leads to the endpoint.
func way(e *Endpoint) []string {
	return []string{"--agent", "claude", "--name", "mend", "--local", fmt.Sprint(e.Port()), "--env", fmt.Sprintf("ANTHROPIC_BASE_URL=http://host.pccrun.internal:%d", e.Port()),
		"--env", "CLAUDE_CODE_MAX_RETRIES=2"}
}

// TestOverloaded has an API answer 529: twice, which the agent sits out, and then without end, which ends the task with its work
// kept. When the API is well again the task goes on where it was, with the flags that it began with.
//
//test:root
func TestOverloaded(t *testing.T) {
	project, endpoint, do := claudeTasks(t, func(tree string) []Step {
		return []Step{
			{Name: "first", Calls: []Call{Bash("echo first > FIRST")}},
			{Name: "second", Calls: []Call{Bash("echo second > SECOND")}},
			{Name: "third", Calls: []Call{Bash("echo third > THIRD; cat FIRST SECOND")}},
			{Say: "It is done."},
		}
	})
	endpoint.Overload(2)
	endpoint.Before("second", func() { endpoint.Overload(1000) })
	status, stdout, stderr := do(append(way(endpoint), "write files")...)
	require.Equal(t, 1, status, stdout)
	require.Contains(t, stderr, "  retry  the API")
	require.Contains(t, stderr, "status 529")
	require.Regexp(t, "the task is not done: the agent ended with an error: .*529", stderr)
	show := func(what string) string {
		out, err := project.Command("git", "show", "task/mend:"+what).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.Equal(t, "first\nsecond\n", show("FIRST")+show("SECOND"))
	out, err := project.Command("git", "log", "--format=%s", "main..task/mend").CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "unfinished: write files\n", string(out))

	endpoint.Overload(0)
	status, stdout, stderr = do("--continue", "mend", "go on")
	require.Zero(t, status, stdout)
	require.Contains(t, stderr, "with --local ")
	require.Equal(t, "It is done.\n", stdout)
	require.Equal(t, "third\n", show("THIRD"))
	require.Contains(t, endpoint.Results("third")[0].Text, "first\nsecond")
}

// TestUntil has the real Claude Code go on in one conversation until a command succeeds, of whose output it is told the end.
//
//test:root
func TestUntil(t *testing.T) {
	project, endpoint, do := claudeTasks(t, func(tree string) []Step {
		return []Step{{Name: "half", Calls: []Call{Read(filepath.Join(tree, "sums.go")), Bash("echo half > NOTES")}}, {Name: "believes", Say: "It is done."}}
	})
	told := ""
	endpoint.Before("believes", func() {
		endpoint.Then(
			Step{Name: "rest", Calls: []Call{Edit(filepath.Join(filepath.Dir(project.Workspace), "sums-worktrees/mend/sums.go"), "a - b", "a + b")}},
			Step{Say: "Now it is."},
		)
	})
	endpoint.Before("rest", func() { told = endpoint.Told() })
	status, stdout, stderr := do(slices.Concat(way(endpoint), []string{"--until", "echo Add still takes away; grep -q 'a + b' sums.go", "mend Add"})...)
	require.Zero(t, status, stdout)
	require.Equal(t, "Now it is.\n", stdout)
	require.Contains(t, told, "mend Add")
	require.Contains(t, told, "it has ended with status 1")
	require.True(t, strings.Contains(told, "The end of its output:\n\nAdd still takes away"), told)
	require.Contains(t, stderr, "exit 1, run 1 of 5")
	require.Contains(t, stderr, "exit 0, run 2 of 5")
	out, err := project.Command("git", "show", "--stat", "--format=%s", "task/mend").CombinedOutput()
	require.NoError(t, err)
	require.Regexp(t, `(?s)^mend Add\n.*NOTES.*sums\.go`, string(out))
}
