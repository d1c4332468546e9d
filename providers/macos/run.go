//go:build unix

package macos

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/egress"
	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seatbelt"
	"github.com/pccrun/pccrun/terminal"
)

// grace is how long the command has between TERM and KILL when its time is up; startWithin how long
// the parts before it may take, drainWithin what it printed before it ended.
const (
	grace       = 5 * time.Second
	startWithin = 30 * time.Second
	drainWithin = 5 * time.Second
)

// Examine asks whether a sandbox can be made here at all: in another one, none can.
func (p *Provider) Examine(ctx context.Context) (providers.Facts, error) {
	if _, err := os.Stat(p.system.exec); err != nil {
		return nil, &providers.UnusableError{Provider: providers.Native, Cause: err.Error(), Advice: "macOS has it at " + p.system.exec}
	}
	cmd := exec.CommandContext(ctx, p.system.exec, "-p", "(version 1)(allow default)", "/usr/bin/true")
	cmd.Env = []string{}
	if out, err := cmd.CombinedOutput(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 71 {
			return nil, alreadyInside()
		}
		return nil, &providers.UnusableError{Provider: providers.Native, Cause: "sandbox-exec: " + err.Error() + ": " + strings.TrimSpace(string(out))}
	}
	f := &Facts{Version: systemVersion()}
	var most syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err == nil {
		f.Nofile = uint64(most.Max)
	}
	return f, nil
}

// running is a run under way.
type running struct {
	*plan
	io       providers.Stdio
	observer providers.Observer
	egress   *egress.Plan
	service  *egress.Service
	denials  *events.Log
	proxy    net.Listener // nil without a network
	trap     net.Listener // of the trial: nothing inside reaches it
	door     net.Listener // the same, as a unix socket
	master   *os.File     // of the command's terminal
	order    order
	leader   *os.Process
	group    int           // of the command
	control  *os.File      // to who leads the session of the command's terminal, nil for none
	told     *bufio.Reader // what it says
	ended    <-chan uint32 // the command's status, which it has passed on
	warden   *warden
	copying  sync.WaitGroup // what the command prints
	pipes    []*os.File     // by which it comes
	over     atomic.Bool    // the command is gone
	close    []func()

	joined    *terminal.Relay // of both terminals; nil where the caller has given streams
	callerIn  io.Reader
	callerOut io.Writer

	mu       sync.Mutex
	timedOut bool
	killed   bool
}

// Run carries the plan out.
func (r *plan) Run(ctx context.Context, stdio providers.Stdio, o providers.Observer) (result providers.Result, err error) {
	if r.command.Label == "" {
		return result, errors.New("BUG: macos: a plan that is only looked at is run")
	}
	run := &running{plan: r, io: stdio, observer: o}
	defer func() {
		for i := len(run.close) - 1; i >= 0; i-- {
			run.close[i]()
		}
		err = errors.Join(err, os.RemoveAll(r.dir))
	}()
	begun := time.Now()
	if err := run.furnish(); err != nil {
		return result, err
	}
	if err := run.leave(ctx); err != nil {
		return result, err
	}
	if err := run.profile(); err != nil {
		return result, err
	}
	o.Created(resource(r.command.Label, 0))
	run.hear(ctx)
	result, err = run.follow(ctx)
	result.Wall = time.Since(begun)
	return result, err
}

