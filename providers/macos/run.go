//go:build unix

package macos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seatbelt"
)

// grace is how long the command has between TERM and KILL when its time is up; startWithin how long
// the parts before it may take, drainWithin what it printed last.
const (
	grace       = 5 * time.Second
	startWithin = 30 * time.Second
	drainWithin = 30 * time.Second
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
		if errors.As(err, &exit) && exit.ExitCode() == nested {
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
	observer providers.Observer
	egress   *egress.Plan
	denials  *events.Log
	proxy    net.Listener // nil without a network
	streams  streams
	close    []func()
}

// Run carries the plan out.
func (r *plan) Run(ctx context.Context, stdio providers.Stdio, o providers.Observer) (result providers.Result, err error) {
	if r.command.Label == "" {
		return result, errors.New("BUG: macos: a plan that is only looked at is run")
	}
	run := &running{plan: r, observer: o, streams: streams{caller: stdio}}
	defer func() {
		for i := len(run.close) - 1; i >= 0; i-- {
			run.close[i]()
		}
		err = errors.Join(err, state.RemovePath(r.dir))
	}()
	begun := time.Now()
	if err := run.makeDirectories(); err != nil {
		return result, err
	}
	if err := run.openEgress(ctx); err != nil {
		return result, err
	}
	if stdio.Terminal != nil {
		run.close = append(run.close, run.streams.close)
		if err := run.streams.openTerminal(); err != nil {
			return result, err
		}
	}
	o.Created(resource(r.command.Label))
	decided, err := run.decide()
	if err != nil {
		return result, err
	}
	result, err = run.follow(ctx, decided)
	result.Wall = time.Since(begun)
	return result, err
}

// decide makes the order, with the profile for this run's ports, its terminal and its tag.
func (r *running) decide() (*order, error) {
	s := r.plan.profile
	env := r.egress.Environ
	if r.proxy != nil {
		s.Proxy = portOf(r.proxy)
		env = r.egress.Uncaptured(env)
	}
	s.Tag = tagOf(r.command.Label)
	terminal, foreground := r.streams.slave != nil, false
	if terminal {
		s.Terminal, foreground = r.streams.slave.Name(), r.streams.relay.Active()
	}
	document, err := seatbelt.Profile(r.policy, s)
	if err != nil {
		return nil, err
	}
	o := &order{
		Label: r.command.Label, Log: append(slices.Clone(r.provider.system.log), `eventMessage CONTAINS "`+s.Tag+`"`), Terminal: terminal, Foreground: foreground,
		Exec: []string{r.provider.system.exec, "-p", document.Text}, Limits: r.limits(),
		Trial: trial{Dir: filepath.Join(r.dir, trialName)},
		Paths: r.paths, Argv: r.command.Argv, Env: env, Dir: r.command.Dir,
	}
	for _, p := range document.Params {
		o.Exec = append(o.Exec, "-D", p.Name+"="+p.Value)
	}
	o.Exec = append(append(o.Exec, r.provider.system.stage...), insidePart)
	return o, nil
}

// follow starts the command, passes signals and sizes on, keeps the time, and follows it to its end.
func (r *running) follow(ctx context.Context, o *order) (result providers.Result, err error) {
	s, err := r.startSupervisor(o)
	if err != nil {
		return result, err
	}
	var (
		begun    bool
		last     *ending
		group    int
		signals  <-chan int // none before the command has begun
		deadline <-chan time.Time
		late     = time.After(startWithin) // it has to begin, or to end
		killed   = ctx.Done()
	)
	for last == nil {
		select {
		case e, more := <-s.events:
			switch {
			case !more:
				t := tracker{system: &r.provider.system, leader: group, label: r.command.Label}
				_, err := t.end()
				return result, errors.Join(errors.New("macos: the supervisor ended before the command"), err)
			case e.Ended != nil:
				last = e.Ended
			case e.Begun:
				begun, signals, late = true, r.streams.caller.Signals, nil
				if limit := r.policy.Resources.Deadline(); limit > 0 {
					deadline = time.After(limit)
				}
				r.observer.Started()
			case e.Stopped > 0:
				go r.streams.suspend(syscall.Signal(e.Stopped), s)
			default:
				group = e.Group
			}
		case <-deadline:
			result.TimedOut, late = true, time.After(grace)
			s.signal(int(syscall.SIGTERM))
		case <-late:
			s.tell("end")
		case <-killed:
			result.Killed, killed = true, nil
			s.tell("end")
		case <-r.streams.resized():
			r.streams.resize()
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			s.signal(r.provider.system.toNative(sig))
		}
	}
	r.drain(s.cmd)
	if last.Error != "" {
		return providers.Result{}, errors.New("macos: end remaining processes: " + last.Error)
	}
	status := syscall.WaitStatus(last.Status)
	if !begun && !result.Killed {
		return providers.Result{}, notBegun(last.Failed, status, r.command.Argv[0])
	}
	if begun && !result.TimedOut && !result.Killed {
		result.Survivors = last.Survivors
	}
	result.User, result.System, result.IOBy = last.User, last.System, "rusage"
	result.Code = status.ExitStatus()
	if status.Signaled() {
		result.Code, result.Signal = 0, r.provider.system.fromNative(int(status.Signal()))
	}
	return result, nil
}

// What sandbox-exec ends with, where it does not become the command.
const (
	badProfile = 65 // the text is none that it takes
	nested     = 71 // a sandbox is around already
)

// notBegun is what a report, or that there was none, says of the start. Nothing ran outside of the profile.
func notBegun(r *report, status syscall.WaitStatus, command string) error {
	switch {
	case r != nil && r.Errno != 0:
		return &providers.ExecError{Name: command, Err: syscall.Errno(r.Errno)}
	case r != nil && r.Fail != "":
		return errors.New("macos: " + r.Fail)
	case status.Exited() && status.ExitStatus() == badProfile:
		return hint.Errorf("pccrun spec --format seatbelt prints it; docs/macos.md says how to report that", "macos: sandbox-exec does not take the profile")
	case status.Exited() && status.ExitStatus() == nested:
		return alreadyInside()
	}
	return fmt.Errorf("macos: sandbox-exec ended before the command began (status %d)", status)
}

// alreadyInside refuses to run in another sandbox: macOS makes none in one that denies anything.
func alreadyInside() error {
	return &providers.UnusableError{
		Provider: providers.Native, Cause: "this process is already in a sandbox, and macOS does not nest them",
		Advice: "start pccrun from your own terminal, not from a sandboxed agent",
	}
}
