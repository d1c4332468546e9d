// Package docker_test tries providers/docker with engines and runtimes that are real.
package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/test/internal/dockerd"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// The world of these tests: an engine, and a user whose files are worked on.
var world struct {
	engine *dockerd.Engine
	user   *tempuser.User
	why    string // nothing can be tried
	gvisor bool
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inside.Verb { // in a container
		os.Exit(inside.Main(os.Args[2:]))
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	if os.Getuid() != 0 {
		world.why = "needs root, to start an engine"
		return m.Run()
	}
	if _, err := os.Stat(dockerd.Program); err != nil {
		world.why = "needs docker.io"
		return m.Run()
	}
	if os.Getenv("PCCRUN_LONG") != "" {
		if err := dockerd.BuildRunsc(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	runsc, err := dockerd.Runsc()
	if err == nil {
		if _, err := os.Stat(runsc); err != nil {
			runsc = ""
		}
		world.gvisor = runsc != ""
		world.user, err = tempuser.New()
	}
	switch {
	case err != nil:
	case os.Getenv(podman) != "":
		world.gvisor = false
		world.engine, err = dockerd.StartPodman(int(world.user.GID))
	default:
		world.engine, err = dockerd.Start(int(world.user.GID), runsc)
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

// podman is set where the engine of all tests is Podman's.
const podman = "PCCRUN_TEST_PODMAN"

// TestPodman runs tests of the provider again, with Podman's engine.
func TestPodman(t *testing.T) {
	needEngine(t)
	if _, err := os.Stat(dockerd.Podman); err != nil {
		t.Skip("needs podman")
	}
	tests := "RunsACommand|Terminal|Files|Network|ADoorThatIsGone|TheLauncherIsKilled|Flags"
	flags := "private"
	if os.Getenv("PCCRUN_LONG") != "" {
		tests += "|TheEngineLearnsNothing|Streams|Signals|Privileges|DoorsOfTheHost|ASwappedDirectoryEndsTheLaunch|" +
			"ARunIsKilled|TheSameTask|ASecret|RootsWorkspace|Escape"
		flags += "|disk|hide|home|pids|read|socket"
	}
	c := exec.Command("/proc/self/exe", "-test.v", "-test.run", "^Test("+tests+")$/^runc$/^("+flags+")$")
	c.Env = append(os.Environ(), podman+"=1")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestRunsACommand/runc")
}

// eachRuntime runs a test with runc and with runsc.
func eachRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	for _, runtime := range []string{docker.Runc, docker.Runsc} {
		t.Run(runtime, func(t *testing.T) {
			needEngine(t)
			if runtime == docker.Runsc && !world.gvisor {
				t.Skip("needs make test-long") // which builds it; it is there from then on
			}
			test(t, runtime)
		})
	}
}

func needEngine(t *testing.T) {
	t.Helper()
	if world.why != "" {
		t.Skip(world.why)
	}
}

// A task is a run of a test.
type task struct {
	docker.Options
	dir     string // the workspace
	request profiles.Request
	stdin   string
	env     []string
	heard   *heard

	signals  <-chan int
	terminal *providers.Terminal
	provider *docker.Provider
	runs     int
	state    string          // "": one of the plan's own
	engine   *dockerd.Engine // nil: the one of all tests
	vm       string          // "": where the engine answers as in a virtual machine
}

// heard is what an observer heard.
type heard struct {
	mu        sync.Mutex
	created   []providers.Resource
	decisions []events.NetDecision
	warnings  []events.Warning
	started   chan struct{}
	once      sync.Once
	onCreated func(providers.Resource)
	asked     []string
	answers   map[string]providers.Permission // no to all else
}

func (h *heard) Created(r providers.Resource) {
	h.created = append(h.created, r)
	if h.onCreated != nil {
		h.onCreated(r)
	}
}
func (h *heard) Started()                 { h.once.Do(func() { close(h.started) }) }
func (h *heard) Closed(events.NetClosed)  {}
func (h *heard) Denial(events.Denial)     {}
func (h *heard) Change(events.Changed)    {}
func (h *heard) Warning(w events.Warning) { h.warnings = append(h.warnings, w) }
func (h *heard) Ask(_ context.Context, host string, _ uint16) providers.Permission {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, host)
	return h.answers[host]
}
func (h *heard) Decision(d events.NetDecision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decisions = append(h.decisions, d)
}

// newTask returns a task in a repository of the user's.
func newTask(t *testing.T, runtime string) *task {
	t.Helper()
	dir, err := os.MkdirTemp(world.user.Home, "work-")
	require.NoError(t, err)
	k := &task{Options: docker.Options{Runtime: runtime}, dir: dir, heard: &heard{started: make(chan struct{})}}
	k.asUser(t, "git", "init", "-q", "-b", "main", ".")
	k.asUser(t, "git", "config", "user.name", "T")
	k.asUser(t, "git", "config", "user.email", "t@example.org")
	return k
}

// asUser runs a program outside, as the user.
func (k *task) asUser(t *testing.T, argv ...string) string {
	t.Helper()
	if err := os.Chown(k.dir, int(world.user.UID), int(world.user.GID)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir, c.Env = k.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + world.user.Home}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: world.user.Credential()}
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// write writes a file of the user's in the workspace.
func (k *task) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(k.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	for p := path; p != k.dir; p = filepath.Dir(p) {
		require.NoError(t, os.Chown(p, int(world.user.UID), int(world.user.GID)))
	}
}

// plan plans a run of a command.
func (k *task) plan(t *testing.T, argv ...string) (providers.Plan, error) {
	t.Helper()
	engine, state := world.engine, k.state
	if k.engine != nil {
		engine = k.engine
	}
	if state == "" {
		state = t.TempDir()
	}
	host := engine.Host
	if k.vm != "" {
		host = k.vm
	}
	environ := append(
		[]string{
			"PATH=/usr/local/bin:/usr/bin:/bin",
			"HOME=" + world.user.Home,
			"DOCKER_HOST=" + host,
			"LANG=C.UTF-8",
			"TERM=xterm",
		},
		k.env...)
	k.request.Command = argv
	k.request.Host = profiles.Host{
		UID:     int(world.user.UID),
		Home:    world.user.Home,
		Environ: environ,
		Cwd:     k.dir,
		Memory:  8 << 30,
	}
	policy, err := profiles.Resolve(k.request)
	require.NoError(t, err)
	look, err := survey.Look(policy, survey.Options{Getenv: k.request.Host.Getenv, Environ: environ})
	require.NoError(t, err)
	found := &providers.Survey{UID: int(world.user.UID), GID: int(world.user.GID), Places: look.Places}
	if path, err := exec.LookPath(argv[0]); err == nil {
		found.Command = []string{path}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	k.runs++
	p, err := docker.New(providers.Host{Environ: environ, StateDir: state, Launcher: self}, k.Options)
	require.NoError(t, err)
	k.provider = p
	facts, err := p.Examine(t.Context())
	require.NoError(t, err)
	return p.Plan(
		policy,
		found,
		facts,
		providers.Command{
			Argv:  argv,
			Ask:   k.request.Ask,
			Env:   policy.Environ(environ),
			Dir:   k.dir,
			Label: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")) + strconv.Itoa(k.runs),
		},
	)
}

// run runs a command and returns what it printed.
func (k *task) run(t *testing.T, argv ...string) (stdout, stderr string, result providers.Result) {
	t.Helper()
	plan, err := k.plan(t, argv...)
	require.NoError(t, err)
	var out, errs bytes.Buffer
	io := providers.Stdio{Out: &out, Err: &errs, Signals: k.signals, Terminal: k.terminal}
	if k.stdin != "" {
		io.In = strings.NewReader(k.stdin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	result, err = plan.Run(ctx, io, k.heard)
	require.NoError(t, err, "%s", errs.String())
	return out.String(), errs.String(), result
}

func TestRunsACommand(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		out, _, result := k.run(t, "sh", "-c", "uname -r; id -u; pwd; touch made; exit 3")
		lines := strings.Fields(out)
		require.Len(t, lines, 3)
		assert.Equal(t, runtime == docker.Runsc, strings.Contains(lines[0], "gvisor"))
		assert.Equal(t, strconv.Itoa(int(world.user.UID)), lines[1])
		assert.Equal(t, k.dir, lines[2])
		assert.Equal(t, 3, result.Code)
		info, err := os.Stat(filepath.Join(k.dir, "made"))
		require.NoError(t, err)
		assert.Equal(t, world.user.UID, info.Sys().(*syscall.Stat_t).Uid)
		require.Len(t, k.heard.created, 1)
		left, err := k.provider.Find(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

// What the command is, reads and knows stands in nothing that the engine keeps.
func TestTheEngineLearnsNothing(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.env, k.request.Env = []string{"SECRET=hush-1"}, []string{"SECRET"}
		k.heard.onCreated = func(r providers.Resource) {
			out, err := exec.Command("docker", "-H", world.engine.Host, "inspect", r.ID).CombinedOutput()
			assert.NoError(t, err)
			assert.Contains(t, string(out), "pccrun", "the control")
			assert.NotContains(t, string(out), "hush-")
		}
		out, _, _ := k.run(t, "sh", "-c", `echo "$SECRET $1"`, "sh", "hush-2")
		assert.Equal(t, "hush-1 hush-2\n", out)
		require.Len(t, k.heard.created, 1)
	})
}

func TestStreams(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.stdin = strings.Repeat("0123456789abcdef", 1<<16)
		out, errs, result := k.run(t, "sh", "-c", "cat; echo no >&2; exec 0<&-; exit 0")
		assert.Equal(t, k.stdin, out)
		assert.Equal(t, "no\n", errs)
		assert.Zero(t, result.Code)

		k.stdin = "" // closed
		out, _, _ = k.run(t, "sh", "-c", "wc -c; head -c 10000000 /dev/zero")
		assert.Equal(t, 10000002, len(out))
	})
}

func TestHowACommandEnds(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		_, _, result := k.run(t, "sh", "-c", "kill -SEGV $$")
		assert.Equal(t, int(syscall.SIGSEGV), result.Signal)

		k.request.Limits[6] = "3s" // time to set its trap
		_, _, result = k.run(t, "sh", "-c", "trap 'echo; exit 9' TERM; while :; do sleep 0.1; done")
		assert.True(t, result.TimedOut)
		assert.Equal(t, 9, result.Code)
		k.request.Limits[6] = ""

		_, _, result = k.run(t, "sh", "-c", `sleep 1000 & until [ "$(cat /proc/$!/comm)" = sleep ]; do sleep 0.05; done`)
		assert.Equal(t, []string{"sleep"}, result.Survivors)

		plan, err := k.plan(t, "./none")
		require.NoError(t, err)
		_, err = plan.Run(t.Context(), providers.Stdio{}, k.heard)
		var exec *providers.ExecError
		require.ErrorAs(t, err, &exec)
		assert.ErrorIs(t, exec, syscall.ENOENT)
	})
}

func TestSignals(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		signals := make(chan int)
		k.signals = signals
		go func() {
			assert.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(k.dir, "ready")); return err == nil }, time.Minute, 10*time.Millisecond)
			signals <- int(syscall.SIGUSR1)
		}()
		out, _, result := k.run(t, "sh", "-c", "trap 'echo usr1; exit 4' USR1; : >ready; while :; do sleep 0.05; done")
		assert.Equal(t, "usr1\n", out)
		assert.Equal(t, 4, result.Code)
	})
}