// furnish makes what the run has of its own.
func (r *running) furnish() error {
	for _, dir := range [...]string{r.dir, r.plan.profile.Temp, filepath.Join(r.dir, homeName), filepath.Join(r.dir, trialName)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, trialName, "canary"), []byte(rand.Text()), 0o600); err != nil {
		return err
	}
	told, err := os.OpenFile(filepath.Join(r.dir, denialsName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	r.denials = events.NewLog(r.command.Label, events.Denials(told))
	r.denials.Start()
	r.close = append(r.close, func() { _ = r.denials.Close(time.Second) })
	return r.furnishHome()
}

// furnishHome makes the names in the home that lead to what is shown. What an earlier run has put in
// the way is left alone, and named: a link of its own could lead anywhere.
func (r *running) furnishHome() error {
	if len(r.home) == 0 {
		return nil
	}
	root, err := os.OpenRoot(r.plan.profile.Home)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range r.home {
		if err := root.MkdirAll(filepath.Dir(e.Name), 0o700); err != nil {
			return err
		}
		if there, err := root.Readlink(e.Name); e.Link != "" && err == nil && there == e.Link {
			continue
		}
		switch {
		case e.Link != "":
			err = root.Symlink(e.Link, e.Name)
		default:
			err = root.WriteFile(e.Name, []byte(e.Text), 0o600)
		}
		if errors.Is(err, os.ErrExist) {
			r.observer.Warning(events.Warning{Text: "~/" + e.Name + " in the persistent home is from an earlier run: " + e.Link + " is not shown there"})
		} else if err != nil {
			return err
		}
	}
	return nil
}

// leave opens the way out: the proxy on a port of the loopback, which serves who gives the token.
func (r *running) leave(ctx context.Context) (err error) {
	policy := *r.policy
	policy.Network.Publish = nil // the command listens at this machine's own ports
	sandbox := egress.Sandbox{Environ: r.environ, Token: rand.Text()}
	if r.network() {
		if r.proxy, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			return err
		}
		r.close = append(r.close, func() { r.proxy.Close() })
		sandbox.Proxy = portOf(r.proxy)
	}
	if r.trap, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return err
	}
	r.close = append(r.close, func() { r.trap.Close() })
	// By a name relative to the directory it could be longer than sun_path is.
	if r.door, err = listenUnix(filepath.Join(r.dir, trialName), "door"); err != nil {
		return err
	}
	r.close = append(r.close, func() { r.door.Close() })
	host := egress.Host{Environ: r.provider.host.Environ, StateDir: r.provider.host.StateDir, Secrets: new(egress.Secrets)}
	if r.egress, err = egress.New(&policy, host, sandbox); err != nil {
		return err
	}
	for _, text := range r.egress.Warnings {
		r.observer.Warning(events.Warning{Text: text})
	}
	if r.egress.Inspects() {
		return &StartError{Cause: "rules for requests need the inspection process, which does not run on macOS", Advice: "--allow HOST, without a method or a path; pccrun in a Linux virtual machine keeps such rules"}
	}
	if r.service, err = r.egress.Open(r.decided); err != nil {
		return err
	}
	r.close = append(r.close, r.service.Close)
	r.service.Begin(nil)
	if r.proxy != nil {
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r.close = append(r.close, cancel)
		r.service.Listeners(ctx, []net.Listener{r.proxy})
	}
	return nil
}

func portOf(l net.Listener) uint16 { return uint16(l.Addr().(*net.TCPAddr).Port) }

// listenUnix listens at a name in a directory.
func listenUnix(dir, name string) (net.Listener, error) {
	path := filepath.Join(dir, name)
	if len(path) < 100 { // 104 bytes on macOS
		return net.Listen("unix", path)
	}
	short, err := os.MkdirTemp("/tmp", "pccrun-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(short)
	link := filepath.Join(short, "d")
	if err := os.Symlink(dir, link); err != nil {
		return nil, err
	}
	defer os.Remove(link)
	return net.Listen("unix", filepath.Join(link, name))
}

// profile makes the profile of this run, with its ports, its terminal and its tag.
func (r *running) profile() error {
	s := r.plan.profile
	if r.proxy != nil {
		s.Proxy = []uint16{portOf(r.proxy)}
	}
	s.Tag = tagOf(r.command.Label)
	env := r.egress.Environ
	if r.proxy != nil {
		env = r.egress.Uncaptured(env)
	}
	if r.io.Terminal != nil {
		master, slave, err := r.provider.system.terminal()
		if err != nil {
			return fmt.Errorf("open a pseudo-terminal: %w", err)
		}
		r.master = master
		r.close = append(r.close, func() { master.Close(); slave.Close() })
		s.Terminal = slave.Name()
		r.resize()
		r.callerIn, r.callerOut = r.io.In, r.io.Out
		r.io.In, r.io.Out, r.io.Err = slave, slave, slave
	}
	document, err := seatbelt.Profile(r.policy, s)
	if err != nil {
		return err
	}
	stage := r.provider.system.stage
	r.order = order{
		Exec: []string{r.provider.system.exec, "-p", document.Text}, Limits: r.limits(),
		Trial: trial{Dir: filepath.Join(r.dir, trialName), Port: int(portOf(r.trap))},
		Paths: r.paths, Argv: r.command.Argv, Env: env, Dir: r.command.Dir,
	}
	for _, p := range document.Params {
		r.order.Exec = append(r.order.Exec, "-D", p.Name+"="+p.Value)
	}
	r.order.Exec = append(append(r.order.Exec, stage...), insidePart)
	return nil
}

// hear follows the system's log. Who may not read it is told so, once.
func (r *running) hear(ctx context.Context) {
	argv := r.provider.system.log
	if len(argv) == 0 {
		return
	}
	tag := tagOf(r.command.Label)
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:len(argv):len(argv)], predicate(tag))...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.StdoutPipe()
	var said strings.Builder
	cmd.Stderr = &said
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.observer.Warning(events.Warning{Text: "denials are not reported: " + err.Error()})
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		readLog(out, tag, r.policy, func(d events.Denial) {
			r.denials.Emit(d)
			r.observer.Denial(d)
		})
		if cmd.Wait(); said.Len() > 0 {
			line, _, _ := strings.Cut(said.String(), "\n")
			r.observer.Warning(events.Warning{Text: "denials are not reported: " + line})
		}
	}()
	r.close = append(r.close, func() {
		time.Sleep(logDelay) // what was denied last is on its way
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(time.Second):
			_ = cmd.Process.Kill()
		}
	})
}

