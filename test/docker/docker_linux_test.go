// Package docker_test tries providers/docker with engines and runtimes that are real.
package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/docker"
	"github.com/pccrun/pccrun/providers/inside"
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
	runsc, err := filepath.Abs(dockerd.Runsc("../.."))
	if err == nil {
		if _, err := os.Stat(runsc); err != nil {
			runsc = ""
		}
		world.gvisor = runsc != ""
		world.user, err = tempuser.New()
	}
	if err == nil {
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

// eachRuntime runs a test with runc and with runsc.
func eachRuntime(t *testing.T, test func(t *testing.T, runtime string)) {
	for _, runtime := range []string{docker.Runc, docker.Runsc} {
		t.Run(runtime, func(t *testing.T) {
			needEngine(t)
			if runtime == docker.Runsc && !world.gvisor {
				t.Skip("needs runsc, which test/run builds")
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
}

// heard is what an observer heard.
type heard struct {
	mu        sync.Mutex
	created   []providers.Resource
	decisions []events.NetDecision
	warnings  []events.Warning
	started   chan struct{}
}

func (h *heard) Created(r providers.Resource)                                 { h.created = append(h.created, r) }
func (h *heard) Started()                                                     { close(h.started) }
func (h *heard) Closed(events.NetClosed)                                      {}
func (h *heard) Denial(events.Denial)                                         {}
func (h *heard) Change(events.Changed)                                        {}
func (h *heard) Warning(w events.Warning)                                     { h.warnings = append(h.warnings, w) }
func (h *heard) Ask(context.Context, string, uint16) (p providers.Permission) { return }
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
	environ := append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + world.user.Home, "DOCKER_HOST=" + world.engine.Host, "LANG=C.UTF-8", "TERM=xterm"}, k.env...)
	k.request.Command = argv
	k.request.Host = profiles.Host{UID: int(world.user.UID), Home: world.user.Home, Environ: environ, Cwd: k.dir, Memory: 8 << 30}
	policy, err := profiles.Resolve(k.request)
	require.NoError(t, err)
	look, err := namespaces.Look(policy, namespaces.Options{Getenv: k.request.Host.Getenv, Environ: environ})
	require.NoError(t, err)
	survey := &providers.Survey{UID: int(world.user.UID), GID: int(world.user.GID), Places: look.Places}
	if path, err := exec.LookPath(argv[0]); err == nil {
		survey.Command = []string{path}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	p, err := docker.New(providers.Host{Environ: environ, StateDir: t.TempDir(), Launcher: self}, k.Options)
	require.NoError(t, err)
	facts, err := p.Examine(t.Context())
	require.NoError(t, err)
	return p.Plan(policy, survey, facts, providers.Command{Argv: argv, Env: policy.Environ(environ), Dir: k.dir, Label: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))})
}

// run runs a command and returns what it printed.
func (k *task) run(t *testing.T, argv ...string) (stdout, stderr string, result providers.Result) {
	t.Helper()
	plan, err := k.plan(t, argv...)
	require.NoError(t, err)
	var out, errs bytes.Buffer
	io := providers.Stdio{Out: &out, Err: &errs}
	if k.stdin != "" {
		io.In = strings.NewReader(k.stdin)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result, err = plan.Run(ctx, io, k.heard)
	require.NoError(t, err, "%s", errs.String())
	return out.String(), errs.String(), result
}

func TestRunsACommand(t *testing.T) {
	eachRuntime(t, func(t *testing.T, runtime string) {
		k := newTask(t, runtime)
		out, errs, result := k.run(t, "sh", "-c", "uname -r; id -u; pwd; echo $$; cat /proc/1/status | head -3; ls -la /; touch made; exit 3")
		t.Log(out, errs, result)
		assert.Equal(t, 3, result.Code)
		assert.Equal(t, runtime == docker.Runsc, strings.Contains(out, "gvisor"))
		assert.FileExists(t, filepath.Join(k.dir, "made"))
	})
}