func TestTerminal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		resized := make(chan struct{}, 1)
		size := [2]int{81, 25}
		k.stdin = "typed\n"
		k.terminal = &providers.Terminal{
			Name:    "xterm",
			Size:    func() (int, int) { return size[0], size[1] },
			Resized: resized,
		}
		out, _, result := k.run(
			t,
			"sh",
			"-c",
			"stty size; read a; echo got $a; tty; ps -o tty= -p $$ >/dev/null; exit 5",
		)
		assert.Contains(t, out, "25 81\r\n")
		assert.Contains(t, out, "got typed\r\n")
		assert.Contains(t, out, "/dev/pts/")
		assert.Equal(t, 5, result.Code)

		k.stdin = ""
		go func() {
			<-k.heard.started
			size = [2]int{100, 30}
			resized <- struct{}{}
		}()
		out, _, _ = k.run(t, "sh", "-c", "until stty size | grep -x '30 100'; do sleep 0.05; done")
		assert.Contains(t, out, "30 100")
	})
}

// Each of these has its control: the same file, which the policy does not speak of.
func TestFiles(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.write(t, ".env", "SECRET=1")
		k.write(t, "plain.env.txt", "SHOWN=1")
		k.write(t, "keys/id", "hidden")
		k.write(t, "fixed/a", "stays")
		k.write(t, ".vscode/tasks.json", "{}")
		k.write(t, "open/b", "goes")
		k.request.Files = []profiles.FileFlag{
			{Path: filepath.Join(k.dir, "keys"), Access: profiles.Hide},
			{Path: filepath.Join(k.dir, "fixed"), Access: profiles.Read},
			{Path: filepath.Join(k.dir, ".env"), Access: profiles.Hide},
		}
		other := filepath.Join(world.user.Home, "other")
		require.NoError(t, os.WriteFile(other, []byte("home"), 0o644))
		out, _, _ := k.run(t, "sh", "-c", strings.Join([]string{
			"cat .env keys/id " + other + " 2>/dev/null; cat plain.env.txt; echo",
			"echo x >fixed/a; rm fixed/a; mv fixed gone; echo x >.vscode/tasks.json; mv .vscode gone2; rm -rf .git/hooks; echo x >>.git/config; echo x >.git/hooks/pre-commit",
			"chmod 644 .env; cat .env",
			"echo changed >open/b; mv open moved",
			"echo y >/usr/bin/y; echo y >/etc/y; echo y >/tmp/y && cat /tmp/y; echo z >~/z && cat ~/z",
			"ls ~ /home",
		}, "\n"))
		assert.NotContains(t, out, "SECRET")
		assert.NotContains(t, out, "hidden")
		assert.NotContains(t, out, "home\n")
		assert.NotContains(t, out, "other")
		for _, shown := range []string{"SHOWN=1\n", "y\n", "z\n"} {
			assert.Contains(t, out, shown, "the control")
		}
		read := func(name string) string {
			text, err := os.ReadFile(filepath.Join(k.dir, name))
			require.NoError(t, err)
			return string(text)
		}
		assert.Equal(t, "stays", read("fixed/a"))
		assert.Equal(t, "{}", read(".vscode/tasks.json"))
		assert.NotContains(t, read(".git/config"), "x\n")
		assert.NoFileExists(t, filepath.Join(k.dir, ".git/hooks/pre-commit"))
		assert.Equal(t, "changed\n", read("moved/b"), "the control")
		assert.NoFileExists(t, filepath.Join(world.user.Home, "z"))
	})
}