// logDelay is how long a line of the log may be on its way.
const logDelay = 200 * time.Millisecond

// follow starts the command and follows it to its end.
func (r *running) follow(ctx context.Context) (result providers.Result, err error) {
	if r.warden, err = r.provider.system.startWarden(r.command.Label); err != nil {
		return result, err
	}
	defer r.warden.abandon()
	reports, err := r.start()
	if err != nil {
		return result, err
	}
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		r.killed = true
		r.mu.Unlock()
		r.warden.tell("end")
	})
	defer stop()
	ready, failed := r.await(reports)
	if ready {
		r.observer.Started()
		over := make(chan struct{})
		defer close(over)
		go r.forward(over)
	}
	state, err := r.leader.Wait()
	if err != nil {
		return result, err
	}
	ended, err := r.warden.end()
	r.copied()
	if err != nil {
		return result, fmt.Errorf("macos: end remaining processes: %w", err)
	}
	status := state.Sys().(syscall.WaitStatus)
	if r.ended != nil {
		if s, is := <-r.ended; is {
			status = syscall.WaitStatus(s)
		}
	}
	result = r.result(state, status)
	switch {
	case ready && !result.TimedOut && !result.Killed:
		result.Survivors = ended
	case !ready && !result.Killed:
		return providers.Result{}, judge(failed, status, r.command.Argv[0])
	}
	return result, nil
}

// result is how the command ended.
func (r *running) result(state *os.ProcessState, status syscall.WaitStatus) (result providers.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	result = providers.Result{
		Code: status.ExitStatus(), TimedOut: r.timedOut, Killed: r.killed,
		User: state.UserTime(), System: state.SystemTime(), IOBy: "rusage",
	}
	if status.Signaled() {
		result.Code, result.Signal = 0, r.provider.system.fromNative(int(status.Signal()))
	}
	return result
}

