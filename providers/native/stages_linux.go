package native

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/workspace/changes"
)

// The stages of a run, in their order: see [providers.LocalPlan].

// Bind makes what the run needs of its own, and opens what its command will work on.
func (p *plan) Bind(io providers.Stdio, o providers.Observer) (providers.Bound, error) {
	p.provider.observer.Store(&o)
	r := p.Planned.run(o)
	r.box, p.provider.box = p.provider.box, nil
	r.plan, r.stdio, r.io = p, p.provider.stdio, io
	p.provider.run = r
	if err := r.open(); err != nil {
		if failed := r.Close(); failed != nil {
			err = errors.Join(err, failed)
		}
		return nil, unfit(err)
	}
	return r, nil
}

func (r *Run) open() (err error) {
	r.stdio.Log = r.io.Log
	if slices.Contains(r.Policy.Without, profiles.LayerTTY) {
		r.stdio.HandIn()
	}
	if r.Plan.Nested || r.Limits.Born() { // which the sandbox that was begun is not
		r.giveUpBox()
	}
	upper := ""
	if len(r.Plan.Overlays()) > 0 {
		if upper, err = filepath.EvalSymlinks(filepath.Join(r.io.Changes.Name(), changes.UpperName)); err != nil {
			return err
		}
		r.overlaid = func() int64 { return changes.Usage(r.io.Changes) }
	}
	r.homed = r.io.Session.HomeSize
	if err := r.bind(r.plan.provider.whole, upper, r.plan.provider.stateDir); err != nil {
		return err
	}
	id := r.Plan.Identity
	switch {
	case id.Root:
		if err = r.donate(); err == nil && upper != "" {
			err = changes.HandUpper(r.io.Changes, id.HostUID, id.HostGID)
		}
	case slices.ContainsFunc(r.Plan.Mounts, r.onStub):
		r.giveUpBox() // what is mounted on is made when this has returned
	case r.box != nil:
		err = r.give()
	}
	return err
}

// giveUpBox ends the sandbox that was begun while the policy was read.
func (r *Run) giveUpBox() {
	if r.box != nil {
		r.box.Close()
		r.box = nil
	}
}

// give gives the sandbox its plan, by which it goes on.
func (r *Run) give() error {
	r.given = true
	return r.unkept(r.overlayMissing(r.box.Give(r.Plan, r.stdio)))
}

// Clone gives root up, if the run began as root, and clones pid 1, unless that was done while the policy was read.
func (r *Run) Clone() (providers.LocalRun, error) {
	s, err := r.clone()
	if err != nil {
		return nil, unfit(err)
	}
	return s, nil
}

func (r *Run) clone() (*Started, error) {
	if r.Plan.Identity.Root {
		r.named = r.hiddenNames()
		if err := r.shed(r.io.Session.Path); err != nil {
			return nil, err
		}
	}
	if r.box == nil {
		shell, err := r.shell()
		if err != nil {
			return nil, err
		}
		if r.box, err = namespaces.Begin(shell); err != nil {
			return nil, err
		}
	}
	if !r.given {
		if err := r.give(); err != nil {
			return nil, err
		}
	}
	return r.started(), nil
}

// Close gives up what a run has made that has not begun.
func (r *Run) Close() error {
	r.giveUpBox()
	if r.Plan.Staging != nil {
		_ = os.Remove(r.Plan.Staging.Kept)
	}
	r.Egress.Abandon()
	return r.release()
}

// Lower opens the directory under an overlay: as root, who is not root any
// more by now, through the mount that was lent.
func (r *Run) Lower(i int) (*os.Root, error) {
	m := r.Plan.Overlays()[i]
	if m.Donated < 0 {
		return os.OpenRoot(m.Source)
	}
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(m.Donated))
}

// Connect opens the egress and makes the way out, and returns the plan's answers as this start has them.
func (s *Started) Connect() (answers []profiles.Answer, err error) {
	if s.way, err = s.run.Egress.Open(s.run.report.decided); err != nil {
		return nil, unfit(err)
	}
	if err = s.box.Network(); err != nil {
		return nil, unfit(s.run.unkept(err))
	}
	answers, s.environ, err = s.run.connected(s.box)
	return answers, err
}

// Go moves the sandbox into its control groups, if it was not born there, and lets the command run as soon as the
// set-up is through.
func (s *Started) Go() (err error) {
	if s.run.moves() {
		if s.group == nil {
			s.group, err = s.run.Limits.Create()
		}
		if err == nil {
			err = s.group.Attach(s.box.Pid)
		}
		if err != nil {
			return err
		}
	}
	return unfit(s.run.unkept(s.run.overlayMissing(s.box.Go(s.environ))))
}

// sharedKeyring is said where the floor alone keeps keys from the command.
const sharedKeyring = "no session keyring could be made: your key quota is used up; system calls for keys are denied"