func TestPrivileges(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		out, _, _ := k.run(
			t,
			"sh",
			"-c",
			"cat /proc/self/status; unshare -Ur true && echo namespace; ls -l /proc/1/exe /proc/1/fd; cat /proc/1/environ; ls /sys/class/net; echo alive",
		)
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
			assert.Contains(t, out, set+":\t0000000000000000")
		}
		assert.Contains(t, out, "NoNewPrivs:\t1")
		assert.Contains(t, out, "Seccomp:\t2")
		assert.NotContains(t, out, "namespace")
		assert.NotContains(t, out, "eth")
		assert.Contains(t, out, "alive")
	})
}

// Whoever waits at a socket or at the other end of a FIFO, in a directory that is shown,
// is reached from outside, and not from a container.
func TestDoorsOfTheHost(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		dir, err := os.MkdirTemp("/opt", "pccrun-test-")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		require.NoError(t, os.Chmod(dir, 0o755))
		l, err := net.Listen("unix", dir+"/socket")
		require.NoError(t, err)
		defer l.Close()
		require.NoError(t, os.Chmod(dir+"/socket", 0o777))
		require.NoError(t, syscall.Mkfifo(dir+"/fifo", 0o666))
		require.NoError(t, os.Chmod(dir+"/fifo", 0o666))
		reader, err := os.OpenFile(dir+"/fifo", os.O_RDWR, 0) // so that a writer need not wait
		require.NoError(t, err)
		defer reader.Close()
		const try = `python3 -c 'import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]+"/socket"); print("connected")' "$0"; timeout 5 sh -c 'echo x >"$0/fifo" && echo wrote' "$0"; ls "$0"`
		k := newTask(t, runtime)
		assert.Equal(t, "connected\nwrote\nfifo\nsocket\n", k.asUser(t, "sh", "-c", try, dir), "the control")
		out, _, _ := k.run(t, "sh", "-c", try, dir)
		assert.Equal(t, "fifo\nsocket\n", out)
	})
}

