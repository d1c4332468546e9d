package macos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// roles are what this program is when it is started for it.
var roles map[string]func(args []string) int

func init() {
	roles = map[string]func(args []string) int{"launcher": launcher, "get": get, "job": job}
}

// launcher runs a command in a machine that a test has made, to be killed.
func launcher(args []string) int {
	m := &machine{root: args[0], system: linux(args[1])}
	m.system.stage[0], _ = os.Executable()
	_, err := m.run(context.Background(), func(*profiles.Request) {}, providers.Stdio{Out: os.Stdout, Err: os.Stderr}, new(heard), args[2:]...)
	fmt.Fprintln(os.Stderr, err)
	return 0
}

// get fetches an address as a program does that honours proxy variables.
func get(args []string) int {
	answer, err := http.Get(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer answer.Body.Close()
	_, _ = io.Copy(os.Stdout, answer.Body)
	return answer.StatusCode / 100
}

// A machine is a directory with a home and a workspace.
type machine struct {
	root   string
	system system
}

func newMachine(t *testing.T, behave ...string) *machine {
	m := &machine{root: t.TempDir(), system: programs(t, behave...)}
	for name, text := range map[string]string{
		"Users/me/.ssh/id_rsa": "secret", "Users/me/.gitconfig": "[user]\n", "Users/me/src/AGENTS.md": "old", "Users/me/src/file": "text", "Users/me/src/.env": "secret",
	} {
		path := filepath.Join(m.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return m
}

func (m *machine) home() string      { return filepath.Join(m.root, "Users/me") }
func (m *machine) workspace() string { return filepath.Join(m.root, "Users/me/src") }
func (m *machine) state() string     { return filepath.Join(m.root, "Users/me/.local/state/pccrun") }

// plan plans a run of a command by its path.
func (m *machine) plan(change func(*profiles.Request), label string, argv ...string) (providers.Plan, error) {
	host := profiles.Host{Home: m.home(), Cwd: m.workspace(), Environ: []string{"PATH=/usr/bin:/bin", "LANG=C", "SECRET=x"}, Memory: 8 << 30}
	req := profiles.Request{Workspace: m.workspace(), Host: host, Profile: "default", Files: []profiles.FileFlag{{Path: m.home() + "/.gitconfig", Access: profiles.Read}}, Command: argv}
	change(&req)
	policy, err := profiles.Resolve(req)
	if err != nil {
		return nil, err
	}
	found, err := survey.LayoutOf(policy, survey.Options{Getenv: host.Getenv, Environ: host.Environ, Command: argv[:1]})
	if err != nil {
		return nil, err
	}
	p := &Provider{host: providers.Host{Environ: host.Environ, StateDir: m.state()}, system: m.system}
	facts, err := p.Examine(context.Background())
	if err != nil {
		return nil, err
	}
	s := &providers.Survey{UID: 1, Places: found.Places, Command: argv[:1], Notes: found.Notes, Machine: found}
	return p.Plan(policy, s, facts, providers.Command{Argv: argv, Env: policy.Environ(host.Environ), Dir: m.workspace(), Label: label, Ask: req.Ask})
}

// labels counts runs: root's tests, which may run beside a user's, end the processes of their own labels alone.
var labels = os.Getpid() * 1000

func (m *machine) run(ctx context.Context, change func(*profiles.Request), stdio providers.Stdio, o providers.Observer, argv ...string) (providers.Result, error) {
	labels++
	plan, err := m.plan(change, fmt.Sprintf("run%d", labels), argv...)
	if err != nil {
		return providers.Result{}, err
	}
	return plan.(providers.Runner).Run(ctx, stdio, o)
}

// heard is an observer that remembers.
type heard struct {
	mu      sync.Mutex
	created []providers.Resource
	started chan struct{}
	denials []events.Denial
	said    []string
	decided []events.NetDecision
	asked   []string
	answers map[string]providers.Permission // no to all else
}

func (h *heard) Spent(events.Spending) {}

func (h *heard) note(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}
func (h *heard) Created(r providers.Resource)  { h.note(func() { h.created = append(h.created, r) }) }
func (h *heard) Decision(d events.NetDecision) { h.note(func() { h.decided = append(h.decided, d) }) }
func (h *heard) Closed(events.NetClosed)       {}
func (h *heard) Denial(d events.Denial)        { h.note(func() { h.denials = append(h.denials, d) }) }
func (h *heard) Change(events.Changed)         {}
func (h *heard) Warning(w events.Warning)      { h.note(func() { h.said = append(h.said, w.Text) }) }
func (h *heard) Ask(_ context.Context, host string, _ uint16) (p providers.Permission) {
	h.note(func() { h.asked, p = append(h.asked, host), h.answers[host] })
	return p
}
func (h *heard) Started() {
	if h.started != nil {
		close(h.started)
	}
}

// shell runs a script of sh's, and returns what it printed.
func (m *machine) shell(t *testing.T, change func(*profiles.Request), script string) (string, providers.Result, *heard) {
	t.Helper()
	var out bytes.Buffer
	o := new(heard)
	result, err := m.run(t.Context(), change, providers.Stdio{In: strings.NewReader("typed\n"), Out: &out, Err: &out}, o, "/bin/sh", "-c", script)
	require.NoError(t, err, out.String())
	return out.String(), result, o
}

func same(*profiles.Request) {}

func TestRun(t *testing.T) {
	m := newMachine(t)
	out, result, o := m.shell(t, func(r *profiles.Request) { r.Limits[3] = "100" }, `
		read line; echo "in $line"; echo "at $PWD"; echo "home $HOME $CFFIXED_USER_HOME"; echo "tmp $TMPDIR"; echo "secret $SECRET"
		cat .ssh/id_rsa ../.ssh/id_rsa "$HOME/.ssh/id_rsa" 2>&1
		cat "$HOME/.gitconfig"; echo x > ../.gitconfig
		cat file; echo new > file; echo made > made; echo t > "$TMPDIR/t"; echo h > "$HOME/h"; cat "$TMPDIR/t" "$HOME/h"
		ulimit -c; ulimit -n; until grep -q SecurityServer "$PCCRUN_DENIALS"; do sleep 0.05; done; cat "$PCCRUN_DENIALS"; exit 7`)
	dir := filepath.Join(m.state(), dirName, "run"+strconv.Itoa(labels))
	require.Equal(t, 7, result.Code)
	for _, want := range []string{"in typed\n", "at " + m.workspace(), "home " + dir + "/home " + dir + "/home", "tmp " + dir + "/tmp/", "secret \n", "[user]", "textt\nh\n0\n100\n"} {
		require.Contains(t, out, want)
	}
	require.Contains(t, out, "../.ssh/id_rsa: Permission denied")
	require.Contains(t, out, "../.gitconfig: Permission denied")
	require.NotContains(t, out, "secretsecret")
	text, err := os.ReadFile(m.workspace() + "/file")
	require.NoError(t, err)
	require.Equal(t, "new\n", string(text))
	require.NoDirExists(t, dir, "what the run had is gone")
	require.Len(t, o.denials, 2, "each once, none that somebody has forged, and none of what every program tries")
	require.Equal(t, "read /Users/me/.ssh/id_rsa", o.denials[0].What)
	require.Equal(t, "mach-lookup com.apple.SecurityServer", o.denials[1].What)
	require.Len(t, o.created, 1)
	require.Positive(t, result.Wall)
}

// Nothing runs where the trial inside finds that the profile is not kept, or sandbox-exec ends.
func TestNeverWithout(t *testing.T) {
	for behave, want := range map[string]string{
		"lax": "macos: trial: the command could read a hidden file", "bad": "macos: sandbox-exec does not take the profile",
	} {
		m := newMachine(t, behave)
		if behave == "bad" { // it is asked before the plan is made
			bad := m.system.exec
			m.system.exec = newMachine(t).system.exec
			plan, err := m.plan(same, fmt.Sprint("bad", os.Getpid()), "/bin/sh", "-c", "echo ran > ran")
			require.NoError(t, err)
			plan.(*thePlan).provider.system.exec = bad
			_, err = plan.(providers.Runner).Run(t.Context(), providers.Stdio{Out: io.Discard, Err: io.Discard}, new(heard))
			require.EqualError(t, err, want)
			continue
		}
		o := &heard{started: make(chan struct{})}
		_, err := m.run(t.Context(), same, providers.Stdio{Out: io.Discard, Err: io.Discard}, o, "/bin/sh", "-c", "echo ran > ran")
		require.EqualError(t, err, want)
		require.NoFileExists(t, m.workspace()+"/ran")
		select {
		case <-o.started:
			t.Fatal("it has started")
		default:
		}
	}
	m := newMachine(t, "nested")
	_, err := m.plan(same, "nested", "/bin/true")
	var no *providers.UnusableError
	require.ErrorAs(t, err, &no)
	require.Contains(t, no.Error(), "already in a sandbox")
	require.NotEmpty(t, no.Hint())
	m.system.exec = "/nowhere/sandbox-exec"
	_, err = m.plan(same, "gone", "/bin/true")
	require.ErrorAs(t, err, &no)
}

type thePlan = plan // whose name a variable has

func TestNotExecuted(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.WriteFile(m.workspace()+"/plain", []byte("echo plain"), 0o644))
	require.NoError(t, os.WriteFile(m.workspace()+"/script", []byte("echo $0 $1"), 0o755))
	for path, want := range map[string]error{m.workspace() + "/plain": syscall.EACCES, m.workspace() + "/none": fs.ErrNotExist} {
		o := &heard{started: make(chan struct{})}
		_, err := m.run(t.Context(), same, providers.Stdio{Out: io.Discard, Err: io.Discard}, o, path)
		var no *providers.ExecError
		require.ErrorAs(t, err, &no)
		require.ErrorIs(t, err, want)
	}
	var out bytes.Buffer
	result, err := m.run(t.Context(), same, providers.Stdio{Out: &out, Err: &out}, new(heard), m.workspace()+"/script", "x")
	require.NoError(t, err)
	require.Zero(t, result.Code)
	require.Equal(t, m.workspace()+"/script x\n", out.String(), "a script without a first line is the shell's")
}

func TestNetwork(t *testing.T) {
	m := newMachine(t)
	serves := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "served") })
	server, other := httptest.NewServer(serves), httptest.NewServer(serves)
	defer server.Close()
	defer other.Close()
	at, err := url.Parse(server.URL)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	allow := func(r *profiles.Request) {
		r.Local = []string{at.Port()}
		r.Files = append(r.Files, profiles.FileFlag{Path: self, Access: profiles.Read})
	}
	out, _, o := m.shell(t, allow, self+" get http://host.pccrun.internal:"+at.Port()+"; "+self+" get http://evil.example/; n=0; until grep -q evil $PCCRUN_DENIALS || [ $n -gt 1800 ]; do sleep 0.1; n=$((n+1)); done; cat $PCCRUN_DENIALS; echo; "+
		"unset http_proxy HTTP_PROXY; "+self+" get "+server.URL+"; "+self+" get "+other.URL+"; echo $https_proxy")
	require.Contains(t, out, `{"error":"denied","host":"evil.example"`)
	require.Equal(t, 2, strings.Count(out, "served"), "by the name and at the loopback")
	require.Contains(t, out, `"what":"connect evil.example:80"`)
	require.Contains(t, out, "permission denied", "directly")
	require.Regexp(t, `http://pccrun:[A-Z0-9]{26}@127\.0\.0\.1:\d+`, out)
	require.Len(t, o.decided, 2)

	out, _, _ = m.shell(t, func(r *profiles.Request) {
		r.Files = append(r.Files, profiles.FileFlag{Path: self, Access: profiles.Read})
	}, "echo proxy $http_proxy; "+self+" get "+server.URL)
	require.Contains(t, out, "proxy\n")
	require.Contains(t, out, "permission denied")
}

