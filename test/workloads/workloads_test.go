//go:build linux

package workloads

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/agent"
	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// Each workload is done twice, outside as the control and inside with its
// limits, in a project of its own.
func TestWorkloads(t *testing.T) {
	program := host.Program(t)
	for _, w := range All {
		t.Run(w.Name, func(t *testing.T) {
			w.need(t)
			t.Run("outside", func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, w.Write(dir))
				s := newSurroundings(t, w)
				cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-c", w.Solution)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), s.environ("127.0.0.1")...)
				out, err := cmd.Output()
				require.NoError(t, err)
				control := w
				if w.Outside != "" {
					control.Output = w.Outside
				}
				require.NoError(t, control.Check(dir, string(out)))
				if w.Swarm != "" {
					out, err = exec.CommandContext(t.Context(), "bash", "-eu", "-c", w.Swarm).Output()
					require.NoError(t, err)
					require.Contains(t, string(out), "ESCAPED")
				}
			})
			t.Run("inside", func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, w.Write(dir))
				s := newSurroundings(t, w)
				run := func(script string) (stdout, stderr string, err error) {
					argv := append(append([]string{"-q"}, w.Flags...), s.flags()...)
					cmd := exec.CommandContext(t.Context(), program, append(argv, "--", "bash", "-eu", "-c", script)...)
					cmd.Dir, cmd.Env = dir, append(os.Environ(), s.environ("host.pccrun.internal")...)
					var b bytes.Buffer
					cmd.Stderr = &b
					out, err := cmd.Output()
					return string(out), b.String(), err
				}
				stdout, stderr, err := run(w.Solution)
				require.NoError(t, err, stderr)
				require.NoError(t, w.Check(dir, stdout))
				s.untouched(t)
				if w.Swarm != "" {
					stdout, stderr, err = run(w.Swarm)
					require.Error(t, err)
					require.Contains(t, stderr, "fork", "bash names it")
					require.NotContains(t, stdout, "ESCAPED")
				}
				if w.Last != "" {
					stdout, stderr, err = run(w.Last)
					requireEnded(t, err, stderr)
					require.NotContains(t, stdout, "ESCAPED")
				}
			})
		})
	}
}

// The last attempt is not made outside as it stands; that the memory is there
// to be used up is its control.
func TestLastSucceedsOutside(t *testing.T) {
	for _, w := range All {
		if w.Last == "" {
			continue
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-eu", "-c", w.Last).Output()
		require.NoError(t, err)
		require.Contains(t, string(out), "ESCAPED")
	}
}

func requireEnded(t *testing.T, err error, stderr string) {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, stderr)
	require.Equal(t, 137, exit.ExitCode(), stderr)
	require.Contains(t, stderr, "out of memory")
}

// TestWorkloadsByAgent has the real Claude Code do those that are meant for
// an agent, its model following a script.
func TestWorkloadsByAgent(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	claudeCode, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	program := host.Program(t)
	for _, name := range []string{"calculator with tests", "client of an API", "attempts to escape"} {
		w := named(t, name)
		t.Run(name, func(t *testing.T) {
			w.need(t)
			byAgent(t, w, program, claudeCode)
		})
	}
}