// A socket that is gone by the start, with the directory that it was in, needs no cover.
func TestADoorThatIsGone(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		dir, err := os.MkdirTemp("/opt", "pccrun-test-")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		require.NoError(t, os.Chmod(dir, 0o755))
		l, err := net.Listen("unix", dir+"/socket")
		require.NoError(t, err)
		defer l.Close()
		k := newTask(t, runtime)
		var once sync.Once
		k.heard.onCreated = func(providers.Resource) { once.Do(func() { assert.NoError(t, os.RemoveAll(dir)) }) }
		out, _, _ := k.run(t, "echo", "runs")
		assert.Equal(t, "runs\n", out)
		left, err := k.provider.Find(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

// A server of the host's own loopback that the policy names is reached by the proxy;
// nothing else is, by whatever way.
func TestNetwork(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		serve := func() (port string) {
			s := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }),
			)
			t.Cleanup(s.Close)
			_, port, _ = net.SplitHostPort(s.Listener.Addr().String())
			return port
		}
		named, other := serve(), serve()
		k := newTask(t, runtime)
		k.request.Local, k.request.Allow = []string{named}, []string{"example.com"}
		out, _, _ := k.run(t, "sh", "-c", strings.Join([]string{
			"curl -sS http://host.pccrun.internal:" + named,
			"curl -sS http://host.pccrun.internal:" + other,
			"curl -sS --noproxy '*' -m 2 http://127.0.0.1:" + other,
			"curl -sS https://evil.example",
			"curl -sS --noproxy '*' http://host.pccrun.internal:" + named + "/by-name",
			"curl -sS --noproxy '*' -m 5 https://evil.example/by-name",
			"curl -sS --noproxy '*' -m 5 http://127.64.0.99:" + named,
			"curl -sS --noproxy '*' -m 5 http://127.0.0.1:" + named, // the container's own
			"cat $PCCRUN_DENIALS; echo x >>$PCCRUN_DENIALS",
		}, "\n"))
		assert.Equal(t, 2, strings.Count(out, "served"), "by the proxy, and by its name")
		assert.True(t, strings.HasPrefix(out, "served"), "the control")
		assert.Contains(t, out, "evil.example")
		k.heard.mu.Lock()
		defer k.heard.mu.Unlock()
		refused := map[string]bool{}
		for _, d := range k.heard.decisions {
			refused[fmt.Sprint(d.Host, ":", d.Port)] = !d.Allowed
		}
		assert.Equal(
			t,
			map[string]bool{
				"host.pccrun.internal:" + named: false,
				"host.pccrun.internal:" + other: true,
				"evil.example:443":              true,
				"evil.example:0":                true, // the name alone was asked for
				"127.64.0.99:" + named:          true, // nobody's
			},
			refused,
		)
	})
}

