package docker_test

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/test/internal/dockerd"
	"github.com/pccrun/pccrun/test/internal/host"
)

// These try the program as a user starts it: not root, in the engine's group.

// pccrun returns pccrun as the user starts it in a directory.
func pccrun(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(program(t), args...)
	c.Dir = dir
	c.Env = world.user.Environ(
		[]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "DOCKER_HOST=" + world.engine.Host},
	)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: world.user.Credential()}
	return c
}

// program is a copy of pccrun that the user may execute, wherever the sources are.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(world.user.Home, "pccrun")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	text, err := os.ReadFile(host.Program(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o755))
	return path
}

// status runs it to its end.
func status(t *testing.T, c *exec.Cmd) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// on returns the flags for a runtime.
func on(runtime string, more ...string) []string {
	return append([]string{"--provider", "docker", "--runtime", runtime}, more...)
}

// The same task gives the same commit on this machine, under runc and under runsc.
func TestTheSameTask(t *testing.T) {
	needEngine(t)
	task := func(t *testing.T, flags ...string) (diff string) {
		k := newTask(t, docker.Runc)
		k.write(t, "sum.py", "def add(a, b):\n    return a - b\n")
		k.write(t, "test.py", "from sum import add\nassert add(2, 3) == 5\nprint('ok')\n")
		k.write(t, ".env", "TOKEN=x\n")
		k.asUser(t, "git", "add", "sum.py", "test.py")
		k.asUser(t, "git", "commit", "-qm", "one")
		c := pccrun(t, k.dir, append(flags, "--", "sh", "-ec", `
			export PYTHONDONTWRITEBYTECODE=1
			if python3 test.py 2>/dev/null; then exit 9; fi
			sed -i 's/a - b/a + b/' sum.py
			python3 test.py
			git commit -qam "add adds" --date 2026-01-01T00:00:00
			mkdir .vscode 2>/dev/null || true # gVisor opens what it made, which may be in quarantine by then
			echo x 2>/dev/null >.git/hooks/post-commit || true
			git status --porcelain --untracked-files=no`)...)
		code, out, errs := status(t, c)
		require.Zero(t, code, errs)
		assert.Equal(t, "ok\n", out)
		assert.Contains(t, errs, "quarantined: .vscode")
		assert.NoDirExists(t, filepath.Join(k.dir, ".vscode"))
		assert.NoFileExists(t, filepath.Join(k.dir, ".git/hooks/post-commit"))
		return k.asUser(t, "git", "show", "--format=%s", "HEAD")
	}
	want := task(t)
	assert.Contains(t, want, "+    return a + b")
	eachRuntime(t, func(t *testing.T, runtime string) {
		assert.Equal(t, want, task(t, on(runtime)...))
	})
}

func TestExitCodes(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.write(t, "plain", "no program")
		for _, c := range []struct {
			want  int
			flags []string
			argv  []string
			says  string
		}{
			{7, nil, []string{"sh", "-c", "exit 7"}, ""},
			{124, []string{"--timeout", "1s"}, []string{"sleep", "100"}, "timed out after 1s"},
			{125, []string{"--nested"}, []string{"true"}, "nested"},
			{125, []string{"--docker-image", "pccrun-none:2"}, []string{"true"}, "hint: docker pull pccrun-none:2"},
			{126, nil, []string{"./plain"}, "permission denied"},
			{127, nil, []string{"none-of-this-name"}, "command not found"},
			{128 + 15, nil, []string{"sh", "-c", "kill -TERM $$"}, ""},
		} {
			code, _, errs := status(t, pccrun(t, k.dir, append(append(on(runtime, c.flags...), "--"), c.argv...)...))
			assert.Equal(t, c.want, code, "%v: %s", c.argv, errs)
			assert.Contains(t, errs, c.says)
		}
	})
}

