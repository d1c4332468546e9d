package docker_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/agent"
	"github.com/pccrun/pccrun/test/internal/modelapi"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// standIn executes its prompt, in the place of Claude Code.
const standIn = `#!/bin/sh
for prompt; do :; done
echo '{"type":"system","subtype":"init","session_id":"3e37aa8c-0000-4000-8000-000000000001","model":"claude-x","claude_code_version":"2.1.332"}'
eval "$prompt" >&2
echo '{"type":"result","subtype":"success","is_error":false,"result":"I did it.","permission_denials":[],"session_id":"3e37aa8c-0000-4000-8000-000000000001"}'
`

// TestTask has a task done in containers, from its first commit to one that goes on, and an image without what it needs refused
// before anything is made.
func TestTask(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		k.write(t, "a.txt", "one\n", ".gitignore", "/bin\n")
		bin, err := os.MkdirTemp(world.user.Home, "bin-") // with an image, of this machine's files those of the home alone can be shown
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(bin)) })
		require.NoError(t, os.Chmod(bin, 0o755))
		require.NoError(t, os.WriteFile(bin+"/claude", []byte(standIn), 0o755))
		k.env = append(k.env, "PATH="+bin+":/usr/local/bin:/usr/bin:/bin")
		hook := "#!/bin/sh\ntest -e /.pccrun\n" // it stands in containers alone
		k.outside(t, "git add -A && git commit -q -m begin")
		k.write(t, ".git/hooks/pre-commit", hook)
		require.NoError(t, os.Chmod(filepath.Join(k.dir, ".git/hooks/pre-commit"), 0o755))
		trees := k.dir + "-worktrees"
		t.Cleanup(func() { _ = os.RemoveAll(trees) })
		do := func(args ...string) (int, string, string) {
			t.Helper()
			return status(t, k.pccrun(t, append([]string{"task"}, args...)...))
		}
		place := k.flags

		imports := func(image, programs string) {
			out, err := exec.Command("sh", "-c", `tar --hard-dereference -ch $({ echo $0; ldd $0; } | grep -o '/[^ :]*' | sort -u) | docker -H "$1" import - $2`, programs, world.engine.Host, image).CombinedOutput()
			require.NoError(t, err, "%s", out)
		}

		// In an image nothing of this machine is executed: one without is refused, by name.
		for name, c := range map[string]struct{ programs, says string }{
			"sh-only": {"/bin/sh", "the image pccrun-test-sh-only has no git: a task needs git and sh there"},
			"no-sh":   {"/usr/bin/env", "a task needs git, sh and the agent in the image: the image pccrun-test-no-sh: sh: no such file"},
			"git":     {"/bin/sh /usr/bin/git", "the image pccrun-test-git has no claude, and it cannot be installed: "},
		} {
			image := "pccrun-test-" + name
			imports(image, c.programs)
			code, _, errs := do(append(place, "--docker-image", image, "--name", "none", "echo x > x")...)
			require.Equal(t, 125, code, errs)
			require.Contains(t, errs, c.says)
			require.NoDirExists(t, trees)
		}
		code, _, errs := do(append(place, "--docker-image", "pccrun-test-git", "--read", bin, "--env", "PATH="+bin+":/usr/bin:/bin", "--name", "shown", "! test -e /usr/bin/env && echo x > x")...)
		require.Zero(t, code, errs)
		require.Contains(t, errs, "1 commit, 1 file changed")

		// An agent that the image lacks is installed there once, and no container can change it.
		config := filepath.Join(world.user.Home, ".config/pccrun/config.jsonc")
		install, err := json.Marshal("echo x >> count; mkdir -p .local/bin; cat > .local/bin/claude <<'EOF'\n" + standIn + "EOF\nchmod 755 .local/bin/claude")
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(config), 0o755))
		require.NoError(t, os.WriteFile(config, []byte(`{"agents": {"claude": {"version": "2.1.332", "install": `+string(install)+`}}}`), 0o644))
		for _, name := range []string{config, filepath.Dir(config), filepath.Dir(filepath.Dir(config))} {
			require.NoError(t, os.Chown(name, int(world.user.UID), int(world.user.GID)))
		}
		imports("pccrun-test-installs", "/bin/sh /usr/bin/git /usr/bin/mkdir /usr/bin/cat /usr/bin/chmod")
		t.Cleanup(func() { require.NoError(t, os.Remove(config)) })
		code, _, errs = do(append(place, "--docker-image", "pccrun-test-installs", "--name", "installed", "! echo x >> $(command -v claude); echo x > x")...)
		require.Zero(t, code, errs)
		code, _, errs = do("--continue", "installed", "echo y > y")
		require.Zero(t, code, errs)
		counts, err := filepath.Glob(filepath.Join(world.user.Home, ".local/share/pccrun/agents/claude-*/tools/count"))
		require.NoError(t, err)
		require.Len(t, counts, 1)
		count, err := os.ReadFile(counts[0])
		require.NoError(t, err)
		require.Equal(t, "x\n", string(count))

		// The control of the hint, and of the hook: each phase is in a container.
		code, said, errs := do(append(place, "--name", "first", "--prepare", "test -e /.pccrun", "--check", "test -e /.pccrun && grep -q two a.txt",
			"test -e /.pccrun && echo two >> a.txt; echo x > .envrc; git update-ref refs/heads/main HEAD~0; ! echo x > "+k.dir+"/a.txt")...)
		require.Zero(t, code, errs)
		require.Equal(t, "I did it.\n", said)
		require.Contains(t, errs, "works in a container (--provider docker")
		require.Contains(t, errs, "your hooks passed, in the sandbox")
		require.Contains(t, errs, "1 quarantined")
		require.Equal(t, "one\n", k.text(t, "a.txt"))
		require.Contains(t, k.outside(t, "git show --stat --format=%s task/first"), "a.txt")

		// It goes on in a container, though no flag says so.
		code, _, errs = do("--continue", "first", "test -e /.pccrun && echo y > y")
		require.Zero(t, code, errs)
		require.Contains(t, k.outside(t, "git show --stat --format=%s task/first"), "y")

		// What its runs cost together is counted here: the third request does not go out, and what stands is committed.
		ln, err := modelapi.Listen()
		require.NoError(t, err)
		defer ln.Close()
		var asked atomic.Int32
		go modelapi.Serve(ln, func(*http.Request) { asked.Add(1) })
		at := ln.Addr().String()
		code, _, errs = do(append(place, "--name", "dear", "--budget", "2", "--allow", at, "--env", "ANTHROPIC_BASE_URL=http://"+at,
			"echo three >> a.txt; for i in 1 2 3 4; do curl -sS -d '{}' $ANTHROPIC_BASE_URL/v1/messages; done; sleep 60")...)
		require.Equal(t, 124, code, errs)
		require.EqualValues(t, 2, asked.Load())
		require.Contains(t, errs, "its budget is spent: $2.20 of $2.00")
		require.Contains(t, k.outside(t, "git show --format=%s task/dear"), "three")
		code, _, errs = do("rm", "--force", "first")
		require.Zero(t, code, errs)
	})
}

