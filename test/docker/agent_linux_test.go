package docker_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/test/agent"
	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// TestTheRealAgent has Claude Code mend a project, and try what it must not: on this
// machine, under runc and under runsc. The commit is the same.
func TestTheRealAgent(t *testing.T) {
	needEngine(t)
	program, err := claude.Fetch(t.Context())
	if err != nil {
		t.Skip("needs claude code:", err)
	}
	job := func(t *testing.T, flags ...string) (diff string) {
		dir, err := os.MkdirTemp(world.user.Home, "agent-")
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
		// The control of what is refused: outside, the key is there.
		key := exec.Command("cat", project.Home+"/.ssh/id_ed25519")
		key.SysProcAttr = pccrun(t, dir).SysProcAttr
		out, err := key.Output()
		require.NoError(t, err)
		require.Contains(t, string(out), project.Secret)

		c := pccrun(
			t,
			project.Workspace,
			append(append(append(flags, endpoint.Flags()...), "--"), agent.Arguments()...)...)
		c.Env = append(project.Environ(), "DOCKER_HOST="+world.engine.Host)
		code, stdout, stderr := status(t, c)
		require.Zero(t, code, "%s\n%s", stderr, stdout)
		assert.Contains(t, stdout, "The job is done.")
		for step, want := range map[string]string{"test": "ok", "commit": "mend Add", "go on": "mend Add\nbegin"} {
			r := endpoint.Results(step)[0]
			assert.False(t, r.IsError, "%s: %s", step, r.Text)
			assert.Contains(t, r.Text, want, step)
		}
		for _, a := range attempts {
			assert.NotContains(t, endpoint.Results(a.Name)[0].Text, a.Escaped, a.Name)
		}
		assert.True(t, endpoint.Results("reach a host")[0].IsError)
		assert.Contains(t, stderr, agent.Forbidden)
		show := exec.Command("git", "show", "--format=%s %an", "HEAD")
		show.Dir, show.Env, show.SysProcAttr = project.Workspace, project.Environ(), c.SysProcAttr
		out, err = show.Output()
		require.NoError(t, err)
		return string(out)
	}
	under := job(t, on(docker.Runc)...)
	assert.True(t, strings.HasPrefix(under, "mend Add Dev\n"), under)
	assert.Contains(t, under, "+func Add(a, b int) int { return a + b }")
	t.Run("elsewhere", func(t *testing.T) {
		verdicts.SkipUnlessLong(t)
		assert.Equal(t, under, job(t), "this machine")
		assert.Equal(t, under, job(t, on(docker.Runsc)...), "gVisor")
	})
}