// The user is asked about a host that no rule speaks of, where there is no rule at all too.
func TestAsk(t *testing.T) {
	m := newMachine(t)
	self, err := os.Executable()
	require.NoError(t, err)
	o := &heard{answers: map[string]providers.Permission{"good.example": netproxy.Once, "evil.example": netproxy.Refuse}}
	var out bytes.Buffer
	_, err = m.run(t.Context(), func(r *profiles.Request) {
		r.Ask, r.Deny = true, []string{"inner.example"}
		r.Files = append(r.Files, profiles.FileFlag{Path: self, Access: profiles.Read})
	}, providers.Stdio{Out: &out, Err: &out}, o, "/bin/sh", "-c", "for h in good evil inner; do "+self+" get http://$h.example/; done")
	require.NoError(t, err)
	require.Equal(t, []string{"good.example", "evil.example"}, o.asked, out.String())
	allowed := map[string]bool{}
	for _, d := range o.decided {
		allowed[d.Host] = d.Allowed
	}
	require.Equal(t, map[string]bool{"good.example": true, "evil.example": false, "inner.example": false}, allowed)
}

// Others of the machine reach the proxy's port, and are not served.
func TestProxyWantsTheToken(t *testing.T) {
	m := newMachine(t)
	out, _, _ := m.shell(t, func(r *profiles.Request) { r.Allow = []string{"example.com"} }, `echo "$http_proxy" > via; cat via`)
	require.Contains(t, out, "@127.0.0.1:")
	in, held := io.Pipe()
	o := &heard{started: make(chan struct{})}
	var printed bytes.Buffer
	done := make(chan error, 1)
	go func() {
		_, err := m.run(context.Background(), func(r *profiles.Request) { r.Allow = []string{"example.com"} }, providers.Stdio{In: in, Out: &printed, Err: &printed}, o, "/bin/sh", "-c", "echo $http_proxy > via; read x")
		done <- err
	}()
	<-o.started
	var via *url.URL
	await.Until(t, "the proxy listens", func() bool {
		text, _ := os.ReadFile(m.workspace() + "/via")
		via, _ = url.Parse(strings.TrimSpace(string(text)))
		c, err := net.Dial("tcp", via.Host)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for _, user := range []*url.Userinfo{nil, via.User} {
		client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: via.Host, User: user})}}
		answer, err := client.Get("http://denied.example/")
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, map[bool]int{true: 407, false: 403}[user == nil], answer.StatusCode)
	}
	io.WriteString(held, "\n")
	require.NoError(t, <-done)
}

