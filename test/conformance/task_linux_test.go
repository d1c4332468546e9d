// Package conformance_test runs the same small cases with each provider that has a copy of
// the workspace. A provider is a row of a table; what is here is what they share.
package conformance_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/machine"
	"github.com/pccrun/pccrun/test/internal/tempuser"
	"github.com/pccrun/pccrun/workspace/changes"
)

// credential is who the commands of servers run as: never root.
var credential *syscall.Credential

// plainGit is [providers.Host].Git without a sandbox: the program under test is not this one.
func plainGit(ctx context.Context, _, args []string, prepare func(dir string) error, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+dir, "XDG_CONFIG_HOME="+dir, "GIT_WORK_TREE=.")
	cmd.Stdin, cmd.Stdout = in, out
	return cmd.Run()
}

func TestMain(m *testing.M) {
	code, err := tests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tests runs the tests, four at a time: they wait more than they compute.
func tests(m *testing.M) (code int, err error) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		return 1, err
	}
	if os.Getuid() == 0 {
		user, err := tempuser.New()
		if err != nil {
			return 1, err
		}
		credential = user.Credential()
		defer func() { err = errors.Join(err, user.Remove()) }()
	}
	code = m.Run()
	if credential == nil {
		err = removeUploads()
	}
	return code, err
}

