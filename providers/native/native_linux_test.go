package native

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// bench is a home with a workspace in it, and what a run in it reports.
type bench struct {
	providers.Observer // nil: of its methods a test calls those that bench has

	t         *testing.T
	home      string
	workspace string
	request   profiles.Request
	environ   []string // of the host, beside the few that it always has
	state     string   // "" for nowhere
	learn     bool     // refused reads are recorded

	secrets *egress.Secrets

	onAttempt func(Attempt)

	mu     sync.Mutex
	events []netproxy.Event
}

// newBench makes a home with a secret and a git repository as its workspace.
func newBench(t *testing.T) *bench {
	b := &bench{t: t, home: t.TempDir()}
	require.NoError(t, os.Chmod(filepath.Dir(b.home), 0o755))
	b.workspace = filepath.Join(b.home, "work")
	require.NoError(t, os.MkdirAll(b.workspace, 0o755))
	b.write("secret", "canary-home\n")
	b.write("work/.env", "canary-env\n")
	b.write("work/file", "content\n")
	require.NoError(t, os.Mkdir(filepath.Join(b.home, "shown"), 0o755))
	b.request.Files = []profiles.FileFlag{{Path: filepath.Join(b.home, "shown"), Access: profiles.Read}}
	b.host("git", "init", "-q", b.workspace)
	return b
}

func (b *bench) write(name, text string) {
	require.NoError(b.t, os.WriteFile(filepath.Join(b.home, name), []byte(text), 0o644))
}

// mine writes the user's own file, which says what counts for what pccrun itself sends.
func (b *bench) mine(line string) {
	require.NoError(b.t, os.MkdirAll(filepath.Join(b.home, filepath.Dir(outgoing.File)), 0o755))
	b.write(outgoing.File, line)
}

func (b *bench) host(argv ...string) {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	require.NoError(b.t, err, string(out))
}

// plan plans a run of a shell script.
func (b *bench) plan(argv ...string) (*Run, error) {
	req := b.request
	req.Command = argv
	req.Workspace = b.workspace
	req.Host = profiles.Host{UID: os.Getuid(), Home: b.home, Cwd: b.workspace, Memory: 8 << 30,
		Environ: []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + b.home, "CANARY=canary-environment"}}
	req.Host.Environ = append(b.environ[:len(b.environ):len(b.environ)], req.Host.Environ...)
	policy, err := profiles.Resolve(req)
	if err != nil {
		return nil, err
	}
	p, err := planned(policy, options{environ: req.Host.Environ, programs: &programs.Finder{Home: b.home, Environ: req.Host.Environ}, stateDir: b.state, secrets: b.secrets, learn: b.learn}, argv)
	if p == nil {
		return nil, err
	}
	return p.run(b), err
}

func (b *bench) Denial(d events.Denial) {
	if path, writes := strings.CutPrefix(d.What, "write "); writes && b.onAttempt != nil {
		b.onAttempt(Attempt{Guarantee: profiles.Guarantee(d.Guarantee), Path: path, Rule: d.Rule, Hint: d.Hint})
	}
}

// Decision notes what the proxy says.
func (b *bench) Decision(d events.NetDecision) {
	e := netproxy.Event{Kind: netproxy.Denied, Request: d.Request, Verdict: rules.Verdict{Host: d.Host}}
	if d.Allowed {
		e.Kind = netproxy.Opened
	}
	b.note(e)
}

func (b *bench) Spent(events.Spending) {}

func (b *bench) Closed(c events.NetClosed) {
	b.note(netproxy.Event{Kind: netproxy.Closed, Up: c.Up, Down: c.Down})
}