func TestSignalsAndTime(t *testing.T) {
	m := newMachine(t)
	signals := make(chan int, 1)
	var out bytes.Buffer
	go func() {
		for _, err := os.Stat(m.workspace() + "/up"); err != nil; _, err = os.Stat(m.workspace() + "/up") {
			time.Sleep(10 * time.Millisecond)
		}
		signals <- 10 // Linux's SIGUSR1, which is 12 on the system that stands in
	}()
	result, err := m.run(t.Context(), same, providers.Stdio{Out: &out, Err: &out, Signals: signals}, new(heard), "/bin/sh", "-c", "trap 'echo got; exit 3' USR2; echo > up; while :; do sleep 0.02; done")
	require.NoError(t, err)
	require.Equal(t, 3, result.Code, out.String())

	result, err = m.run(t.Context(), same, providers.Stdio{Out: &out, Err: &out}, new(heard), "/bin/sh", "-c", "kill -USR1 $$")
	require.NoError(t, err)
	require.Equal(t, 12, result.Signal, "by Linux's number")

	result, err = m.run(t.Context(), func(r *profiles.Request) { r.Limits[6] = "300ms" }, providers.Stdio{Out: &out, Err: &out}, new(heard), "/bin/sleep", "600")
	require.NoError(t, err)
	require.True(t, result.TimedOut)

	ctx, cancel := context.WithCancel(t.Context())
	began := &heard{started: make(chan struct{})}
	go func() {
		<-began.started
		cancel()
	}()
	result, err = m.run(ctx, same, providers.Stdio{Out: &out, Err: &out}, began, "/bin/sleep", "600")
	require.NoError(t, err)
	require.True(t, result.Killed)
}

