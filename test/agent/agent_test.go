//go:build linux

package agent

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
)

// TestMainJob is what pccrun is for: the real Claude Code mends a project in a
// sandbox, then tries what it must not, and the session goes on.
//
//test:root
func TestMainJob(t *testing.T) {
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	project := newProject(t)
	require.NoError(t, project.Install(program))
	// The control of the work: outside, the test fails before it is mended.
	// It also warms Go's cache, which is in the workspace.
	out, err := project.Command("go", "test", "./...").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "Add(2, 3) = -1")
	forbidden := listen(t)
	daemon := fmt.Sprintf("86399.%d", os.Getpid())
	attempts := project.Attempts(forbidden.port, daemon)

	endpoint, err := Start(project.Script(attempts))
	require.NoError(t, err)
	defer endpoint.Close()
	var seen []int // the daemon, as the host sees it while the session is on
	endpoint.Before("go on", func() { seen = host.Processes(daemon) })

	// A first run of the agent: no state of its own, and its key is a variable
	// that no flag names.
	require.NoDirExists(t, filepath.Join(project.Home, ".claude"))
	require.NoFileExists(t, filepath.Join(project.Home, ".claude.json"))
	require.Contains(t, project.Environ(), "ANTHROPIC_API_KEY=key-of-the-test")
	require.NotContains(t, endpoint.Flags(), "ANTHROPIC_API_KEY")
	args := append(append(endpoint.Flags(), "--"), Arguments()...)
	cmd := project.Command(host.Program(t), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	t.Logf("pccrun said:\n%s", stderr.String())
	require.NoErrorf(t, err, "claude said:\n%s", stdout.String())

	t.Run("the work is done", func(t *testing.T) {
		require.Contains(t, stdout.String(), "The job is done.")
		require.Equal(t, []string{"key-of-the-test"}, endpoint.Keys())
		for step, want := range map[string][]string{
			"look":   {"begin", "a - b"},
			"mend":   {"updated", "created"},
			"test":   {"ok", "npm: mended"},
			"commit": {"mend Add"},
			"go on":  {"mend Add\nbegin\n[user]"},
		} {
			for i, r := range endpoint.Results(step) {
				require.Falsef(t, r.IsError, "%s: %s", step, r.Text)
				require.Contains(t, r.Text, want[i], step)
			}
		}
		log, err := project.Command("git", "log", "--format=%s %an").Output()
		require.NoError(t, err)
		require.Equal(t, "mend Add Dev\nbegin Dev\n", string(log))
		status, err := project.Command("git", "status", "--porcelain").Output()
		require.NoError(t, err)
		require.Empty(t, string(status))
	})
	for _, a := range attempts {
		if a.Name == "leave a daemon" || a.Name == "plant a configuration" {
			continue // it may happen inside: it must not last
		}
		t.Run("refused: "+a.Name, func(t *testing.T) {
			result := endpoint.Results(a.Name)[0]
			require.NotEmpty(t, result.Text+fmt.Sprint(result.IsError))
			require.NotContains(t, result.Text, a.Escaped)
		})
	}
	require.Zero(t, forbidden.accepted.Load(), "connections to the host's loopback")
	// The report at exit names each, whether it was tried by a tool or a program.
	for name, want := range map[string]string{
		"read a key":           "denied: read " + filepath.Join(project.Home, ".ssh"),
		"plant a hook":         "denied: write " + filepath.Join(project.Workspace, ".git/hooks/post-commit"),
		"plant configuration":  "not saved: .git/config: core.sshcommand (it names a program)",
		"read the environment": "withheld from the environment: DEPLOY_TOKEN",
		"reach a host":         "denied: " + Forbidden,
		"leave a daemon":       "ended at exit: background process sleep",
	} {
		t.Run("named at exit: "+name, func(t *testing.T) { require.Contains(t, stderr.String(), want) })
	}
	t.Run("refused: plant a configuration", func(t *testing.T) {
		require.Contains(t, endpoint.Results("plant a configuration")[0].Text, "set it")
		out, err := project.Command("git", "config", "core.sshCommand").Output()
		require.Error(t, err, "%s", out)
	})
	t.Run("refused: leave a daemon", func(t *testing.T) {
		require.Contains(t, endpoint.Results("leave a daemon")[0].Text, "started")
		require.Len(t, seen, 1, "the daemon runs while the session is on")
		require.Empty(t, host.Processes(daemon))
		require.Contains(t, stderr.String(), "ended at exit: background process sleep")
	})
	t.Run("refused: reach a host", func(t *testing.T) {
		require.True(t, endpoint.Results("reach a host")[0].IsError)
		require.Contains(t, stderr.String(), Forbidden)
	})
}

// TestAttemptsSucceedOutside is the control of the refusals in TestMainJob:
// the same commands, without a sandbox.
func TestAttemptsSucceedOutside(t *testing.T) {
	project := newProject(t)
	forbidden := listen(t)
	daemon := fmt.Sprintf("86398.%d", os.Getpid())
	for _, a := range project.Attempts(forbidden.port, daemon) {
		t.Run(a.Name, func(t *testing.T) {
			out, _ := project.Command("bash", "-c", a.Command).CombinedOutput()
			require.Contains(t, string(out), a.Escaped)
		})
	}
	await.Until(t, "the host's service is reached", func() bool { return forbidden.accepted.Load() == 1 })
	// Whoever started it does not wait until it is what it is to be.
	await.Until(t, "the daemon runs", func() bool { return len(host.Processes(daemon)) == 1 })
	for _, pid := range host.Processes(daemon) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

func newProject(t *testing.T) Project {
	t.Helper()
	for _, program := range []string{"git", "go", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs", program)
		}
	}
	project, err := NewProject(t.TempDir())
	require.NoError(t, err)
	if warm := os.Getenv("PCCRUN_TEST_GOCACHE"); warm != "" {
		out, err := exec.Command("cp", "-r", warm, filepath.Join(project.Workspace, ".cache")).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return project
}

// A listener is a service of the host's loopback that nobody may reach.
type listener struct {
	port     int
	accepted atomic.Int32
}

func listen(t *testing.T) *listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	s := &listener{port: l.Addr().(*net.TCPAddr).Port}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			c.Close()
		}
	}()
	return s
}