// removeUploads removes what was uploaded to a sandbox that was ended meanwhile: where nobody is root its /tmp is this machine's.
func removeUploads() (err error) {
	dirs, _ := filepath.Glob("/tmp/.pccrun-*")
	for _, dir := range dirs {
		var st syscall.Stat_t
		if syscall.Lstat(dir, &st) == nil && int(st.Uid) == os.Getuid() {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// A place is a provider behind a server of the test's.
type place struct {
	name     string
	keys     []string // the variables without which it cannot be used
	wrongKey string   // well-formed
	start    func(t *testing.T) *served
	wire     func() *wire // nil: it speaks no HTTP
	sleeps   bool         // its sandboxes can be stopped with their files kept
	ends     bool         // what is executed in one ends as it stops
	idles    bool         // one ends when nobody calls it
	noKeep   string       // why none is kept for the next run; "" where that can be

	// noProgram is why the program itself, as a user runs it, is not tried with its counterpart; "" where it is.
	noProgram string
}

// rests is the state of a sandbox that keeps what could not be fetched, and what is said of it.
func (p *place) rests() (state, text string) {
	if p.sleeps {
		return "paused", "is paused and has them"
	}
	if p.idles {
		return "running", "has them, and loses them when it is not called for 10m0s"
	}
	return "running", "has them, and runs until "
}

// served is a server that is up.
type served struct {
	environ []string
	open    func(environ []string, state, program string) providers.Provider
	path    func(dir string)            // stands first in PATH there
	stand   func(state string) []string // what stands at the provider: "running", "paused", or all
	home    func(id string) string      // where its files are on this machine
	calls   func() []string

	received func() int64  // bytes of all calls
	made     func() string // all that requests to create said
	pause    func(id string)
	remove   func(id string)  // as when its time is over, or somebody else destroys it
	unplug   func()           // breaks all connections
	set      *machine.Setting // nil: its sandboxes cannot be otherwise
	around   func(hosts map[string]string, booted func(*machine.Machine))
	decide   func(fault func(r *http.Request) *faults.Fault)
	fault    func(kinds ...string)

	atOnce bool // a call is repeated at once
	// By how much the engine's clock is ahead, and goes on each time that it looks at it.
	ahead, goesOn atomic.Int64
}

// A task is a run of a test.
type task struct {
	*served
	place    *place
	t        *testing.T
	dir      string // the workspace
	session  *os.Root
	request  profiles.Request
	env      []string
	stdin    io.Reader
	signals  chan int
	terminal *providers.Terminal
	provider providers.Provider
	label    string
	heard    heard
	ctx      context.Context
	started  func()
	progress func(what string, done, total int64)
	state    string // where sessions are that may keep their sandboxes
	keep     time.Duration
	program  string // that goes up; "" for pccrun itself
}

type heard struct {
	mu       sync.Mutex
	created  []providers.Resource
	warnings []string
	started  func()

	decisions []events.NetDecision

	asked   []string
	answers map[string]providers.Permission // Refuse to all else
}

func (h *heard) Spent(events.Spending) {}

func (h *heard) Created(r providers.Resource) { h.created = append(h.created, r) }
func (h *heard) Started() {
	if h.started != nil {
		h.started()
	}
}
func (h *heard) Decision(d events.NetDecision) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decisions = append(h.decisions, d)
}
func (h *heard) Closed(events.NetClosed) {}
func (h *heard) Denial(events.Denial)    {}
func (h *heard) Change(events.Changed)   {}
func (h *heard) Warning(w events.Warning) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnings = append(h.warnings, w.Text)
}
func (h *heard) Ask(_ context.Context, host string, port uint16) providers.Permission {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := fmt.Sprintf("%s:%d", host, port)
	h.asked = append(h.asked, at)
	return h.answers[at]
}

func newTask(t *testing.T, p *place) *task {
	k := &task{served: p.start(t), place: p, t: t, label: strings.ToLower(rand.Text()), ctx: t.Context()}
	base := t.TempDir()
	k.dir = filepath.Join(base, "proj")
	require.NoError(t, os.Mkdir(k.dir, 0o755))
	session := filepath.Join(base, "session")
	require.NoError(t, os.Mkdir(session, 0o700))
	var err error
	k.session, err = os.OpenRoot(session)
	require.NoError(t, err)
	t.Cleanup(func() { k.session.Close() })
	k.write("a.txt", "one\n")
	k.write("sub/b.txt", "two\n")
	return k
}

func (k *task) write(name, text string) {
	path := filepath.Join(k.dir, name)
	require.NoError(k.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(k.t, os.WriteFile(path, []byte(text), 0o644))
}

func (k *task) read(name string) string {
	text, err := os.ReadFile(filepath.Join(k.dir, name))
	require.NoError(k.t, err)
	return string(text)
}

// environment is the user's, with keys.
func (k *task) environment() []string {
	return append(append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/home/nobody-here", "LANG=C.UTF-8", "HOST_SECRET=dont-tell"}, k.environ...), k.env...)
}

// plan plans a run.
func (k *task) plan(argv ...string) (providers.Plan, error) {
	k.request.Command = argv
	k.request.Host = profiles.Host{UID: os.Getuid(), Home: "/home/nobody-here", Environ: k.environment(), Cwd: k.dir, Memory: 8 << 30}
	policy, err := profiles.Resolve(k.request)
	require.NoError(k.t, err)
	k.provider = k.opened()
	facts, err := k.provider.Examine(k.t.Context())
	if err != nil {
		return nil, err
	}
	plan, err := k.provider.Plan(policy, &providers.Survey{}, facts, providers.Command{Argv: argv, Env: policy.Environ(k.environment()), Dir: policy.WorkDir, Label: k.label, Keep: k.keep, Ask: k.request.Ask})
	if err != nil {
		return nil, err
	}
	_, err = providers.Check(policy, plan.Answers())
	return plan, err
}

// opened is the provider, as any process makes it.
func (k *task) opened() providers.Provider {
	program := k.program
	if program == "" {
		program = host.Program(k.t)
	}
	return k.open(k.environment(), k.state, program)
}

// opens is how a provider gets a program for Linux.
func opens(program string) func(string) (io.ReadCloser, error) {
	return func(string) (io.ReadCloser, error) { return os.Open(program) }
}

// An outcome is how a run ended.
type outcome struct {
	providers.Result
	err      error
	code     int // what pccrun would exit with
	out, say string
}

// run runs a command to its end.
func (k *task) run(argv ...string) *outcome {
	k.t.Helper()
	o := &outcome{}
	plan, err := k.plan(argv...)
	if err == nil {
		var out, say bytes.Buffer
		k.heard.started = k.started
		o.Result, err = plan.(providers.Runner).Run(k.ctx, providers.Stdio{In: k.stdin, Out: &out, Err: &say, Signals: k.signals, Terminal: k.terminal, Changes: k.session, Progress: k.progress}, &k.heard)
		o.out, o.say = out.String(), say.String()
	}
	o.err = err
	var exec *providers.ExecError
	switch {
	case errors.As(err, &exec) && errors.Is(err, syscall.ENOENT):
		o.code = 127
	case errors.As(err, &exec):
		o.code = 126
	case err != nil:
		o.code = 125
	case o.TimedOut:
		o.code = 124
	case o.Signal != 0:
		o.code = 128 + o.Signal
	default:
		o.code = o.Code
	}
	return o
}

// sh runs a script, which must succeed.
func (k *task) sh(script string) *outcome {
	k.t.Helper()
	o := k.run("/bin/sh", "-c", script)
	require.NoError(k.t, o.err)
	require.Equal(k.t, 0, o.code, "%s", o.say)
	return o
}

// upper opens what came back, nil for nothing.
func (k *task) upper() *changes.Upper {
	if !changes.Stands(k.session) {
		return nil
	}
	u, err := changes.OpenUpper(k.session, nil)
	require.NoError(k.t, err)
	return u
}

// changed is what came back: op and path, with what else is to be said.
func (k *task) changed() (list []string) {
	k.t.Helper()
	u := k.upper()
	if u == nil {
		return nil
	}
	defer u.Close()
	sets, err := u.Changes()
	require.NoError(k.t, err)
	for _, c := range sets[0].Changes {
		text := fmt.Sprintf("%c %s", c.Op(), c.Path)
		if c.Protect != "" {
			text += " protected"
		}
		if c.Conflict != "" {
			text += " conflict"
		}
		list = append(list, text)
	}
	return list
}

// apply brings it to the workspace.
func (k *task) apply() (*changes.Outcome, error) {
	u := k.upper()
	require.NotNil(k.t, u, "nothing came back")
	defer u.Close()
	require.NoError(k.t, u.Begin())
	return u.Apply(changes.Selection{})
}

// nothingLeft says that nothing stands at the provider.
func (k *task) nothingLeft() {
	k.t.Helper()
	require.Empty(k.t, k.stand(""), "a sandbox is left")
}

// warned reports whether the user heard a text.
func (k *task) warned(text string) bool {
	return strings.Contains(strings.Join(k.heard.warnings, "\n"), text)
}