func (b *bench) note(e netproxy.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

// outcome is what a run printed, and how it ended.
type outcome struct {
	out string
	end *End
	err error
}

// start begins a run. Root is not shed: the test still needs it.
func (b *bench) start(argv ...string) (s *Started, wait func() outcome) {
	b.t.Helper()
	run, err := b.plan(argv...)
	require.NoError(b.t, err)
	return b.launch(run)
}

// begin takes a run through its stages until the command runs. It gives the run nothing of a session.
func begin(run *Run, box *namespaces.Sandbox, stdio *namespaces.Stdio) (*Started, error) {
	run.plan, run.box, run.stdio = &plan{Planned: &run.Planned, provider: &Provider{}}, box, stdio
	if err := run.give(); err != nil {
		return nil, err
	}
	s := run.started()
	_, err := s.Connect()
	if err == nil {
		err = s.Go()
	}
	if err == nil {
		err = s.attend()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// launch begins a planned run.
func (b *bench) launch(run *Run) (s *Started, wait func() outcome) {
	b.t.Helper()
	in, err := os.Open(os.DevNull)
	require.NoError(b.t, err)
	r, w, err := os.Pipe()
	require.NoError(b.t, err)
	stdio := &namespaces.Stdio{Fds: [3]int{int(in.Fd()), int(w.Fd()), int(w.Fd())}, Host: -1}
	require.NoError(b.t, run.bind(func() (*os.File, error) { return os.Open("/proc/self/exe") }, "", ""))
	shell, err := run.shell()
	require.NoError(b.t, err)
	box, err := namespaces.Begin(shell)
	require.NoError(b.t, err)
	s, err = begin(run, box, stdio)
	in.Close()
	w.Close()
	if err != nil {
		r.Close()
		return nil, func() outcome { return outcome{err: err} }
	}
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		r.Close()
		text <- string(all)
	}()
	return s, func() outcome {
		s.untilGone()
		end, err := s.collect()
		return outcome{<-text, end, err}
	}
}

func (b *bench) sh(script string) outcome {
	b.t.Helper()
	_, wait := b.start("/bin/sh", "-c", script)
	return wait()
}

// unprivileged re-runs a test as another user where it runs as root: shedding
// root is for good, so no test can do it in this process.
func unprivileged(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user who is not root: runs again as one")
	}
}

func TestExit(t *testing.T) {
	unprivileged(t)
	for _, c := range []struct {
		script string
		code   int
		signal unix.Signal
	}{
		{script: "exit 0"},
		{script: "exit 7", code: 7},
		{script: "kill -SEGV $$", signal: unix.SIGSEGV},
		{script: "kill -KILL $$", signal: unix.SIGKILL},
	} {
		t.Run(c.script, func(t *testing.T) {
			o := newBench(t).sh(c.script)
			require.NoError(t, o.err)
			require.Equal(t, c.signal != 0, o.end.Status.Signaled())
			if c.signal != 0 {
				require.Equal(t, c.signal, o.end.Status.Signal())
			} else {
				require.Equal(t, c.code, o.end.Status.ExitStatus())
			}
		})
	}
}

// Each row is tried with every layer, where it must be refused, and without
// the one that refuses it, where it must succeed: else it proves nothing.
func TestLayers(t *testing.T) {
	unprivileged(t)
	for _, c := range []struct {
		name   string
		script string // succeeds if the sandbox does not hold
		off    []profiles.Layer
	}{
		{"write what is shown for reading", "echo x > ../shown/file", []profiles.Layer{profiles.LayerReadonly, profiles.LayerLandlock}},
		{"read a hidden file", "grep canary-env .env", []profiles.Layer{profiles.LayerHide}},
		{"write a hook", "echo x > .git/hooks/post-commit", []profiles.Layer{profiles.LayerProtect}},
		{"rename a repository away", "mv .git .git2", []profiles.Layer{profiles.LayerProtect}},
		{"make a user namespace", "unshare -U true", []profiles.Layer{profiles.LayerSeccomp, profiles.LayerFloor, profiles.LayerUsernsLimit}},
		{"see processes of the host", "test $(ls -d /proc/[0-9]* | wc -l) -gt 8", []profiles.Layer{profiles.LayerPidns}},
		{"read the environment", "env | grep canary-environment", []profiles.Layer{profiles.LayerEnv}},
		{"set a set-uid bit", "chmod u+s file", []profiles.Layer{profiles.LayerSeccomp, profiles.LayerFloor}},
		{"read the kernel's settings for writing", "test -w /proc/sys/kernel/core_pattern -o -r /proc/keys", []profiles.Layer{profiles.LayerProcMasks}},
		{"have the host's name", "test $(uname -n) != pccrun", []profiles.Layer{profiles.LayerUtsns}},
		{"look into pid 1", "ls /proc/1/fd", []profiles.Layer{profiles.LayerDumpable}},
		{"have the bounding set of capabilities", "! grep -q 'CapBnd:.*0000000000000000' /proc/self/status", []profiles.Layer{profiles.LayerCaps}},
		{"gain privileges", "grep -q 'NoNewPrivs:.0' /proc/self/status", []profiles.Layer{profiles.LayerNoNewPrivs, profiles.LayerLandlock, profiles.LayerSeccomp, profiles.LayerFloor}},
		{"use the host's network", "test $(ls /sys/class/net | wc -l) -gt 1", []profiles.Layer{profiles.LayerNetns}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			o := b.sh(c.script)
			require.NoError(t, o.err)
			require.NotZero(t, o.end.Status.ExitStatus(), "it got through: %s", o.out)

			for _, l := range c.off {
				b.request.Without = append(b.request.Without, string(l))
			}
			if c.name == "use the host's network" && interfaces(t) < 2 || c.name == "see processes of the host" && !shown("/proc/1") {
				return // nothing to be seen outside either; proc(5), hidepid
			}
			o = b.sh(c.script)
			require.NoError(t, o.err)
			require.Zero(t, o.end.Status.ExitStatus(), "the control does not get through: %s", o.out)
		})
	}
}

func shown(path string) bool { return unix.Access(path, unix.F_OK) == nil }

func interfaces(t *testing.T) int {
	list, err := net.Interfaces()
	require.NoError(t, err)
	return len(list)
}