// TestTaskOfTheRealAgent has each real agent do a task in a container: of this machine's programs, it brings its own.
func TestTaskOfTheRealAgent(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		for name, real := range agent.TaskedAgents {
			t.Run(name, func(t *testing.T) {
				if real.Long {
					verdicts.SkipUnlessLong(t)
				}
				taskOf(t, k, name, real)
			})
		}
	})
}

func taskOf(t *testing.T, k *task, name string, real agent.Tasked) {
	dir, err := os.MkdirTemp(world.user.Home, "agent-") // in no repository
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	project, err := agent.NewProject(dir)
	require.NoError(t, err)
	// What root has fetched the user cannot read.
	for variable, fetch := range map[string]func(context.Context) (string, error){"PCCRUN_TEST_CLIENTS": npm.FetchClients, "PCCRUN_TEST_OPENCODE": npm.FetchOpencode} {
		if name == "claude" || (name == "opencode") != (variable == "PCCRUN_TEST_OPENCODE") {
			continue
		}
		from, err := fetch(t.Context())
		if err != nil {
			t.Skip("needs "+name+":", err)
		}
		to := filepath.Join(project.Home, "fetched", filepath.Base(from))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		out, err := exec.Command("cp", "-r", from, to).CombinedOutput()
		require.NoError(t, err, "%s", out)
		t.Setenv(variable, to)
	}
	installed := real.Install(t, project)
	file := filepath.Join(filepath.Dir(project.Workspace), "sums-worktrees/mend/sums.go")
	flags, results := real.Play(t, project, []agent.Call{
		real.Read(file), real.Shell("git branch --show-current; ls -d /.pccrun; cat " + project.Home + "/.ssh/id_ed25519"), real.Edit(file),
	}, "Add adds now.")
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(world.user.UID), int(world.user.GID))
	}))
	theirs := func(c *exec.Cmd) *exec.Cmd {
		c.Dir, c.Env = project.Workspace, append(append(project.Environ(), k.env...), "PATH="+project.Home+"/.local/bin:/usr/local/bin:/usr/bin:/bin")
		return c
	}
	args := slices.Concat([]string{"task", "--agent", name}, k.flags, installed, flags, []string{"--name", "mend", "--check", "grep -q 'a + b' sums.go", "mend Add"})
	code, out, errs := status(t, theirs(k.pccrun(t, args...)))
	require.Zero(t, code, "%s\n%s", errs, out)
	require.Equal(t, "Add adds now.\n", out)
	looked := results()
	require.Len(t, looked, 3)
	require.Contains(t, looked[1], "task/mend")
	require.Contains(t, looked[1], "/.pccrun")
	require.NotContains(t, looked[1], project.Secret)
	_, out, _ = status(t, theirs(k.as(exec.Command("git", "show", "--format=%s %an", "task/mend"))))
	require.Regexp(t, `(?s)^mend Add Dev\n.*a \+ b`, out)
	// It goes on in a container, in its conversation, by the flags that it began with.
	code, out, errs = status(t, theirs(k.pccrun(t, "task", "--continue", "mend", "and more")))
	require.Zero(t, code, "%s\n%s", errs, out)
	require.Contains(t, errs, "works in a container (--provider docker")
	require.Equal(t, "Add adds now.\n", out)
}