// alive reports whether any process has a word in its arguments.
func alive(t *testing.T, word string) bool {
	list, err := readProc()
	require.NoError(t, err)
	for _, p := range list {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if strings.Contains(string(text), word) && p.pid != os.Getpid() {
			return true
		}
	}
	return false
}

func TestSurvivors(t *testing.T) {
	m := newMachine(t)
	long := fmt.Sprint("71717", os.Getpid()) // no one else's
	_, result, _ := m.shell(t, same, fmt.Sprintf(`setsid sleep %[1]s & (env -i setsid sleep %[1]s & sleep 2); exit 0`, long))
	require.Equal(t, []string{"sleep"}, result.Survivors)
	await.Until(t, "both are ended", func() bool { return !alive(t, long) })
}

// What ends the launcher ends the command, however that leaves its parents.
func TestLauncherKilled(t *testing.T) {
	m := newMachine(t)
	self, err := os.Executable()
	require.NoError(t, err)
	long, log := fmt.Sprint("82828", os.Getpid()), m.system.log[0]
	cmd := exec.Command(self, "launcher", m.root, filepath.Dir(m.system.exec), "/bin/sh", "-c", fmt.Sprintf("setsid sleep %[1]s & echo up; sleep %[1]s", long))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	up := make([]byte, 3)
	_, err = io.ReadFull(out, up)
	require.NoError(t, err)
	await.Until(t, "the control: both run", func() bool { return alive(t, long) && alive(t, log) }) // who executes something has no arguments for a moment
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	await.Until(t, "the command is ended, and what reads the log", func() bool { return !alive(t, long) && !alive(t, log) })

	p := &Provider{host: providers.Host{StateDir: m.state()}, system: m.system}
	found, err := p.Find(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, found, 1)
	none, err := p.Find(t.Context(), "other")
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, p.Destroy(t.Context(), found[0]))
	require.NoDirExists(t, p.dir(found[0].Labels[providers.LabelKey]))
	require.NoError(t, p.Destroy(t.Context(), found[0]), "what is gone is gone")
	for _, label := range []string{"", "../x", "a/b"} {
		require.Error(t, p.Destroy(t.Context(), resource(label)), label)
	}
}