func TestHome(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	o := b.sh("cat ../secret; ls -A ..; echo x > ../new && cat ../new; cat file && echo more > made")
	require.NoError(t, o.err)
	require.NotContains(t, o.out, "canary-home")
	require.Contains(t, o.out, "content")
	require.NoFileExists(t, filepath.Join(b.home, "new"), "the private home is gone at exit")
	require.FileExists(t, filepath.Join(b.workspace, "made"))

	b.request.Files = []profiles.FileFlag{{Path: filepath.Join(b.home, "secret"), Access: profiles.Read}}
	require.Contains(t, b.sh("cat ../secret").out, "canary-home", "control: shown by a rule")
}

func TestNothingSurvives(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	const survives = `setsid -f sh -c 'trap "" TERM HUP INT; until [ -e over ]; do sleep 0.01; done; echo > %s'; `
	o := b.sh(fmt.Sprintf(survives, "late") + "exit 0")
	require.NoError(t, o.err)
	b.write("work/over", "")
	o = b.sh(fmt.Sprintf(survives, "meanwhile") + "until [ -e meanwhile ]; do sleep 0.01; done")
	require.NoError(t, o.err)
	require.FileExists(t, filepath.Join(b.workspace, "meanwhile"), "control: it writes while the run lasts")
	require.NoFileExists(t, filepath.Join(b.workspace, "late"))
}

func TestDeadline(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Limits[6] = "1s"
	s, wait := b.start("/bin/sh", "-c", "sleep 600")
	require.Empty(t, groupsOf(s), "an unprivileged user's limits cost no group here")
	o := wait()
	require.NoError(t, o.err)
	require.True(t, o.end.TimedOut)
}

func TestMemory(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Limits[0] = "64m"
	o := b.sh("head -c 48m /dev/zero > /tmp/fits && echo fits; rm /tmp/fits; head -c 40m /dev/zero > /dev/shm/a; (head -c 300m /dev/zero && sleep 600) | tail | wc -c; echo survived")
	require.NoError(t, o.err)
	require.Contains(t, o.out, "fits")
	require.True(t, o.end.OOM, o.out)
	// A control group kills the process that wants too much, a supervisor all.
	require.Equal(t, o.end.Kills > 0, strings.Contains(o.out, "survived"), o.out)
	require.Equal(t, o.end.Kills > 0, o.end.Told().Outlived())
}

// The host replaces what is covered while the command looks.
func TestRemountWatcher(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	hook := filepath.Join(b.workspace, ".git/hooks/post-commit")
	b.write("work/.git/hooks/post-commit", "#!/bin/sh\n")
	_, wait := b.start("/bin/sh", "-c", `echo > begun; while [ ! -e go ]; do sleep 0.01; done
		i=0; while [ -r .env -o -w .git/hooks/post-commit ] && [ $i -lt 6000 ]; do sleep 0.01; i=$((i+1)); done # which opens neither
		cat .env; echo planted >> .git/hooks/post-commit; cat .git/hooks/post-commit`)
	await.Until(t, "it has begun", func() bool { return shown(filepath.Join(b.workspace, "begun")) })
	b.write("work/.env.new", "canary-replaced\n")
	require.NoError(t, os.Rename(filepath.Join(b.workspace, ".env.new"), filepath.Join(b.workspace, ".env")))
	b.write("work/hook.new", "#!/bin/sh\n# replaced\n")
	require.NoError(t, os.Rename(filepath.Join(b.workspace, "hook.new"), hook))
	b.write("work/go", "")
	o := wait()
	require.NoError(t, o.err)
	require.NotContains(t, o.out, "canary-replaced")
	require.Contains(t, o.out, "# replaced", "the new content is shown")
	text, err := os.ReadFile(hook)
	require.NoError(t, err)
	require.NotContains(t, string(text), "planted")
}

func TestProxy(t *testing.T) {
	unprivileged(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	serve := func() (port string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "canary-served") }))
		t.Cleanup(func() { l.Close() })
		return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	}
	port, other := serve(), serve()
	b := newBench(t)
	script := "curl -s http://host.pccrun.internal:" + port + "/"
	require.NotContains(t, b.sh(script).out, "canary-served", "no rule opens it")
	b.request.Local = []string{port}
	require.Contains(t, b.sh(script).out, "canary-served")
	require.Contains(t, b.sh("curl -s --noproxy '*' http://127.0.0.1:"+port+"/").out, "canary-served", "at the loopback inside too")
	require.NotContains(t, b.sh("curl -s --noproxy '*' http://127.0.0.1:"+other+"/").out, "canary-served", "not past the proxy")
}

