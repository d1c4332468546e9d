// Package docker_test tries what no plan shows, with real engines and runtimes, and with pccrun
// as a user starts it: not root, in the engine's group. What becomes of a policy stands in the
// plan, which package providers/docker tries.
package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/test/internal/dockerd"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/tempuser"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// The world of these tests: an engine, and a user whose files are worked on.
var world struct {
	engine *dockerd.Engine
	user   *tempuser.User
	why    string // nothing can be tried
	runsc  string // gVisor's program; "" for none
}

// podman is set where the engine of all tests is Podman's.
const podman = "PCCRUN_TEST_PODMAN"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getuid() != 0 {
		world.why = "needs root, to start an engine"
		return m.Run()
	}
	if _, err := os.Stat(dockerd.Program); err != nil {
		world.why = "needs docker.io"
		return m.Run()
	}
	var err error
	if os.Getenv("PCCRUN_LONG") != "" {
		err = dockerd.BuildRunsc(context.Background())
	}
	if err == nil {
		world.runsc, err = dockerd.Runsc()
	}
	if err == nil {
		world.user, err = tempuser.New()
	}
	switch {
	case err != nil:
	case os.Getenv(podman) != "":
		world.engine, err = dockerd.StartPodman(int(world.user.GID))
	default:
		world.engine, err = dockerd.Start(int(world.user.GID), world.runsc)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	for _, err := range []error{world.engine.Stop(), world.user.Remove()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

func needEngine(t *testing.T) {
	t.Helper()
	if world.why != "" {
		t.Skip(world.why)
	}
}

// eachRuntime runs a test with runc, and in `make test-long` with runsc.
func eachRuntime(t *testing.T, test func(t *testing.T, k *task)) {
	for _, runtime := range []string{docker.Runc, docker.Runsc} {
		t.Run(runtime, func(t *testing.T) {
			needEngine(t)
			if runtime == docker.Runsc {
				verdicts.SkipUnlessLong(t)
			}
			test(t, newTask(t, runtime))
		})
	}
}

// A task is a repository of the user's, in which he starts pccrun.
type task struct {
	dir   string
	flags []string
	env   []string
}

func newTask(t *testing.T, runtime string) *task {
	t.Helper()
	dir, err := os.MkdirTemp(world.user.Home, "work-")
	require.NoError(t, err)
	require.NoError(t, os.Chown(dir, int(world.user.UID), int(world.user.GID)))
	k := &task{dir: dir, flags: []string{"--provider", "docker", "--runtime", runtime}, env: []string{"DOCKER_HOST=" + world.engine.Host}}
	k.outside(t, "git init -q -b main . && git config user.name T && git config user.email t@example.org")
	return k
}

func (k *task) gvisor() bool { return k.flags[3] == docker.Runsc }

// as makes a program the user's.
func (k *task) as(c *exec.Cmd) *exec.Cmd {
	c.Dir, c.Env = k.dir, world.user.Environ(append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, k.env...))
	c.SysProcAttr = &syscall.SysProcAttr{Credential: world.user.Credential()}
	return c
}

// outside runs a script of the user's on this machine.
func (k *task) outside(t *testing.T, script string) string {
	t.Helper()
	out, err := k.as(exec.Command("sh", "-c", script)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// pccrun is a copy of the program, which the user may execute wherever the sources are.
func (k *task) pccrun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(world.user.Home, "pccrun")
	if _, err := os.Stat(path); err != nil {
		text, err := os.ReadFile(host.Program(t))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, 0o755))
	}
	return k.as(exec.Command(path, args...))
}

// in is a script in a container; flags are words.
func (k *task) in(t *testing.T, flags, script string, args ...string) *exec.Cmd {
	t.Helper()
	argv := append(append(k.flags[:len(k.flags):len(k.flags)], strings.Fields(flags)...), "--", "sh", "-c", script, "sh")
	return k.pccrun(t, append(argv, args...)...)
}

// run runs it.
func (k *task) run(t *testing.T, flags, script string, args ...string) (code int, out, errs string) {
	t.Helper()
	return status(t, k.in(t, flags, script, args...))
}

// status runs a program to its end.
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