// start starts the first part, with the command's standard streams.
func (r *running) start() (<-chan *report, error) {
	text, err := json.Marshal(&r.order)
	if err != nil {
		return nil, err
	}
	said, err := os.CreateTemp(r.dir, "order-")
	if err != nil {
		return nil, err
	}
	defer said.Close()
	if _, err = said.Write(text); err == nil {
		err = os.Remove(said.Name()) // it holds the environment
	}
	if err != nil {
		return nil, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer to.Close()
	in, err := r.input()
	if err != nil {
		return nil, err
	}
	out, err := r.output(r.io.Out)
	if err != nil {
		return nil, err
	}
	errs := out
	if r.master == nil && !sameWriter(r.io.Out, r.io.Err) {
		if errs, err = r.output(r.io.Err); err != nil {
			return nil, err
		}
	}
	part, sys, files := outsidePart, &syscall.SysProcAttr{Setpgid: true}, []*os.File{in, out, errs, said, to}
	if r.master != nil {
		part, sys = leadPart, &syscall.SysProcAttr{Setsid: true, Setctty: true} // 0 is the terminal
		ours, theirs, err := socketPair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		r.control, r.told, files = ours, bufio.NewReader(ours), append(files, theirs)
		r.close = append(r.close, func() { ours.Close() })
	}
	stage := append(append([]string{}, r.provider.system.stage...), part)
	r.leader, err = os.StartProcess(stage[0], stage, &os.ProcAttr{Dir: "/", Env: r.provider.system.environ, Files: files, Sys: sys})
	for _, f := range []*os.File{in, out, errs} {
		if f != nil && f != r.io.In && f != r.io.Out && f != r.io.Err {
			f.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", stage[0], err)
	}
	r.group = r.leader.Pid
	r.warden.tell(strconv.Itoa(r.leader.Pid))
	_ = os.WriteFile(filepath.Join(r.dir, groupName), []byte(strconv.Itoa(r.leader.Pid)), 0o600)
	r.observer.Created(resource(r.command.Label, r.leader.Pid))
	if r.master != nil {
		r.io.In.(*os.File).Close() // the slave: the master ends with the command's
		if err := r.relay(); err != nil {
			r.warden.tell("end")
			return nil, errors.Join(err, from.Close())
		}
		r.attend()
	}
	reports := make(chan *report, 4)
	go func() {
		defer close(reports)
		defer from.Close()
		for in := json.NewDecoder(from); ; {
			one := new(report)
			if in.Decode(one) != nil {
				return
			}
			reports <- one
		}
	}()
	return reports, nil
}

// socketPair makes two ends of a line to a process.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range pair {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control"), nil
}

// attend has the command start with its terminal, stops with it when a key has stopped it, or when it
// wants the keys of a terminal in whose background we are, and lets it go on when we do.
func (r *running) attend() {
	place := func() {
		word := "f"
		if r.joined != nil && !r.joined.Active() {
			word = "b"
		}
		_, _ = io.WriteString(r.control, word+"\n")
	}
	place()
	line, _ := r.told.ReadString('\n')
	if _, err := fmt.Sscanf(line, "group %d", &r.group); err != nil {
		return // it did not start, and has reported that
	}
	ended := make(chan uint32, 1)
	r.ended = ended
	go func() {
		defer close(ended)
		for {
			line, err := r.told.ReadString('\n')
			if err != nil {
				return
			}
			var n uint32
			if _, err := fmt.Sscanf(line, "ended %d", &n); err == nil {
				ended <- n
				return
			}
			if _, err := fmt.Sscanf(line, "stopped %d", &n); err != nil {
				return
			}
			if r.joined != nil {
				halt := r.joined.Suspend
				if sig := syscall.Signal(n); sig == syscall.SIGTTIN || sig == syscall.SIGTTOU {
					halt = r.joined.Foreground
				}
				if halt() != nil { // the terminal is gone: what the kernel gives to a stopped group then
					_ = syscall.Kill(-r.group, syscall.SIGHUP)
				}
			}
			place()
		}
	}()
}

// await waits until the command has begun, or did not.
func (r *running) await(reports <-chan *report) (ready bool, failed *report) {
	late := time.AfterFunc(startWithin, func() { r.warden.tell("end") })
	defer late.Stop()
	one := <-reports
	if one == nil || one.Part != insidePart || one.Fail != "" || one.Errno != 0 {
		return false, one
	}
	if next, more := <-reports; more { // else the command has begun, and the descriptor is closed
		return false, next
	}
	return true, nil
}

// input is what the command reads. A terminal of the user's is never handed in.
func (r *running) input() (*os.File, error) {
	if r.io.In == nil {
		return os.Open(os.DevNull)
	}
	if f, ok := r.io.In.(*os.File); ok && (r.master != nil || !isDevice(f)) {
		return f, nil
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() { // until the command reads no more, or nobody types
		_, _ = io.Copy(to, r.io.In)
		to.Close()
	}()
	return from, nil
}

// output is where the command prints.
func (r *running) output(w io.Writer) (*os.File, error) {
	if f, ok := w.(*os.File); ok && (r.master != nil || !isDevice(f)) {
		return f, nil
	}
	if w == nil {
		w = io.Discard
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.pipes = append(r.pipes, from)
	r.copying.Go(func() {
		defer from.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				if _, err := w.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
			if r.over.Load() {
				_ = from.SetReadDeadline(time.Now().Add(drainWithin))
			}
		}
	})
	return to, nil
}

// sameWriter reports whether both streams go to one writer, which two at once could not write to.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }() // of a type that cannot be compared
	return a == b
}

// isDevice reports whether a file is one other than /dev/null: a terminal, as a rule.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}

// relay joins the command's terminal and the caller's.
func (r *running) relay() (err error) {
	if join := r.io.Terminal.Relay; join != nil {
		r.joined, err = join(terminal.Options{Master: r.master})
		return err
	}
	if r.callerIn != nil {
		go func() { _, _ = io.Copy(r.master, r.callerIn) }()
	}
	r.copying.Go(func() { _, _ = io.Copy(r.callerOut, r.master) }) // until the last of the other side is closed
	return nil
}

// copied waits until all that was printed is passed on, to a reader who takes his time too. Where
// something lives on that nobody found, it may hold the other side and print no more.
func (r *running) copied() {
	r.over.Store(true)
	for _, from := range r.pipes {
		_ = from.SetReadDeadline(time.Now().Add(drainWithin))
	}
	switch {
	case r.joined != nil:
		r.joined.Wait(drainWithin)
		r.joined.Close(drainWithin)
		return
	case r.master == nil:
		r.copying.Wait()
		return
	}
	done := make(chan struct{})
	go func() {
		r.copying.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainWithin):
	}
}