// byAgent has the real client do the work.
func byAgent(t *testing.T, w Workload, program, claudeCode string) {
	dir := t.TempDir()
	p := agent.Project{Home: filepath.Join(dir, "home"), Workspace: filepath.Join(dir, "home", "src", "work"), Secret: "canary-of-the-test"}
	require.NoError(t, os.MkdirAll(p.Workspace, 0o700))
	require.NoError(t, w.Write(p.Workspace))
	require.NoError(t, p.Install(claudeCode))
	s := newSurroundings(t, w)
	script := filepath.Join(p.Workspace, "solution.sh")
	steps := []agent.Step{
		{Name: "write", Say: "I know how.", Calls: []agent.Call{agent.Write(script, w.Solution)}},
		{Name: "do", Calls: []agent.Call{agent.Bash("bash -eu solution.sh")}},
	}
	if w.Last != "" {
		steps = append(steps, agent.Step{Name: "last", Calls: []agent.Call{agent.Bash(w.Last)}})
	}
	endpoint, err := agent.Start(append(steps, agent.Step{Say: "The work is done."}))
	require.NoError(t, err)
	defer endpoint.Close()
	args := append(endpoint.Flags(), s.flags()...)
	args = append(args, "--memory", "1g", "--pids", "150", "--timeout", "4m", "--",
		"claude", "-p", w.Task, "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
	cmd := p.Command(program, args...)
	cmd.Env = append(cmd.Env, s.environ("host.pccrun.internal")...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	done := endpoint.Results("do")
	if w.Last == "" {
		require.NoErrorf(t, err, "%s\n%s", stderr.String(), stdout.String())
		require.Contains(t, stdout.String(), "The work is done.")
	} else {
		// A control group kills what wants too much, and the agent lives on.
		require.Contains(t, stderr.String(), "out of memory", "%s", stdout.String())
	}
	require.Len(t, done, 1)
	require.False(t, done[0].IsError, "%s\n%s", done[0].Text, stderr.String())
	require.NoError(t, w.Check(p.Workspace, strings.TrimSpace(done[0].Text)+"\n"))
	s.untouched(t)
}

func named(t *testing.T, name string) Workload {
	for _, w := range All {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("no workload %q", name)
	return Workload{}
}

func (w Workload) need(t *testing.T) {
	t.Helper()
	for _, n := range w.Needs {
		if _, err := exec.LookPath(n); err != nil {
			t.Skip("needs", n)
		}
	}
}

// surroundings are what a workload needs of the host.
type surroundings struct {
	port   int // of the API, 0 for none
	canary string
	closed int // the port of a listener that nobody may reach
}

func newSurroundings(t *testing.T, w Workload) *surroundings {
	t.Helper()
	s := &surroundings{}
	listen := func() net.Listener {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	if w.API != nil {
		l := listen()
		s.port = l.Addr().(*net.TCPAddr).Port
		server := &http.Server{Handler: w.API(), ReadHeaderTimeout: 10 * time.Second}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
	}
	if w.Attacks {
		s.closed = listen().Addr().(*net.TCPAddr).Port
		s.canary = t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(s.canary, "secret"), []byte("canary\n"), 0o600))
	}
	return s
}

// environ is the environment of the caller's, where the host has this name.
func (s *surroundings) environ(host string) []string {
	return []string{
		fmt.Sprintf("API=http://%s:%d", host, s.port), "CANARY=" + s.canary, fmt.Sprintf("PORT=%d", s.closed),
		"PROCESS=" + strconv.Itoa(os.Getpid()), "DEPLOY_TOKEN=canary",
	}
}

// flags are those by which pccrun grants what is meant to be granted.
func (s *surroundings) flags() []string {
	flags := []string{"--env", "API", "--env", "CANARY", "--env", "PORT", "--env", "PROCESS"}
	if s.port != 0 {
		flags = append(flags, "--local", strconv.Itoa(s.port))
	}
	return flags
}

// untouched says that the place outside is as it was.
func (s *surroundings) untouched(t *testing.T) {
	t.Helper()
	if s.canary == "" {
		return
	}
	entries, err := os.ReadDir(s.canary)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestCheckFinds(t *testing.T) {
	w := Workload{Name: "w", Output: "out", Want: map[string]string{"f": "right"}}
	dir := t.TempDir()
	require.ErrorContains(t, w.Check(dir, "else"), "printed")
	require.ErrorContains(t, w.Check(dir, "out"), "no such file")
	require.NoError(t, Workload{Files: map[string]string{"f": "wrong"}}.Write(dir))
	require.ErrorContains(t, w.Check(dir, "out"), `"wrong"`)
	require.NoError(t, Workload{Files: map[string]string{"f": "right"}}.Write(dir))
	require.NoError(t, w.Check(dir, "out"))
}