// begin starts a script whose first act is to make the file "begun"; end waits for its end.
func (k *task) begin(t *testing.T, flags, script string, args ...string) (c *exec.Cmd, end func() (code int, out, errs string)) {
	t.Helper()
	var out, errs bytes.Buffer
	c = k.in(t, flags, "echo x >begun; "+script, args...)
	c.Stdout, c.Stderr = &out, &errs
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	await.Until(t, "the command begins", func() bool {
		select {
		case <-ended:
			require.Fail(t, "it has ended", errs.String())
		default:
		}
		return k.there("begun")
	})
	return c, func() (int, string, string) {
		t.Helper()
		await.Closed(t, "the command ends", ended)
		return c.ProcessState.ExitCode(), out.String(), errs.String()
	}
}

// exec is another command in the container, once the launcher answers: the first may have begun by then.
func (k *task) exec(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	await.Until(t, "another command runs", func() bool { code, _, _ := status(t, k.pccrun(t, "exec", "--", "sh", "-c", ":")); return code == 0 })
	return k.pccrun(t, append([]string{"exec", "--"}, argv...)...)
}

// write writes files of the user's: names, each with its text.
func (k *task) write(t *testing.T, files ...string) {
	t.Helper()
	for ; len(files) > 0; files = files[2:] {
		require.True(t, filepath.IsLocal(files[0]), files[0])
		path := filepath.Join(k.dir, files[0])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(files[1]), 0o644))
		for p := path; strings.HasPrefix(p, k.dir+"/"); p = filepath.Dir(p) { // never a directory above his own
			require.NoError(t, os.Chown(p, int(world.user.UID), int(world.user.GID)))
		}
	}
}

// text is what stands in a file.
func (k *task) text(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(k.dir, name))
	require.NoError(t, err)
	return string(text)
}

// there reports whether something is written in a file.
func (k *task) there(name string) bool {
	info, err := os.Stat(filepath.Join(k.dir, name))
	return err == nil && info.Size() > 0
}

// The answers after which a test acts: a container is planned, and is made, with nothing mounted.
const (
	isPlanned = "/images/"
	isMade    = "/containers/create"
)

// after has something done once, when the engine gives such an answer. others change its answers.
func (k *task) after(t *testing.T, answer string, do func(), others ...func(*http.Response) error) {
	t.Helper()
	at, stop, err := world.engine.Between(int(world.user.GID), append(others, func(r *http.Response) error {
		if strings.Contains(r.Request.URL.Path, answer) && do != nil {
			do()
			do = nil
		}
		return nil
	})...)
	require.NoError(t, err)
	t.Cleanup(stop)
	k.env[0] = "DOCKER_HOST=" + at
}