func TestNotExecuted(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	_, err := b.plan("no-such-command")
	var absent *survey.ErrNotFound
	require.ErrorAs(t, err, &absent)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.EqualError(t, err, "no-such-command: command not found")
	_, err = b.plan(b.workspace)
	require.ErrorIs(t, err, unix.EISDIR)

	_, err = b.plan(filepath.Join(b.workspace, "file"))
	require.ErrorAs(t, err, &absent)
	require.ErrorIs(t, err, unix.EACCES)
	require.Contains(t, err.Error(), "permission denied")

	require.NoError(t, os.Chmod(filepath.Join(b.workspace, "file"), 0o755))
	_, wait := b.start(filepath.Join(b.workspace, "file"))
	var exec *namespaces.ExecError
	require.ErrorAs(t, wait().err, &exec, "it is no program")
	require.Equal(t, unix.ENOEXEC, exec.Errno)
}

func TestMissing(t *testing.T) {
	b := newBench(t)
	b.request.Inject = []string{"TOKEN=api.example.com"} // and no network
	_, err := b.plan("/bin/true")
	var missing *providers.MissingError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, profiles.NetInject, missing.Answer.Guarantee)
	require.NotEmpty(t, missing.Hint())
	require.Contains(t, err.Error(), "required by")
	b.request.Env = nil

	b.request.AllowMissing = []string{string(profiles.NetInject)}
	_, err = b.plan("/bin/true")
	require.NoError(t, err)
}

// TestGroup asks the real npm, as the bench's user has set it up.
func TestGroup(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("needs npm")
	}
	b := newBench(t)
	b.request.Allow = []string{"@npm"}
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".npmrc"), []byte("registry=https://mirror.example/\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, ".npmrc"), []byte("registry=https://evil.example/\n"), 0o600))
	r, err := b.plan("/bin/true")
	require.NoError(t, err)
	require.Equal(t, rules.Allow, r.Egress.Rules.Decide("mirror.example", 443).Action)
	require.Equal(t, rules.Deny, r.Egress.Rules.Decide("evil.example", 443).Action)
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".npmrc"), []byte("registry=http://127.0.0.1:4873/\n"), 0o600))
	_, err = b.plan("/bin/true")
	require.ErrorContains(t, err, "loopback")
}

// TestWithoutPacketRules has a kernel that lacks nftables, and one that lacks
// the routes too: that is a run by the proxy alone, if the user wants one.
func TestWithoutPacketRules(t *testing.T) {
	unprivileged(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	const script = `import socket, sys
try:
    print(socket.create_connection(("host.pccrun.internal", int(sys.argv[1])), 5).recv(9))
except OSError as e:
    print(e)
try:
    socket.create_connection(("8.8.8.8", 9), 5)
except OSError as e:
    print(e)`
	for _, c := range []struct {
		change func(*network.Plan)
		state  profiles.State
		cause  string
		want   []string
	}{
		{func(*network.Plan) {}, profiles.Kept, "", []string{"hello", "Connection refused"}},
		{func(p *network.Plan) { p.Rules = network.Unreported }, profiles.Weak, "nftables without a log", []string{"hello", "Connection refused"}},
		{func(p *network.Plan) { p.Rules = network.Routes }, profiles.Weak, "routes", []string{"hello", "Connection refused"}},
		{func(p *network.Plan) { p.Allowed = slices.Repeat([]netip.Prefix{network.Names4}, 5000) }, profiles.Missing, "5000 rules", []string{"Temporary failure", "unreachable"}},
	} {
		b := newBench(t)
		b.request.Local = []string{port}
		run, err := b.plan("/usr/bin/python3", "-c", script, port)
		require.NoError(t, err)
		c.change(run.Plan.Network)
		s, wait := b.launch(run)
		if c.state == profiles.Missing {
			var missing *providers.MissingError
			require.ErrorAs(t, wait().err, &missing)
			require.Equal(t, profiles.NetTransparent, missing.Answer.Guarantee)
			require.Equal(t, "--allow-missing net.transparent runs with the proxy only, for programs that honour HTTPS_PROXY", missing.Hint())
			require.Equal(t, "flag --local", missing.Origin.String())
			b.request.AllowMissing = []string{string(profiles.NetTransparent)}
			run, err = b.plan("/usr/bin/python3", "-c", script, port)
			require.NoError(t, err)
			c.change(run.Plan.Network)
			s, wait = b.launch(run)
		}
		if s == nil {
			require.NoError(t, wait().err, c.cause)
		}
		a, weaker := s.run.weaker(s.box)
		require.Equal(t, c.state != profiles.Kept, weaker)
		require.Equal(t, c.state, a.State)
		require.Contains(t, a.Mechanism+a.Cause, c.cause)
		o := wait()
		require.NoError(t, o.err)
		for _, want := range c.want {
			require.Contains(t, o.out, want)
		}
	}
}

func TestPublish(t *testing.T) {
	unprivileged(t)
	var l net.Listener
	for l == nil { // none of those that the kernel gives to others before it is taken again
		l, _ = net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20000+rand.IntN(10000)))
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	b := newBench(t)
	b.request.Publish = []string{port}
	s, wait := b.start("/bin/true")
	require.Nil(t, s)
	require.ErrorContains(t, wait().err, "in use")
	l.Close()
	s, wait = b.start("/usr/bin/python3", "-c", `import socket, sys
l = socket.create_server(("127.0.0.1", int(sys.argv[1]))); c, _ = l.accept(); print(c.recv(9)); c.sendall(b"from inside")`, port)
	text := ""
	await.Until(t, "it is reached", func() bool {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			return false
		}
		defer c.Close()
		io.WriteString(c, "outside")
		all, _ := io.ReadAll(c)
		text = string(all)
		return text != ""
	})
	require.Equal(t, "from inside", text)
	require.NotNil(t, s)
	require.Contains(t, wait().out, "outside")
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*profiles.Request)
		want   string
	}{
		{"filter", func(r *profiles.Request) { r.Syscalls = "/nonexistent.json" }, "nonexistent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			c.change(&b.request)
			_, err := b.plan("/bin/true")
			require.ErrorContains(t, err, c.want)
		})
	}
}