// The user is asked about a host that no rule speaks of, where there is no rule at all too.
func TestAsk(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.request.Ask, k.request.Deny = true, []string{"inner.example"}
		k.heard.answers = map[string]providers.Permission{"good.example": netproxy.Once, "evil.example": netproxy.Refuse}
		k.run(t, "sh", "-c", "for h in good evil inner; do curl -sS http://$h.example; done")
		k.heard.mu.Lock()
		defer k.heard.mu.Unlock()
		assert.Equal(t, []string{"good.example", "evil.example"}, k.heard.asked)
		allowed := map[string]bool{}
		for _, d := range k.heard.decisions {
			allowed[d.Host] = d.Allowed
		}
		assert.Equal(t, map[string]bool{"good.example": true, "evil.example": false, "inner.example": false}, allowed)
	})
}

// What goes wrong has one line and, where something mends it, a hint.
func TestWhatGoesWrong(t *testing.T) {
	needEngine(t)
	fails := func(t *testing.T, k *task, want, hint string) {
		t.Helper()
		plan, err := k.plan(t, "true")
		if err == nil {
			_, err = plan.Run(t.Context(), providers.Stdio{}, k.heard)
		}
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "\n")
		var engine *docker.EngineError
		require.ErrorAs(t, err, &engine)
		assert.Contains(t, engine.Hint(), hint)
		left, err := k.provider.Find(t.Context(), "")
		require.NoError(t, err)
		for _, r := range left {
			assert.NotContains(t, r.Labels[providers.LabelKey], "whatgoeswrong")
		}
	}
	t.Run("image", func(t *testing.T) {
		k := newTask(t, docker.Runc)
		k.Image = "pccrun-none:1"
		fails(t, k, "the image pccrun-none:1 is not there", "docker pull")
	})
	t.Run("runtime", func(t *testing.T) {
		fails(t, newTask(t, "kata"), "no runtime kata", "runc")
	})
	t.Run("name", func(t *testing.T) {
		k := newTask(t, docker.Runc)
		k.run(t, "true") // the image is there
		client(t, "create", "--name", "pccrun-testwhatgoeswrong-name2", hostImage(t), "true")
		defer client(t, "rm", "-f", "pccrun-testwhatgoeswrong-name2")
		fails(t, k, "is taken", "pccrun gc")
	})
	t.Run("files", func(t *testing.T) {
		k := newTask(t, docker.Runc)
		k.state = t.TempDir()
		// To the engine another file system is there.
		hide := exec.Command(
			"nsenter",
			"--mount",
			"--target",
			strconv.Itoa(world.engine.Pid()),
			"mount",
			"-t",
			"tmpfs",
			"none",
			k.state,
		)
		out, err := hide.CombinedOutput()
		require.NoError(t, err, "%s", out)
		defer exec.Command("nsenter", "--mount", "--target", strconv.Itoa(world.engine.Pid()), "umount", k.state).Run()
		fails(t, k, "has other files than this machine", "--provider native")
	})
}