// A launcher that is killed leaves no container, and the next pccrun looks after the rest.
func TestTheLauncherIsKilled(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		c := pccrun(t, k.dir, append(on(runtime), "--", "sh", "-c", "echo started; exec sleep 1000")...)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		line := make([]byte, len("started\n"))
		_, err = io.ReadFull(out, line)
		require.NoError(t, err)
		running := func() string { return client(t, "ps", "--all", "--quiet", "--filter", "label=pccrun.session") }
		assert.NotEmpty(t, running(), "the control")
		require.NoError(t, c.Process.Kill())
		_ = c.Wait()
		assert.Eventually(t, func() bool { return running() == "" }, time.Minute, 50*time.Millisecond)
		state := filepath.Join(world.user.Home, ".local/state/pccrun/docker")
		left, err := os.ReadDir(state)
		require.NoError(t, err)
		assert.Len(t, left, 1, "the control")
		code, _, errs := status(t, pccrun(t, k.dir, "gc"))
		assert.Zero(t, code, errs)
		left, err = os.ReadDir(state)
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

// The engine crashes and comes back: what ran is ended and cleared away, and the next run runs.
func TestTheEngineIsStartedAgain(t *testing.T) {
	needEngine(t)
	runsc, err := dockerd.Runsc()
	require.NoError(t, err)
	mine, err := dockerd.Start(int(world.user.GID), runsc)
	require.NoError(t, err)
	defer func() { require.NoError(t, mine.Stop()) }()
	theirs := world.engine
	world.engine = mine
	defer func() { world.engine = theirs }()
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		c := pccrun(t, k.dir, append(on(runtime), "--", "sh", "-c", "echo started; while sleep .1; do date +%s.%N >tick; done")...)
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		var errs bytes.Buffer
		c.Stderr = &errs
		require.NoError(t, c.Start())
		_, err = io.ReadFull(out, make([]byte, len("started\n")))
		require.NoError(t, err)
		ticks := func() string {
			text, _ := os.ReadFile(filepath.Join(k.dir, "tick"))
			return string(text)
		}
		require.Eventually(t, func() bool { return ticks() != "" }, time.Minute, 50*time.Millisecond, "the control")
		require.NoError(t, mine.Kill())
		_ = c.Wait()
		assert.Equal(t, 128+9, c.ProcessState.ExitCode())
		assert.Contains(t, errs.String(), "the engine stopped during the run, and the container with it\n")
		assert.Eventually(t, func() bool {
			before := ticks()
			time.Sleep(time.Second)
			return ticks() == before
		}, time.Minute, time.Millisecond, "what the engine has left ends by itself")

		require.NoError(t, mine.Restart())
		code, printed, said := status(t, pccrun(t, k.dir, append(on(runtime), "--", "echo", "again")...))
		assert.Zero(t, code, said)
		assert.Equal(t, "again\n", printed)
		code, _, said = status(t, pccrun(t, k.dir, "gc"))
		assert.Zero(t, code, said)
		assert.Empty(t, client(t, "ps", "--all", "--quiet", "--filter", "label=pccrun.session"))
		left, err := os.ReadDir(filepath.Join(world.user.Home, ".local/state/pccrun/docker"))
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

func TestNoPermissionToUseTheEngine(t *testing.T) {
	needEngine(t)
	k := newTask(t, docker.Runc)
	socket := strings.TrimPrefix(world.engine.Host, "unix://")
	require.NoError(t, os.Chmod(socket, 0o600))
	defer os.Chmod(socket, 0o660)
	code, _, errs := status(t, pccrun(t, k.dir, "--provider", "docker", "--", "true"))
	assert.Equal(t, 125, code)
	assert.Contains(t, errs, "docker: no permission to use "+socket)
	assert.Contains(t, errs, "can become root")
}

// The real value of a secret goes out to its host, and the command has a placeholder.
func TestASecret(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		got := make(chan string, 4)
		// Its certificate is for example.com.
		server := httptest.NewTLSServer(
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("X-Token") }),
		)
		defer server.Close()
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil || r.Method != http.MethodConnect {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			from, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			fmt.Fprint(from, "HTTP/1.1 200 OK\r\n\r\n")
			go func() { _, _ = io.Copy(to, from) }()
			_, _ = io.Copy(from, to)
			from.Close()
		}))
		defer proxy.Close()
		_, port, err := net.SplitHostPort(proxy.Listener.Addr().String())
		require.NoError(t, err)
		k := newTask(t, runtime)
		authority := filepath.Join(world.user.Home, "authority.pem")
		require.NoError(
			t,
			os.WriteFile(
				authority,
				pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
				0o644,
			),
		)
		c := pccrun(
			t,
			k.dir,
			append(
				on(
					runtime,
					"--local",
					port,
					"--allow",
					"example.com",
					"--inject",
					"TOKEN=example.com",
				),
				"--",
				"sh",
				"-c",
				`echo "inside $TOKEN"; curl -sS -H "X-Token: $TOKEN" https://example.com/`,
			)...)
		c.Env = append(c.Env, "TOKEN=the-real-one", "HTTPS_PROXY=http://127.0.0.1:"+port, "SSL_CERT_FILE="+authority)
		code, out, errs := status(t, c)
		require.Zero(t, code, errs)
		assert.Contains(t, out, "inside ")
		assert.NotContains(t, out, "the-real-one")
		require.NotEmpty(t, got, errs)
		assert.Equal(t, "the-real-one", <-got)
	})
}

// Root's own files are an identity's inside, and root's on the disk.
func TestRootsWorkspace(t *testing.T) {
	needEngine(t)
	home := t.TempDir()
	dir := filepath.Join(home, "src", "w")
	require.NoError(t, os.MkdirAll(dir+"/.vscode", 0o755))
	for name, text := range map[string]string{"mine": "mine\n", ".env": "SECRET\n", ".vscode/tasks.json": "{}"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(home, "other"), []byte("OTHER"), 0o644))
	run := func(flags []string, sh string) (int, string, string) {
		c := exec.Command(host.Program(t), append(append(append([]string{"--provider", "docker"}, flags...), "--private", "/tmp", "--"), "sh", "-c", sh)...)
		c.Dir = dir
		c.Env = []string{"HOME=" + home, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "DOCKER_HOST=" + world.engine.Host}
		return status(t, c)
	}
	code, out, errs := run([]string{"--home", "persist"}, "id -un; cat mine .env ../../other; echo x >.vscode/tasks.json; echo made >made; cat /etc/shadow; grep Cap /proc/self/status; echo kept >~/kept")
	assert.Zero(t, code, errs)
	assert.True(t, strings.HasPrefix(out, "pccrun\nmine\n"), out+errs)
	assert.NotContains(t, out, "SECRET")
	assert.NotContains(t, out, "OTHER")
	assert.NotContains(t, out, "root:")
	assert.Contains(t, out, "CapPrm:\t0000000000000000")
	text, err := os.ReadFile(dir + "/.vscode/tasks.json")
	require.NoError(t, err)
	assert.Equal(t, "{}", string(text))
	info, err := os.Stat(dir + "/made")
	require.NoError(t, err)
	assert.Zero(t, info.Sys().(*syscall.Stat_t).Uid)
	_, out, errs = run([]string{"--home", "persist"}, "cat ~/kept")
	assert.Equal(t, "kept\n", out, errs)

	code, out, errs = run([]string{"--runtime", "runsc"}, "echo ran")
	assert.Equal(t, 125, code, errs)
	assert.Empty(t, out)
	if world.gvisor {
		assert.Contains(t, errs, "belongs to root, and gVisor cannot map owners")
	}
}
