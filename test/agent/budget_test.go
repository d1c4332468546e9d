//go:build linux

package agent

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/modelapi"
)

// reachable carries connections to the endpoint from an address of this machine that is not its loopback: what pccrun is to
// read has to come by its rules for hosts.
func reachable(t *testing.T, port int) (at string) {
	ln, err := modelapi.Listen()
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				to, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
				if err != nil {
					return
				}
				defer to.Close()
				go io.Copy(to, c)
				io.Copy(c, to)
			}()
		}
	}()
	return ln.Addr().String()
}

// TestBudget has the real Claude Code work under a budget: its streams are counted, and it is ended when that is spent. With
// more it comes to its end.
//
//test:root
func TestBudget(t *testing.T) {
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	project := newProject(t)
	require.NoError(t, project.Install(program))
	for budget, want := range map[string]int{"5": 0, "0.0005": 124} { // an answer of ten tokens costs 0.0003
		var steps []Step
		for i := range 4 {
			steps = append(steps, Step{Name: "step " + strconv.Itoa(i), Calls: []Call{Bash("echo " + strconv.Itoa(i))}})
		}
		endpoint, err := Start(append(steps, Step{Say: "The job is done."}))
		require.NoError(t, err)
		at := reachable(t, endpoint.Port())
		cmd := project.Command(host.Program(t), "--budget", budget, "--allow", at, "--env", "ANTHROPIC_BASE_URL=http://"+at, "--env", "ANTHROPIC_API_KEY=key-of-the-test",
			"--env", "IS_SANDBOX=1", "--", "claude", "-p", "count", "--dangerously-skip-permissions", "--model", "claude-opus-4-8")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err = cmd.Run()
		require.NoError(t, endpoint.Close())
		t.Logf("pccrun said:\n%s", stderr.String())
		code := 0
		if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
			code = ended.ExitCode()
		}
		require.Equal(t, want, code, "%s", stdout.String())
		if want == 0 {
			require.Contains(t, stdout.String(), "The job is done.")
			continue
		}
		require.Contains(t, stderr.String(), "budget spent: $0.0006 of $0.0005")
		require.NotContains(t, stdout.String(), "The job is done.")
	}
}