// client is the engine's own command line.
func client(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", append([]string{"-H", world.engine.Host}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func hostImage(t *testing.T) string {
	return strings.Fields(client(t, "images", "--format", "{{.Repository}}:{{.Tag}}", "pccrun-host"))[0]
}

// Somebody puts a link in the way after the survey: the engine follows it as root, and
// pid 1 sees that it is another file, under gVisor by when it was made.
func TestASwappedDirectoryEndsTheLaunch(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.write(t, "inner/a", "mine")
		k.request.Files = []profiles.FileFlag{{Path: filepath.Join(k.dir, "inner"), Access: profiles.Read}}
		secret, inner := t.TempDir(), filepath.Join(k.dir, "inner")
		plan, err := k.plan(t, "true")
		require.NoError(t, err)
		swap := func() {
			assert.NoError(t, os.Rename(inner, inner+"-old"))
			assert.NoError(t, os.Symlink(secret, inner))
		}
		k.heard.onCreated = func(providers.Resource) { swap() } // nothing is mounted before it is started
		_, err = plan.Run(t.Context(), providers.Stdio{}, k.heard)
		require.ErrorContains(t, err, "another file than the survey saw")

		k.heard.onCreated = nil
		require.NoError(t, os.Remove(inner))
		require.NoError(t, os.Rename(inner+"-old", inner))
		k.run(t, "true") // the control
	})
}

