//go:build unix

package macos

import (
	"bufio"
	"context"
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

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seatbelt"
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
	log      *os.Process    // what follows the system's log, if anything
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
		err = errors.Join(err, state.RemovePath(r.dir))
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

// follow starts the command and follows it to its end.
func (r *running) follow(ctx context.Context) (result providers.Result, err error) {
	if r.warden, err = r.provider.system.startWarden(r.command.Label); err != nil {
		return result, err
	}
	defer r.warden.abandon()
	if r.log != nil {
		r.warden.tell("helper " + strconv.Itoa(r.log.Pid))
	}
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