// The command has a terminal of its own, to which the user's is relayed, with its modes given back.
func TestTerminal(t *testing.T) {
	m := newMachine(t)
	outside, mine, err := terminal.OpenPair()
	require.NoError(t, err)
	defer outside.Close()
	defer mine.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(mine.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 31, Col: 91}))
	before, err := unix.IoctlGetTermios(int(mine.Fd()), unix.TCGETS)
	require.NoError(t, err)
	var printed bytes.Buffer
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		buf := make([]byte, 4096)
		for !strings.Contains(printed.String(), "got hello") {
			n, err := outside.Read(buf)
			printed.Write(buf[:n])
			if strings.Contains(printed.String(), "ready") && !strings.Contains(printed.String(), "hello") {
				io.WriteString(outside, "hello\r")
			}
			if err != nil {
				return
			}
		}
	}()
	result, err := m.run(t.Context(), same, providers.Stdio{In: mine, Out: mine, Err: mine, Terminal: &providers.Terminal{
		Name: "xterm", Resized: make(chan struct{}), Size: func() (int, int) { return 80, 24 },
		Relay: func(o terminal.Options) (*terminal.Relay, error) {
			o.Terminal = int(mine.Fd())
			return terminal.Start(o)
		},
	}}, new(heard), "/bin/sh", "-c", "stty size; test -t 0 && test -t 1 && test -t 2 && echo tty; echo ready; read x; echo got $x; kill -INT 0; sleep 600")
	require.NoError(t, err)
	require.Equal(t, 2, result.Signal)
	<-shown
	for _, want := range []string{"31 91", "tty", "got hello"} {
		require.Contains(t, printed.String(), want)
	}
	after, err := unix.IoctlGetTermios(int(mine.Fd()), unix.TCGETS)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestLogThatMayNotBeRead(t *testing.T) {
	m := newMachine(t, "no-log")
	in, held := io.Pipe()
	o, done := new(heard), make(chan error, 1)
	go func() {
		_, err := m.run(t.Context(), same, providers.Stdio{In: in, Out: io.Discard, Err: io.Discard}, o, "/bin/cat")
		done <- err
	}()
	await.Until(t, "the user is told", func() (told bool) {
		o.note(func() {
			told = strings.Contains(strings.Join(o.said, "\n"), "denials are not reported: log: Must be admin")
		})
		return told
	})
	require.NoError(t, held.Close())
	require.NoError(t, await.Receive(t, "cat ends", done))
}