func TestMemoryRunsOut(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		k.request.Limits[0] = "128m"
		_, _, result := k.run(t, "sh", "-c", "echo fits")
		assert.False(t, result.OOM, "the control")
		_, _, result = k.run(t, "sh", "-c", "head -c 600m /dev/zero | tail >/dev/null")
		assert.True(t, result.OOM)
	})
}

func TestAnImageOfTheUsers(t *testing.T) {
	needEngine(t)
	k := newTask(t, docker.Runc)
	k.Image = "pccrun-test:1"
	make := world.engine.Busybox(k.Image, os.Args[0])
	out, err := exec.Command(make[0], make[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	k.write(t, "a", "workspace\n")
	stdout, stderr, result := k.run(t, "sh", "-c", "cat a /of-the-image; ls /")
	assert.Zero(t, result.Code, stderr)
	assert.True(t, strings.HasPrefix(stdout, "workspace\nmine\n"), stdout)
	assert.NotContains(t, stdout, "boot\n")

	// Through the program, a name that only the image has, and one that it has not.
	client(t, "tag", "pccrun-test:1", "pccrun-test:2")
	static := pccrun(
		t,
		k.dir,
		"--provider",
		"docker",
		"--docker-image",
		"pccrun-test:2",
		"--env",
		"PATH=/bin",
		"--",
		"sh",
		"-c",
		"cat /of-the-image",
	)
	code, stdout, stderr := status(t, static)
	assert.Zero(t, code, stderr)
	assert.Equal(t, "mine\n", stdout)
	code, _, stderr = status(
		t,
		pccrun(t, k.dir, "--provider", "docker", "--docker-image", "pccrun-test:2", "--", "none-of-this-name"),
	)
	assert.Equal(t, 127, code)
	assert.Contains(t, stderr, "the image pccrun-test:2: none-of-this-name")

	out, err = exec.Command("sh", "-c", "tar cT /dev/null | docker -H "+world.engine.Host+" import --change 'VOLUME /data' - pccrun-test:3").
		CombinedOutput()
	require.NoError(t, err, "%s", out)
	code, _, stderr = status(
		t,
		pccrun(t, k.dir, "--provider", "docker", "--docker-image", "pccrun-test:3", "--", "true"),
	)
	assert.Equal(t, 125, code)
	assert.Contains(t, stderr, "declares volumes")
}

// The engine crashes: what runs is ended, and the run says why.
func TestTheEngineGoesAway(t *testing.T) {
	needEngine(t)
	mine, err := dockerd.Start(int(world.user.GID), "")
	require.NoError(t, err)
	defer func() { require.NoError(t, mine.Stop()) }()
	k := newTask(t, docker.Runc)
	k.engine = mine
	plan, err := k.plan(t, "sleep", "1000")
	require.NoError(t, err)
	go func() {
		<-k.heard.started
		_ = mine.Kill()
	}()
	result, err := plan.Run(t.Context(), providers.Stdio{}, k.heard)
	require.NoError(t, err)
	assert.True(t, result.Killed)
	assert.Contains(t, k.heard.warnings[len(k.heard.warnings)-1].Text, "the engine stopped")
}

// A run that is told to end does so at once.
func TestARunIsKilled(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		plan, err := k.plan(t, "sleep", "1000")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-k.heard.started
			cancel()
		}()
		result, err := plan.Run(ctx, providers.Stdio{}, k.heard)
		require.NoError(t, err)
		assert.True(t, result.Killed)
		left, err := k.provider.Find(t.Context(), k.heard.created[0].Labels[providers.LabelKey])
		require.NoError(t, err)
		assert.Empty(t, left)

		// From another terminal, as gc and kill do it.
		k.heard = &heard{started: make(chan struct{})}
		plan, err = k.plan(t, "sleep", "1000")
		require.NoError(t, err)
		go func() {
			<-k.heard.started
			assert.NoError(t, k.provider.Destroy(context.Background(), k.heard.created[0]))
		}()
		result, err = plan.Run(t.Context(), providers.Stdio{}, k.heard)
		require.NoError(t, err)
		assert.True(t, result.Killed)
		assert.Equal(t, "docker: the container ended before the command did", k.heard.warnings[len(k.heard.warnings)-1].Text)
	})
}