// client is the engine's own command line.
func client(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", append([]string{"-H", world.engine.Host}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// containers are those of runs, and leftOnDisk their directories.
func containers(t *testing.T) string {
	return client(t, "ps", "--all", "--quiet", "--no-trunc", "--filter", "label=pccrun.session")
}

func leftOnDisk(t *testing.T) []os.DirEntry {
	left, err := os.ReadDir(filepath.Join(world.user.Home, ".local/state/pccrun/docker"))
	require.NoError(t, err)
	return left
}

// inEngine runs a program where the engine's mounts are.
func inEngine(t *testing.T, argv ...string) {
	t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--mount", "--target", strconv.Itoa(world.engine.Pid())}, argv...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// usersImage is the name of an image with busybox, and with a file of its own.
func usersImage(t *testing.T) string {
	t.Helper()
	const name = "pccrun-test:1"
	if client(t, "images", "--quiet", name) == "" {
		make := world.engine.Busybox(name, filepath.Join(world.user.Home, "pccrun"))
		out, err := exec.Command(make[0], make[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return name
}

// TestPodman runs tests again, with Podman's engine.
func TestPodman(t *testing.T) {
	needEngine(t)
	if _, err := os.Stat(dockerd.Podman); err != nil {
		t.Skip("needs podman")
	}
	tests := "RunsACommand|Files|TheLauncherIsKilled"
	if os.Getenv("PCCRUN_LONG") != "" {
		tests += "|StreamsAndSignals|Terminal|Doors|ADoorThatIsGone|Network|ASwappedDirectory|Flags|ASecret|Escape"
	}
	c := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^Test("+tests+")$/^runc$")
	c.Env = append(os.Environ(), podman+"=1")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestRunsACommand/runc")
}

// A command runs, without rights. What it is, reads and knows stands in nothing that the engine
// keeps, and nothing of it is left. This is tried with gVisor wherever that is.
func TestRunsACommand(t *testing.T) {
	for _, runtime := range []string{docker.Runc, docker.Runsc} {
		t.Run(runtime, func(t *testing.T) {
			needEngine(t)
			if runtime == docker.Runsc && world.runsc == "" {
				t.Skip("needs runsc")
			}
			k := newTask(t, runtime)
			k.env = append(k.env, "SECRET=hush-1")
			_, end := k.begin(t, "--env SECRET --events events", `uname -r; id -u; pwd; echo "$SECRET $1"; cat /proc/self/status
unshare -Ur true && echo namespace; cat /proc/1/environ; ls /proc/1/fd /sys/class/net; until [ -e over ]; do sleep 0.05; done
sleep 1000 & until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.05; done; exit 3`, "hush-2")
			kept := client(t, "inspect", containers(t))
			assert.Contains(t, kept, "pccrun", "the control")
			assert.NotContains(t, kept, "hush-")
			k.write(t, "over", "")
			code, out, errs := end()
			assert.Equal(t, 3, code, errs)
			kernel, rest, _ := strings.Cut(out, "\n")
			assert.Equal(t, k.gvisor(), strings.Contains(kernel, "gvisor"), kernel)
			assert.True(t, strings.HasPrefix(rest, fmt.Sprintf("%d\n%s\nhush-1 hush-2\n", world.user.UID, k.dir)), out)
			for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
				assert.Contains(t, out, line)
			}
			assert.NotContains(t, out, "namespace")
			assert.NotContains(t, out, "eth")
			assert.Equal(t, 1, strings.Count(out, "hush-1"))
			info, err := os.Stat(filepath.Join(k.dir, "begun"))
			require.NoError(t, err)
			assert.Equal(t, world.user.UID, info.Sys().(*syscall.Stat_t).Uid)
			assert.Contains(t, k.text(t, "events"), "ended at exit: background process sleep")
			assert.Empty(t, containers(t))
			assert.Empty(t, leftOnDisk(t))
		})
	}
}

func TestStreamsAndSignals(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		in := strings.Repeat("0123456789abcdef", 1<<16)
		c := k.in(t, "", "trap 'echo usr1; exit 4' USR1; cat; echo no >&2; echo x >ready; while :; do sleep 0.05; done")
		c.Stdin = strings.NewReader(in)
		go func() {
			await.Until(t, "the input is read", func() bool { return k.there("ready") })
			assert.NoError(t, c.Process.Signal(syscall.SIGUSR1))
		}()
		code, out, errs := status(t, c)
		assert.Equal(t, 4, code, errs)
		assert.Equal(t, in+"usr1\n", out)
		assert.Contains(t, errs, "no\n")

		// Without an input, and with a signal that is its end.
		code, out, _ = k.run(t, "", `wc -c; head -c 10000000 /dev/zero; kill -SEGV $$`)
		assert.Len(t, out, 10000002)
		assert.Equal(t, 128+int(syscall.SIGSEGV), code)
	})
}

// A launcher that is killed leaves no container, and the next pccrun looks after the rest.
func TestTheLauncherIsKilled(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		c, end := k.begin(t, "", "exec sleep 1000")
		assert.NotEmpty(t, containers(t), "the control")
		require.NoError(t, c.Process.Kill())
		end()
		await.Until(t, "the container ends", func() bool { return containers(t) == "" })
		assert.Len(t, leftOnDisk(t), 1, "the control")
		code, _, errs := status(t, k.pccrun(t, "gc"))
		assert.Zero(t, code, errs)
		assert.Empty(t, leftOnDisk(t))
	})
}

