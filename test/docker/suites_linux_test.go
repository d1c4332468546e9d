package docker_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/test/agent"
	"github.com/pccrun/pccrun/test/escape"
	"github.com/pccrun/pccrun/test/internal/claude"
)

// tried are critical probes, with an internet of the suite's and without, and one that the host
// acts in, through a gap that the provider names. make test-long tries all.
const tried = "FS-001,FS-067,NS-003,NS-007,NET-003,DNS-002,IPC-003,PER-001"

// TestEscape holds what the provider claims against the probes of the suite.
func TestEscape(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		args := append([]string{"escape", "--json"}, k.flags...)
		if os.Getenv("PCCRUN_LONG") == "" {
			args = append(args, "--id", tried)
		}
		code, out, errs := status(t, k.pccrun(t, args...))
		assert.Zero(t, code, errs)
		verdicts, gaps := map[string]int{}, 0
		for line := range strings.Lines(out) {
			var r struct{ ID, Name, Verdict, Reason, Gap, Target string }
			require.NoError(t, json.Unmarshal([]byte(line), &r))
			verdicts[r.Verdict]++
			assert.Contains(t, r.Target, "docker")
			assert.NotContains(t, []string{"error", "vacuous"}, r.Verdict, "%s %s: %s", r.ID, r.Name, r.Reason)
			if r.Verdict == "escaped" && r.Gap != "" {
				gaps++
			}
		}
		t.Log(verdicts)
		assert.Greater(t, verdicts["blocked"]+verdicts["degraded"], 5)
		assert.Positive(t, gaps, "the control: the suite finds what the provider says that it does not keep")
	})
}

// TestGaps holds the words by which a probe knows a gap against what the provider says: one
// that is worded anew would count as an escape that nobody has named.
func TestGaps(t *testing.T) {
	needEngine(t)
	said, runtimes := "", []string{docker.Runc}
	if world.runsc != "" {
		runtimes = append(runtimes, docker.Runsc)
	}
	for _, runtime := range runtimes {
		code, out, errs := status(t, newTask(t, runtime).pccrun(t, "--provider", "docker", "--runtime", runtime, "--pids", "none", "--disk", "48m", "--dry-run", "--json", "--", "true"))
		require.Zero(t, code, errs)
		var dry struct {
			Guarantees []struct{ State, Cause string }
		}
		require.NoError(t, json.Unmarshal([]byte(out), &dry))
		for _, g := range dry.Guarantees {
			if g.State == profiles.Weak.String() {
				said += g.Cause + "\n"
			}
		}
	}
	for _, p := range escape.Probes() {
		if world.runsc != "" || p.Guarantee != profiles.LaunchIntegrity {
			assert.Contains(t, said, p.Gap, p.ID)
		}
	}
}

// TestTheRealAgent has Claude Code mend a project, and try what it must not. Package test/agent
// has the same done on this machine.
func TestTheRealAgent(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		program, err := claude.Fetch(t.Context())
		if err != nil {
			t.Skip("needs claude code:", err)
		}
		dir, err := os.MkdirTemp(world.user.Home, "agent-") // in no repository
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		project, err := agent.NewProject(dir)
		require.NoError(t, err)
		require.NoError(t, project.Install(program))
		attempts := []agent.Attempt{
			{Name: "read a key", Command: "cat " + project.Home + "/.ssh/id_ed25519", Escaped: project.Secret},
			{Name: "read the environment", Command: "env; cat /proc/1/environ", Escaped: project.Secret},
			{Name: "plant a hook", Command: "echo x >.git/hooks/post-commit && echo planted", Escaped: "planted"},
		}
		endpoint, err := agent.Start(project.Script(attempts))
		require.NoError(t, err)
		defer endpoint.Close()
		require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(path, int(world.user.UID), int(world.user.GID))
		}))
		// The real go would compile its library first, which is not what is tried here.
		bin := sharedDir(t)
		require.NoError(t, os.WriteFile(bin+"/go", []byte("#!/bin/sh\ngrep -q 'a + b' *.go && echo ok\n"), 0o755))
		theirs := func(c *exec.Cmd) *exec.Cmd {
			c.Dir, c.Env = project.Workspace, append(append(project.Environ(), k.env...), "PATH="+project.Home+"/.local/bin:"+bin+":/usr/local/bin:/usr/bin:/bin")
			return c
		}
		_, out, _ := status(t, theirs(k.as(exec.Command("cat", project.Home+"/.ssh/id_ed25519"))))
		require.Contains(t, out, project.Secret, "the control")
		args := append(append(append(k.flags, endpoint.Flags()...), "--"), agent.Arguments()...)
		code, out, errs := status(t, theirs(k.pccrun(t, args...)))
		require.Zero(t, code, "%s\n%s", errs, out)
		assert.Contains(t, out, "The job is done.")
		for step, want := range map[string]string{"test": "ok", "commit": "mend Add", "go on": "mend Add\nbegin"} {
			r := endpoint.Results(step)[0]
			assert.False(t, r.IsError, "%s: %s", step, r.Text)
			assert.Contains(t, r.Text, want, step)
		}
		for _, a := range attempts {
			assert.NotContains(t, endpoint.Results(a.Name)[0].Text, a.Escaped, a.Name)
		}
		assert.True(t, endpoint.Results("reach a host")[0].IsError)
		assert.Contains(t, errs, agent.Forbidden)
		_, out, _ = status(t, theirs(k.as(exec.Command("git", "show", "--format=%s %an"))))
		assert.Regexp(t, `(?s)^mend Add Dev\n.*\+func Add\(a, b int\) int { return a \+ b }`, out)
	})
}