func TestRefusals(t *testing.T) {
	m := newMachine(t)
	for want, change := range map[string]func(*profiles.Request){
		"no copy-on-write": func(r *profiles.Request) {
			r.Files = append(r.Files, profiles.FileFlag{Path: m.workspace(), Access: profiles.Overlay})
		},
		"publish 8080:3000":         func(r *profiles.Request) { r.Publish = []string{"8080:3000"} },
		"no filter of system calls": func(r *profiles.Request) { r.Syscalls = writeJSON(t) },
	} {
		_, err := m.plan(change, "look", "/bin/true")
		require.ErrorContains(t, err, want)
		var hint interface{ Hint() string }
		if !errors.As(err, &hint) {
			var e *profiles.Error
			require.ErrorAs(t, err, &e)
			require.NotEmpty(t, e.Hint, want)
		}
	}
	plan, err := m.plan(same, "", "/bin/true")
	require.NoError(t, err)
	_, err = plan.(providers.Runner).Run(t.Context(), providers.Stdio{}, new(heard))
	require.ErrorContains(t, err, "only looked at")
	_, err = m.run(t.Context(), func(r *profiles.Request) { r.Allow = []string{"GET https://api.example.com/v1/*"} }, providers.Stdio{Out: io.Discard, Err: io.Discard}, new(heard), "/bin/true")
	require.ErrorContains(t, err, "rules for requests need the inspection process")
}

func writeJSON(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "seccomp.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"defaultAction":"SCMP_ACT_ALLOW"}`), 0o600))
	return path
}

// What pccrun itself prints to is handed in where it is a file, and copied where it is a terminal.
func TestStandardStreams(t *testing.T) {
	m := newMachine(t)
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	master, slave, err := terminal.OpenPair()
	require.NoError(t, err)
	defer master.Close()
	defer slave.Close()
	_, err = m.run(t.Context(), same, providers.Stdio{Out: file, Err: slave}, new(heard), "/bin/sh", "-c", "echo out; test -t 2 || echo no terminal >&2; read x || echo end")
	require.NoError(t, err)
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Equal(t, "out\nend\n", string(text))
	buf := make([]byte, 100)
	n, err := master.Read(buf)
	require.NoError(t, err)
	require.Contains(t, string(buf[:n]), "no terminal")
}

// What an earlier run has put where something is shown stays, and is named.
func TestHomeInTheWay(t *testing.T) {
	m := newMachine(t)
	plan, err := m.plan(same, fmt.Sprint("way", os.Getpid()), "/bin/cat", m.workspace()+"/file")
	require.NoError(t, err)
	p := plan.(*thePlan)
	require.NoError(t, os.MkdirAll(p.profile.Home, 0o700))
	require.NoError(t, os.WriteFile(p.profile.Home+"/.gitconfig", nil, 0o600))
	p.home = append(p.home, entry{Name: ".seeded", Text: "text"})
	o := new(heard)
	_, err = plan.(providers.Runner).Run(t.Context(), providers.Stdio{Out: io.Discard, Err: io.Discard}, o)
	require.NoError(t, err)
	require.Contains(t, strings.Join(o.said, "\n"), "~/.gitconfig in the persistent home is from an earlier run")
	require.NoDirExists(t, p.dir)
}