// The engine crashes and comes back: what ran is ended and cleared away, and the next run runs.
// This engine keeps its data elsewhere.
func TestTheEngineIsStartedAgain(t *testing.T) {
	needEngine(t)
	const data = "/opt/pccrun-engine"
	mine, err := dockerd.StartAt(data, int(world.user.GID), world.runsc)
	require.NoError(t, err)
	defer func() { require.NoError(t, mine.Stop()) }()
	theirs := world.engine
	world.engine = mine
	defer func() { world.engine = theirs }()
	assert.Equal(t, data, client(t, "info", "--format", "{{.DockerRootDir}}"))
	eachRuntime(t, func(t *testing.T, k *task) {
		_, end := k.begin(t, "", "exec sleep 1000")
		id := containers(t)
		runs := func() bool {
			names, _ := filepath.Glob("/proc/[0-9]*/cgroup")
			for _, name := range names {
				if text, _ := os.ReadFile(name); bytes.Contains(text, []byte(id)) {
					return true
				}
			}
			return false
		}
		require.True(t, runs(), "the control")
		require.NoError(t, mine.Kill())
		code, _, errs := end()
		assert.Equal(t, 128+9, code)
		assert.Contains(t, errs, "the engine stopped during the run, and the container with it\n")
		await.Until(t, "what the engine has left ends by itself", func() bool { return !runs() })

		require.NoError(t, mine.Restart())
		code, out, errs := k.run(t, "", "echo again")
		assert.Zero(t, code, errs)
		assert.Equal(t, "again\n", out)
		code, _, errs = status(t, k.pccrun(t, "gc"))
		assert.Zero(t, code, errs)
		assert.Empty(t, containers(t))
		assert.Empty(t, leftOnDisk(t))
	})
}

// Another command in a container has what the first has, and no more.
func TestExec(t *testing.T) {
	eachRuntime(t, func(t *testing.T, k *task) {
		const rights = "grep -E 'Seccomp|NoNewPrivs|Cap' /proc/self/status"
		k.write(t, ".env", "TOKEN=x\n")
		_, end := k.begin(t, "--env MINE=mine", rights+" >first; until [ -e over ]; do sleep 0.05; done; exit 3")
		exec := func(script string) *exec.Cmd {
			c := k.exec(t, "sh", "-c", script)
			c.Stdin = strings.NewReader("given\n")
			return c
		}
		code, out, errs := status(t, exec("cat; pwd; echo $MINE; cat .env; echo mistake >&2; echo x >/etc/x || exit 7"))
		assert.Equal(t, 7, code)
		assert.Equal(t, "given\n"+k.dir+"\nmine\n", out)
		assert.Contains(t, errs, "mistake\n")
		assert.Contains(t, k.outside(t, "cat .env"), "TOKEN", "the control")
		await.Until(t, "the first command has written", func() bool { return strings.Count(k.text(t, "first"), "\n") > 6 })
		_, out, _ = status(t, exec(rights))
		assert.Equal(t, k.text(t, "first"), out)
		assert.NotEqual(t, out, k.outside(t, rights), "the control")
		code, _, errs = status(t, k.exec(t, "none-of-this-name"))
		assert.Equal(t, 127, code, errs)
		code, out, _ = status(t, exec("sleep 600 & head -c 10000000 /dev/zero; kill -9 $$"))
		assert.Equal(t, 128+9, code)
		assert.Len(t, out, 10000000)

		code, out, errs = status(t, k.pccrun(t, "stats", "--json"))
		assert.Zero(t, code, errs)
		for _, want := range []string{`"provider": "docker"`, `"memory": [1-9]`, `"cpu_ms": [1-9]`, `"io_by": "docker"`} {
			assert.Regexp(t, want, out)
		}

		// It goes with its pccrun, and with the session.
		c := exec("echo $$ >number; exec sleep 601")
		require.NoError(t, c.Start())
		await.Until(t, "the other command has begun", func() bool { return k.there("number") })
		require.NoError(t, c.Process.Kill())
		_ = c.Wait()
		await.Until(t, "the other command ends", func() bool { code, _, _ := status(t, exec("kill -0 $(cat number)")); return code == 1 })
		c = exec("echo x >last; exec sleep 602")
		require.NoError(t, c.Start())
		await.Until(t, "the last command has begun", func() bool { return k.there("last") })
		k.write(t, "over", "")
		_ = c.Wait()
		assert.Equal(t, 128+9, c.ProcessState.ExitCode())
		code, _, errs = end()
		assert.Equal(t, 3, code, errs)
	})
}