// forward passes signals and sizes on, and keeps the time.
func (r *running) forward(over <-chan struct{}) {
	var deadline, last <-chan time.Time
	if limit := r.policy.Resources.Deadline(); limit > 0 {
		deadline = time.After(limit)
	}
	var resized <-chan struct{}
	if r.io.Terminal != nil {
		resized = r.io.Terminal.Resized
	}
	signals := r.io.Signals
	for {
		select {
		case <-over:
			return
		case <-deadline:
			r.mu.Lock()
			r.timedOut = true
			r.mu.Unlock()
			_ = syscall.Kill(-r.group, syscall.SIGTERM)
			last = time.After(grace)
		case <-last:
			r.warden.tell("end")
		case <-resized:
			r.resize()
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			_ = syscall.Kill(-r.group, syscall.Signal(r.provider.system.toNative(sig)))
		}
	}
}

func (r *running) resize() {
	columns, rows := r.io.Terminal.Size()
	_ = unix.IoctlSetWinsize(int(r.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
}

// decided turns what the proxy did into events.
func (r *running) decided(event netproxy.Event) {
	if event.Kind == netproxy.Full {
		r.observer.Warning(events.Warning{Text: "too many connections at once: further ones are reset"})
		return
	}
	providers.Tell(refusals{r.observer, r.denials}, event)
}

// refusals are an observer before which the command is told of what was refused.
type refusals struct {
	providers.Observer
	denials *events.Log
}

// Decision tells both.
func (t refusals) Decision(d events.NetDecision) {
	if !d.Allowed {
		t.denials.Emit(d)
	}
	t.Observer.Decision(d)
}

// A warden is the process that ends what the command leaves.
type warden struct {
	process *os.Process
	to      *os.File
	said    *bufio.Reader
	once    sync.Once
	names   []string
	err     error
}

// startWarden starts it, in a session of its own: what ends the launcher does not end it.
func (s *system) startWarden(label string) (*warden, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	from, out, err := os.Pipe()
	if err != nil {
		to.Close()
		return nil, err
	}
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	argv := append(append([]string{}, s.stage...), wardenPart, label)
	w := &warden{to: to, said: bufio.NewReader(from)}
	w.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
		Dir: "/", Env: s.environ, Files: []*os.File{in, out, null}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		to.Close()
		from.Close()
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return w, nil
}

func (w *warden) tell(word string) { _, _ = io.WriteString(w.to, word+"\n") }

// end has it end what is left, and returns what there was.
func (w *warden) end() ([]string, error) {
	w.once.Do(func() {
		w.tell("end")
		for {
			line, err := w.said.ReadString('\n')
			if name, ok := strings.CutPrefix(line, "ended "); ok {
				w.names = append(w.names, strings.TrimSuffix(name, "\n"))
			} else if text, ok := strings.CutPrefix(line, "error "); ok {
				w.err = errors.New(strings.TrimSuffix(text, "\n"))
			}
			if err != nil {
				break
			}
		}
		if state, err := w.process.Wait(); err != nil || !state.Success() {
			w.err = errors.Join(w.err, err, fmt.Errorf("the clean-up process ended (%v)", state))
		}
		w.to.Close()
	})
	return w.names, w.err
}

// abandon ends all where nobody asked for it yet.
func (w *warden) abandon() { _, _ = w.end() }