// Attend sets going what goes on beside the command, and makes the file in which the command reads of refusals. The
// warnings say what of it is not as it should be.
func (s *Started) Attend() (warnings []events.Warning, err error) {
	if err := s.attend(); err != nil {
		return nil, unfit(err)
	}
	if s.box.SharesKeyring && s.run.plan.provider.verbose {
		warnings = append(warnings, events.Warning{Text: sharedKeyring})
	}
	if s.Unreported {
		warnings = append(warnings, events.Warning{Text: "denied writes are not reported: another seccomp supervisor already runs around this pccrun"})
	}
	if s.run.ShowsDenials() {
		var failed error
		if s.denials, failed = s.box.Create(DenialsPath); failed != nil {
			warnings = append(warnings, events.Warning{Text: messages.InWords(failed), Hint: "the command finds its refusals there where the image has a directory /run"})
		}
	}
	s.drain = s.run.stdio.Run()
	if s.box.Master != nil {
		stdio := s.run.stdio
		s.relay, err = s.run.io.Terminal.Relay(terminal.Options{Terminal: stdio.Host, Master: s.box.Master, Lazy: stdio.Background, Log: stdio.Log})
	}
	s.run.plan.started.Store(s)
	return warnings, err
}

// Follow passes signals on, and returns when nothing of the command runs any more.
func (s *Started) Follow(ctx context.Context, signals <-chan int) (alone bool) {
	defer context.AfterFunc(ctx, s.box.Kill)()
	go s.forward(signals)
	end := s.untilGone()
	return ctx.Err() == nil && !end.TimedOut && !end.Status.Signaled()
}

// untilGone returns when nothing of the command runs any more.
func (s *Started) untilGone() *namespaces.Result {
	sig, end := s.box.Next()
	for ; end == nil; sig, end = s.box.Next() {
		s.stopped(sig)
	}
	return end
}

// Drain waits until all that was printed is where it belongs.
func (s *Started) Drain(patience time.Duration) error {
	if s.relay != nil {
		s.relay.Wait(patience)
		s.relay.Close(patience)
	}
	err := s.drain(patience)
	s.pinned = s.changedCopies()
	return err
}

// Result collects the sandbox, takes away what was made for it, and returns how the command ended, with what is only
// to be written down.
func (s *Started) Result() (providers.Result, []events.Event, error) {
	r := s.run
	end, err := s.collect()
	if err != nil {
		err = unfit(err)
		var exec *providers.ExecError
		if errors.As(err, &exec) && exec.Err == unix.ENOENT {
			exec.Advice = cmp.Or(r.unseen(), exec.Advice)
		}
		return providers.Result{}, nil, err
	}
	r.looked, r.made = end.Looked, end.Made
	end.Looked = slices.DeleteFunc(slices.Clone(end.Looked), func(path string) bool {
		return slices.ContainsFunc(r.outward, func(n survey.Named) bool { return n.Path == path })
	})
	r.report.end(end)
	for _, d := range r.soughtDenials() {
		r.report.o.Denial(d)
	}
	var notes []events.Event
	if r.unsought > 0 {
		notes = append(notes, events.Dropped{Count: r.unsought})
	}
	if s.box.SharesKeyring && !r.plan.provider.verbose {
		notes = append(notes, events.Warning{Text: sharedKeyring})
	}
	result := end.Told()
	result.Spent = end.Spent(r.Policy)
	return *result, notes, nil
}

// Close ends a run that is not followed to its end.
func (s *Started) Close() error {
	if s.drain == nil { // not attended
		s.run.box = nil
		s.box.Close()
		if s.cancel != nil {
			s.cancel()
		}
		return errors.Join(s.close(nil), s.run.Close())
	}
	s.box.Kill()
	s.untilGone()
	_ = s.Drain(time.Second)
	_, _ = s.collect() // why it is closed the caller knows
	return nil
}

// Denials is the file that tells the command of refusals; nil for none.
func (s *Started) Denials() *os.File { return s.denials }

// Process is pid 1, and the control groups of the run's own.
func (s *Started) Process() (pid int, groups []string) {
	if s.group != nil {
		groups = s.group.Paths()
	}
	return s.box.Pid, groups
}

// forward passes signals on. INT, QUIT and HUP go to the command's process group, as a terminal
// would send them, and so do STOP and CONT; TERM, USR1 and USR2 to the command alone, as kill(1)
// would.
func (s *Started) forward(signals <-chan int) {
	for n := range signals {
		switch sig := unix.Signal(n); sig {
		case unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGSTOP, unix.SIGCONT:
			s.box.Signal(sig, inside.ToGroup)
		default:
			s.box.Signal(sig, inside.ToCommand)
		}
	}
}

// stopped is called when the command was stopped, by Ctrl-Z or because it
// wants the keys. If the terminal is gone when we go on, nobody is left to continue
// the command: it gets what the kernel gives to a stopped group whose terminal goes,
// setpgid(2), HUP and CONT.
func (s *Started) stopped(sig unix.Signal) {
	if s.relay == nil {
		return
	}
	halt := s.relay.Suspend
	if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
		halt = s.relay.Foreground
	}
	if halt() != nil {
		s.box.Signal(unix.SIGHUP, inside.ToGroup)
	}
	if s.box.Net != nil {
		s.box.Net.Renew() // the kernel may have taken the launcher for stopped as well
	}
	s.box.Resume(s.relay.Active())
}