// What goes wrong has one line and, where something mends it, a hint.
func TestWhatGoesWrong(t *testing.T) {
	needEngine(t)
	k := newTask(t, docker.Runc)
	fails := func(want, hint string) {
		t.Helper()
		code, out, errs := k.run(t, "", "echo it ran")
		assert.Equal(t, 125, code)
		assert.Empty(t, out)
		assert.Contains(t, errs, want)
		assert.Contains(t, errs, hint)
	}
	code, _, errs := k.run(t, "", "true")
	require.Zero(t, code, "the control: "+errs)
	state := filepath.Join(world.user.Home, ".local/state/pccrun/docker")
	inEngine(t, "mount", "-t", "tmpfs", "none", state) // to the engine another file system is there
	fails("has other files than this machine", "--provider native")
	inEngine(t, "umount", state)
	socket := strings.TrimPrefix(world.engine.Host, "unix://")
	require.NoError(t, os.Chmod(socket, 0o600))
	defer os.Chmod(socket, 0o660)
	fails("docker: no permission to use "+socket, "can become root")
	assert.Empty(t, leftOnDisk(t))
}

func TestAnImageOfTheUsers(t *testing.T) {
	needEngine(t)
	k := newTask(t, docker.Runc)
	k.pccrun(t)
	k.write(t, "a", "workspace\n")
	code, out, errs := k.run(t, "--env PATH=/bin --docker-image "+usersImage(t), "cat a /of-the-image; ls /")
	assert.Zero(t, code, errs)
	assert.True(t, strings.HasPrefix(out, "workspace\nmine\n"), out)
	assert.NotContains(t, out, "boot\n")
	code, _, errs = status(t, k.pccrun(t, append(k.flags, "--docker-image", usersImage(t), "--", "none-of-this-name")...))
	assert.Equal(t, 127, code)
	assert.Contains(t, errs, "the image pccrun-test:1: none-of-this-name")

	empty := exec.Command("sh", "-c", "tar cT /dev/null | docker -H "+world.engine.Host+" import --change 'VOLUME /data' - pccrun-test:3")
	text, err := empty.CombinedOutput()
	require.NoError(t, err, "%s", text)
	code, _, errs = k.run(t, "--docker-image pccrun-test:3", "true")
	assert.Equal(t, 125, code)
	assert.Contains(t, errs, "declares volumes")
}

// With an engine in a virtual machine nothing goes by a socket that both sides have: files, the
// network and other commands are the policy's all the same. What is not shared with it is refused.
func TestAVirtualMachine(t *testing.T) {
	needEngine(t)
	k := newTask(t, docker.Runc)
	k.pccrun(t)
	k.after(t, "", nil, dockerd.OtherKernel)
	k.flags = append(k.flags, "--env", "PATH=/bin", "--docker-image", usersImage(t))
	k.write(t, "a", "workspace\n", ".env", "TOKEN=secret\n")
	port := serve(t)
	_, end := k.begin(t, "--local "+port, strings.Join([]string{
		"cat a /of-the-image .env; echo x >.git/hooks/post-commit",
		"wget -qO- http://host.pccrun.internal:" + port,
		"unset http_proxy HTTP_PROXY; wget -qO- http://host.pccrun.internal:" + port + "/by-name; wget -qO- http://evil.example/by-name",
		"while [ ! -e over ]; do cat a >/dev/null; done; exit 3",
	}, "\n"))
	list := filepath.Join(world.user.Home, ".local/state/pccrun/docker", leftOnDisk(t)[0].Name())
	assert.FileExists(t, list+"/pccrun", "the control: the launcher's copy")
	_, _, _ = status(t, k.exec(t, "touch", "over")) // which may end with the first
	code, out, errs := end()
	assert.Equal(t, 3, code, errs)
	assert.Equal(t, "workspace\nmine\nserved\nserved\n", out, errs)
	assert.Contains(t, errs, "evil.example")
	assert.NoFileExists(t, filepath.Join(k.dir, ".git/hooks/post-commit"))

	k.swapped(t, dockerd.OtherKernel) // inodes have one number on both sides here
	require.NoError(t, os.Remove(filepath.Join(k.dir, "inner")))
	k.write(t, "inner/a", "mine")
	k.after(t, isPlanned, func() { assert.NoError(t, os.RemoveAll(filepath.Join(k.dir, "inner"))) }, dockerd.OtherKernel)
	code, _, errs = k.run(t, "--read inner", "true")
	assert.Equal(t, 125, code)
	assert.Contains(t, errs, "does not have each directory that the run shows")
}