// A step that fails ends the launch, with its name, and leaves nothing.
func TestStepFails(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	run, err := b.plan("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(b.workspace, ".git/config")))
	box, err := namespaces.Begin(run.Plan.Shell)
	require.NoError(t, err)
	_, err = begin(run, box, &namespaces.Stdio{Fds: [3]int{0, 1, 2}, Host: -1})
	var step *namespaces.StepError
	require.ErrorAs(t, err, &step)
	require.Contains(t, err.Error(), ".git/config read-only: no such file or directory")

	// What was replaced between the survey and the mount is not what the plan decided on.
	b.write("work/.git/config", "[core]\n")
	if run, err = b.plan("/bin/true"); err == nil {
		require.NoError(t, os.Rename(filepath.Join(b.workspace, ".git/hooks"), filepath.Join(b.workspace, ".git/other")))
		require.NoError(t, os.Mkdir(filepath.Join(b.workspace, ".git/hooks"), 0o755))
		box, err = namespaces.Begin(run.Plan.Shell)
		require.NoError(t, err)
		_, err = begin(run, box, &namespaces.Stdio{Fds: [3]int{0, 1, 2}, Host: -1})
		require.ErrorIs(t, err, unix.ESTALE)
	}
	require.NoError(t, errors.Join(noChildren()))
}

// noChildren says whether a child of this process is left.
func noChildren() error {
	list, err := os.ReadFile("/proc/thread-self/children")
	if err != nil || len(bytes.TrimSpace(list)) == 0 {
		return nil
	}
	return fmt.Errorf("children left: %s", strings.TrimSpace(string(list)))
}

func TestAnswers(t *testing.T) {
	answer := func(b *bench, g profiles.Guarantee) profiles.Answer {
		run, err := b.plan("/bin/true")
		require.NoError(t, err)
		for _, a := range run.Answers {
			if a.Guarantee == g {
				return a
			}
		}
		t.Fatalf("no answer for %s", g)
		return profiles.Answer{}
	}
	b := newBench(t)
	require.Equal(t, profiles.Kept, answer(b, profiles.FSReadonly).State)
	require.Equal(t, profiles.Weak, answer(b, profiles.FSProtect).State, "new names")
	require.Equal(t, profiles.Kept, answer(b, profiles.FSOverlay).State)
	require.Equal(t, profiles.Weak, answer(b, profiles.FSHide).State, "patterns and files")

	b.request.Nested = true
	require.Equal(t, profiles.Missing, answer(b, profiles.SysNoNewUserns).State)
	require.Equal(t, profiles.Missing, answer(b, profiles.InfoKernel).State)
	require.Contains(t, answer(b, profiles.FSProtect).Cause, "mount namespace")
	b.request.Nested = false

	b.request.Without = []string{"seccomp", "floor", "userns-limit", "terminal"}
	require.Equal(t, profiles.Missing, answer(b, profiles.SysFilter).State)
	require.Equal(t, profiles.Missing, answer(b, profiles.SysNoNewUserns).State)
	require.Equal(t, profiles.Missing, answer(b, profiles.TTYIsolated).State)
	b.request.Without = nil

	require.Equal(t, profiles.Weak, answer(b, profiles.IPCUnix).State)
	b.request.Strict = true
	b.request.AllowMissing = []string{"res.memory", "res.cpu", "res.pids"}
	require.Equal(t, profiles.Kept, answer(b, profiles.IPCUnix).State)
	b.request.Nested, b.request.AllowMissing = true, nil
	_, err := b.plan("/bin/true")
	var missing *providers.MissingError
	require.ErrorAs(t, err, &missing, "strict asks for strong mechanisms")
	require.Contains(t, missing.Error(), "only weakly kept")
	var all providers.MissingErrors
	require.ErrorAs(t, err, &all, "all that is weak is named at once")
	require.Len(t, strings.Split(all.Error(), "\n"), len(all))
	flag, _, _ := strings.Cut(strings.TrimPrefix(all.Hint(), "--allow-missing "), " ")
	b.request.AllowMissing = strings.Split(flag, ",")
	_, err = b.plan("/bin/true")
	require.NoError(t, err, "with the leave to miss what the hint names nothing more is found")
}

func TestLimits(t *testing.T) {
	b := newBench(t)
	b.request.Limits[1] = "1"   // cpus
	b.request.Limits[2] = "64"  // pids
	b.request.Limits[3] = "256" // files
	b.request.Limits[4] = "1m"  // file size
	b.request.Limits[5] = "32m" // disk
	run, err := b.plan("/bin/true")
	require.NoError(t, err)
	names := map[string]uint64{}
	for _, r := range run.Plan.Rlimits {
		names[r.Name] = r.Hard
	}
	require.EqualValues(t, 256, names["open files"])
	require.EqualValues(t, 1<<20, names["file size"])
	copies := len(run.Plan.Mounts) - len(slices.DeleteFunc(slices.Clone(run.Plan.Mounts), func(m namespaces.Mount) bool { return m.Kind == namespaces.PrivateCopy }))
	require.EqualValues(t, 32<<20+copies*4096, run.Plan.Disk, "what is not the command's own does not count")
	require.EqualValues(t, 1<<10+3*copies, run.Plan.Inodes)
	require.LessOrEqual(t, names["core dumps"], uint64(1))
}

// Where crashes would reach a program of the host's root, nothing runs.
func TestCoreHandler(t *testing.T) {
	for handler, hint := range map[string]string{"|/usr/lib/handler %P": "ulimit -Hc 1", "@/run/handler": "--allow-missing priv.none"} {
		run, err := newBench(t).plan("/bin/true")
		require.NoError(t, err)
		require.Empty(t, run.Plan.CoreHandler)
		_, err = providers.Check(run.Policy, run.Answers)
		require.NoError(t, err, "control")
		run.Plan.CoreHandler = handler
		run.Answers = run.answers()
		var missing *providers.MissingError
		_, err = providers.Check(run.Policy, run.Answers)
		require.ErrorAs(t, err, &missing)
		require.Equal(t, profiles.PrivNone, missing.Answer.Guarantee)
		require.ErrorContains(t, missing, handler)
		require.Contains(t, missing.Hint(), hint)
	}
}

// What goes to the disk is counted, by whatever process inside.
func TestUsage(t *testing.T) {
	unprivileged(t)
	var fs unix.Statfs_t
	b := newBench(t)
	require.NoError(t, unix.Statfs(b.workspace, &fs))
	written := func(script string) int64 {
		o := b.sh(script)
		require.NoError(t, o.err)
		require.Equal(t, "rusage", o.end.IOBy)
		return o.end.Written
	}
	require.Less(t, written("true"), int64(1<<20), "control")
	n := written("(dd if=/dev/zero of=big bs=1M count=8 conv=fsync 2>/dev/null &) ; while ! test -s big || pgrep dd; do sleep 0.01; done")
	if fs.Type != unix.TMPFS_MAGIC { // which is not storage
		require.GreaterOrEqual(t, n, int64(8<<20))
	}

	// What the end of the run kills has used its time all the same.
	took := func(script string) time.Duration {
		return time.Duration(b.sh(script).end.Usage.Utime.Nano())
	}
	least := took("true") + 100*time.Millisecond
	require.Greater(t, took("setsid sh -c 'while :; do :; done' & until set -- $(cat /proc/$!/stat); test ${14} -gt 20; do sleep 0.01; done"), least)
	var used time.Duration
	for _, limit := range []string{"1s", "8s", "60s"} { // a busy machine may give it next to nothing in a second
		b.request.Limits[6] = limit
		run, err := b.plan("/bin/sh", "-c", "trap '' TERM; while :; do :; done")
		require.NoError(t, err)
		run.Plan.Grace = 100 * time.Millisecond
		_, wait := b.launch(run)
		if used = time.Duration(wait().end.Usage.Utime.Nano()); used > least {
			break
		}
	}
	require.Greater(t, used, least)
}

func TestOwnFilter(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.write("filter.json", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO","errnoRet":5}]}`)
	b.request.Syscalls = filepath.Join(b.home, "filter.json")
	o := b.sh("mkdir made; chmod u+s file; ls")
	require.NoError(t, o.err)
	require.Contains(t, o.out, "Input/output error")
	require.Contains(t, o.out, "Operation not permitted", "the floor holds below a filter that allows everything")

	b.request.Syscalls = ""
	b.sh("mkdir made")
	require.DirExists(t, filepath.Join(b.workspace, "made"), "control")

	b.write("filter.json", `{"defaultAction":"SCMP_ACT_MAYBE"}`)
	b.request.Syscalls = filepath.Join(b.home, "filter.json")
	_, err := b.plan("/bin/true")
	require.ErrorContains(t, err, "filter.json")

	// The command's process could neither say so nor end.
	for refused, call := range map[string]string{"execve": "execve", "exit_group": "exit_group", "read": ""} {
		b.write("filter.json", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["`+refused+`"],"action":"SCMP_ACT_ERRNO"}]}`)
		_, err = b.plan("/bin/true")
		if call == "" {
			require.NoError(t, err, "the control")
			continue
		}
		require.ErrorContains(t, err, "filter.json: "+call+" gets errno 1: too little for any command")
	}

	b.request.Syscalls = filepath.Join(b.home, "fifo")
	require.NoError(t, unix.Mkfifo(b.request.Syscalls, 0o600))
	_, err = b.plan("/bin/true")
	require.ErrorContains(t, err, "not a regular file", "and it does not block")
}

func TestLocalhost(t *testing.T) {
	unprivileged(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "canary-served") }))
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	b := newBench(t)
	script := "exec 3<>/dev/tcp/127.0.0.1/" + port + `; printf 'GET / HTTP/1.0\r\n\r\n' >&3; cat <&3`
	run := func() string {
		_, wait := b.start("/bin/bash", "-c", script)
		return wait().out
	}
	require.NotContains(t, run(), "canary-served")
	b.request.Local = []string{"localhost:" + port}
	require.Contains(t, run(), "canary-served")
	b.request.Local = []string{"localhost:1-1000"}
	_, err = b.plan("/bin/true")
	require.Error(t, err, "too many, or no such rule")
}

// Who connects at once is served, and who is refused and gone at once is reported.
func TestServedAtOnce(t *testing.T) {
	unprivileged(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "canary-served") }))
	port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	run := func(host, port string) (string, []string) {
		b := newBench(t)
		b.request.Local = []string{"localhost:" + port}
		r, err := b.plan("/bin/bash", "-c", "exec 3<>/dev/tcp/"+host+"/"+port+` || exit; printf 'GET / HTTP/1.0\r\n\r\n' >&3; cat <&3`)
		require.NoError(t, err)
		_, wait := b.launch(r)
		out := wait()
		require.NoError(t, out.err)
		var denied []string
		for _, e := range b.events {
			if e.Kind == netproxy.Denied {
				denied = append(denied, e.Verdict.Host)
			}
		}
		return out.out, denied
	}
	for _, host := range []string{"127.0.0.1", "host.pccrun.internal"} {
		out, _ := run(host, port)
		require.Contains(t, out, "canary-served")
	}
	out, denied := run("192.0.2.1", "80")
	require.Contains(t, out, "refused")
	require.Equal(t, []string{"192.0.2.1"}, denied)
}

// untilGo keeps what a Python script has until the test has seen it counted.
const untilGo = `
while not os.path.exists("go"): time.sleep(0.01)
print("had it all", flush=True)`

// counted lets such a script go on once so much memory of the run was counted, where
// samples count it.
func (b *bench) counted(s *Started, least int64) {
	b.t.Helper()
	await.Until(b.t, "its memory is counted", func() bool { return s.watch == nil || s.watch.Peak() > least })
	b.write("work/go", "")
}

// A segment that nobody has attached counts against the limit of memory.
func TestSegmentsCount(t *testing.T) {
	unprivileged(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	script := func(mib int) string {
		return fmt.Sprintf(`import ctypes, os, time
c = ctypes.CDLL(None); c.shmat.restype = ctypes.c_void_p; c.shmdt.argtypes = [ctypes.c_void_p]
for i in range(%d):
    p = c.shmat(c.shmget(0, 8 << 20, 0o1600), None, 0)
    ctypes.memset(p, 1, 8 << 20)
    c.shmdt(p)
`, mib/8) + untilGo
	}
	b := newBench(t)
	b.request.Limits[0] = "128m"
	_, wait := b.start("python3", "-c", script(512))
	o := wait()
	require.NoError(t, o.err)
	require.True(t, o.end.OOM)
	s, wait := b.start("python3", "-c", script(64))
	b.counted(s, 60<<20)
	o = wait()
	require.NoError(t, o.err)
	require.False(t, o.end.OOM, "control")
	require.Contains(t, o.out, "had it all")
	require.Greater(t, o.end.Peak, int64(60<<20))
}

// The kernel's own memory that one process can take without a page to show for
// it counts too: page tables, and System V semaphores.
func TestKernelMemoryCounts(t *testing.T) {
	unprivileged(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	// A byte of each 2 MiB takes a page of the tables; 8,000 semaphores half a MiB.
	const tables = `import ctypes, mmap, os, time
c = ctypes.CDLL(None, use_errno=True); c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
n = %d << 30
p = c.mmap(None, n, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
c.madvise(ctypes.c_void_p(p), ctypes.c_size_t(n), 15)
for i in range(0, n, 2 << 20): ctypes.string_at(p + i, 1)
` + untilGo
	const sets = `import ctypes, os, time
c = ctypes.CDLL(None)
for i in range(%d): assert c.semget(0, 8000, 0o600) >= 0
` + untilGo
	for _, c := range []struct {
		name, script string
		much, little int
	}{{"page tables", tables, 200, 10}, {"semaphores", sets, 800, 40}} {
		t.Run(c.name, func(t *testing.T) {
			for _, n := range []int{c.much, c.little} {
				b := newBench(t)
				b.request.Limits[0] = "128m"
				s, wait := b.start("python3", "-c", fmt.Sprintf(c.script, n))
				if n == c.little {
					b.counted(s, 20<<20)
				}
				o := wait()
				require.NoError(t, o.err)
				require.Equal(t, n == c.much, o.end.OOM, o.out)
				require.Equal(t, n == c.little, strings.Contains(o.out, "had it all"), "%d: %s", n, o.out)
			}
		})
	}
}

// Half of what was used is nothing.
func TestCount(t *testing.T) {
	used := unix.Rusage{Utime: unix.Timeval{Sec: 1}, Maxrss: 7, Inblock: 2, Oublock: 3}
	e := End{Result: namespaces.Result{Usage: used}}
	e.count()
	require.Equal(t, End{Result: namespaces.Result{Usage: used}, Read: 1024, Written: 1536, IOBy: "rusage"}, e)
	e = End{Result: namespaces.Result{Usage: used, Killed: true}}
	e.count()
	require.Equal(t, End{Result: namespaces.Result{Killed: true}}, e)
}

// Who opens a directory on its short way through a workspace can put something in it later: it comes by where commands see a
// read-only mount, if such a directory stands.
func TestStagedWhereOthersOnlyRead(t *testing.T) {
	b := newBench(t)
	b.state = t.TempDir()
	run, err := b.plan("true")
	require.NoError(t, err)
	if run.Plan.Identity.Root {
		require.Nil(t, run.stage(b.state))
		run.Plan.Identity.Root = false
	}
	in := func(dir string) {
		t.Helper()
		s := run.stage(b.state)
		require.NotNil(t, s)
		require.Equal(t, dir, filepath.Dir(s.Name))
	}
	hooks := b.workspace + "/.git/hooks"
	require.NoError(t, os.MkdirAll(hooks, 0o755))
	in(".git/hooks")
	require.NoError(t, os.RemoveAll(hooks))
	in(".git")
	require.NoError(t, os.Symlink(b.home, hooks))
	in(".git")
	require.NoError(t, os.RemoveAll(b.workspace+"/.git"))
	in(".")
}

// planned surveys this machine and plans a run.
func planned(policy *profiles.Policy, o options, argv []string) (*Planned, error) {
	plan, err := planner(policy, o, argv)
	if err != nil {
		return nil, err
	}
	p, err := plan()
	if err != nil {
		return nil, err
	}
	_, err = providers.Check(policy, p.Answers)
	return p, err
}

// planner learns what a plan is made of, and returns what makes it.
func planner(policy *profiles.Policy, o options, argv []string) (func() (*Planned, error), error) {
	host := profiles.Host{Environ: o.environ}
	paths, err := survey.Programs(policy, argv[0], o.environ)
	if err != nil {
		return nil, err
	}
	looked, err := survey.Look(policy, survey.Options{
		Own: o.stateDir, Getenv: host.Getenv, Environ: o.environ, Command: paths, Network: o.ask != nil || o.learn,
	})
	if err != nil {
		return nil, err
	}
	s := &providers.Survey{Command: paths, Machine: looked}
	command := providers.Command{Argv: argv, Env: policy.Environ(o.environ), Dir: providers.StartDir(policy)}
	f, err := examine(policy, s, &o, command)
	if err != nil {
		return nil, err
	}
	return func() (*Planned, error) { return decide(policy, s, f, &o, command) }, nil
}

// A plan is made of the policy, the survey, the facts and the command alone: when all that they speak of is gone, it is
// the same.
func TestPlanIsPure(t *testing.T) {
	for name, change := range map[string]func(*profiles.Request, *options){
		"default":  func(*profiles.Request, *options) {},
		"strict":   func(r *profiles.Request, _ *options) { r.Profile = "strict" },
		"attempts": func(r *profiles.Request, _ *options) { r.Report = "attempts" },
		"learn":    func(_ *profiles.Request, o *options) { o.learn = true },
		"network":  func(r *profiles.Request, _ *options) { r.Allow = []string{"example.com"} },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			req := b.request
			req.Command, req.Workspace = []string{"/bin/true"}, b.workspace
			req.Host = profiles.Host{UID: os.Getuid(), Home: b.home, Cwd: b.workspace, Memory: 8 << 30, Environ: []string{"PATH=/usr/bin:/bin", "HOME=" + b.home}}
			o := options{environ: req.Host.Environ}
			change(&req, &o)
			policy, err := profiles.Resolve(req)
			require.NoError(t, err)
			plan, err := planner(policy, o, req.Command)
			require.NoError(t, err)
			first, err := plan()
			require.NoError(t, err)
			require.NoError(t, os.RemoveAll(b.home))
			second, err := plan()
			require.NoError(t, err)
			require.Equal(t, first.Plan, second.Plan)
			require.Equal(t, first.Answers, second.Answers)
			require.Equal(t, first.Warnings, second.Warnings)
		})
	}
}

func groupsOf(s *Started) []string {
	_, groups := s.Process()
	return groups
}
