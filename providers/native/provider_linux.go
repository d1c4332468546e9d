package native

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/workspace/changes"
)

// Provider is this machine.
type Provider struct {
	options
	whole    func() (*os.File, error)
	without  []string
	verbose  bool
	observer atomic.Pointer[providers.LocalObserver] // of the run that goes on

	stdio *namespaces.Stdio
	box   *namespaces.Sandbox // begun before the policy is read; nil for none
	run   *Run                // that has something to tidy
}

// New returns this machine for what a request asks for. It judges what the command will hold
// before anything is cloned, and begins the sandbox: the kernel makes the namespaces while the
// policy is read. Flags that change the namespaces wait for the policy.
func New(req *profiles.Request, host providers.Host) (*Provider, error) {
	p := &Provider{whole: host.Whole, without: req.Without, verbose: req.Verbose}
	passed := slices.Clone(req.PassFDs)
	for _, fd := range namespaces.NamedPipes(req.Command) {
		if !slices.Contains(passed, fd) {
			passed = append(passed, fd)
		}
	}
	p.options = options{learn: req.Learn, passFDs: passed, environ: host.Environ}
	if !req.DryRun {
		p.secrets = new(egress.Secrets)
	}
	if err := namespaces.JudgePassed(passed); err != nil {
		return nil, &providers.CallerError{Err: err}
	}
	var err error
	if p.stdio, err = namespaces.JudgeStdio(req.Log); err != nil {
		return nil, err // another provider passes streams on, and no descriptors
	}
	if p.ask = host.Ask; req.Ask {
		if err := p.canAsk(); err != nil {
			return nil, &providers.CallerError{Err: err}
		}
		p.ask = func(ctx context.Context, host string, port uint16) netproxy.Permission {
			return (*p.observer.Load()).Ask(ctx, host, port)
		}
	}
	if !req.DryRun && !req.Nested && len(req.Without) == 0 && os.Getuid() != 0 {
		p.box, err = namespaces.Begin(namespaces.Shell{Identity: namespaces.WhoAmI()})
	}
	return p, err
}

// canAsk says why --ask cannot be kept, nil if it can.
func (p *Provider) canAsk() error {
	cause := ""
	switch {
	case p.stdio.Host < 0, slices.Contains(p.without, string(profiles.LayerTTY)):
		cause = "flag --ask: there is no terminal to ask at"
	case p.stdio.Background:
		cause = "flag --ask: the command does not have the terminal to itself"
	default:
		return nil
	}
	return &profiles.Error{Cause: cause, Hint: "--allow RULE allows a host"}
}

// Name returns "native".
func (p *Provider) Name() string { return providers.Native }

// Examine has nothing to ask but for a policy.
func (p *Provider) Examine(context.Context) (providers.Facts, error) { return nil, nil }

// ExamineFor asks this machine what the plan of a policy has to know.
func (p *Provider) ExamineFor(policy *profiles.Policy, s *providers.Survey, c providers.Command, host providers.Host) (providers.Facts, error) {
	p.stateDir, p.programs = host.StateDir, host.Programs
	f, err := examine(policy, s, &p.options, c)
	return f, unfit(err)
}

// Plan plans a run.
func (p *Provider) Plan(policy *profiles.Policy, s *providers.Survey, f providers.Facts, c providers.Command) (providers.Plan, error) {
	planned, err := decide(policy, s, f.(*facts), &p.options, c)
	if err != nil {
		return nil, err
	}
	return &plan{Planned: planned, provider: p}, nil
}

// Find finds nothing: what a run left on this machine its session's record says.
func (p *Provider) Find(context.Context, string) ([]providers.Resource, error) { return nil, nil }

// Destroy is not for processes of this machine, which their session's record names.
func (p *Provider) Destroy(context.Context, providers.Resource) error { return errors.ErrUnsupported }

// Close gives up what was begun and not used, and takes away what only root may.
func (p *Provider) Close() {
	if p.box != nil {
		p.box.Close()
		p.box = nil
	}
	if p.run != nil {
		p.run.tidy()
	}
}

// Alone plans a run that another program is to start, and that nobody looks after when it is
// over.
func Alone(policy *profiles.Policy, host *profiles.Host, argv []string) (*Planned, error) {
	paths, err := survey.Programs(policy, argv[0], host.Environ)
	if err != nil {
		return nil, err
	}
	looked, err := survey.Look(policy, survey.Options{Getenv: host.Getenv, Environ: host.Environ, Command: paths, Alone: true})
	if err != nil {
		return nil, err
	}
	s := &providers.Survey{Command: paths, Machine: looked}
	c := providers.Command{Argv: argv, Env: policy.Environ(host.Environ), Dir: providers.StartDir(policy)}
	o := &options{environ: host.Environ}
	f, err := examine(policy, s, o, c)
	if err != nil {
		return nil, unfit(err)
	}
	planned, err := decide(policy, s, f, o, c)
	if err == nil {
		_, err = providers.Check(policy, planned.Answers)
	}
	return planned, err
}

// unfit adds to an error that says no more why no launch succeeds on this kernel, if that is
// known, and says in every provider's words that the command cannot be executed.
func unfit(err error) error {
	var exec *namespaces.ExecError
	var hint interface{ Hint() string }
	switch {
	case errors.As(err, &exec):
		return &providers.ExecError{Name: exec.Name, Err: exec.Errno, Advice: exec.Hint()}
	case err == nil, errors.As(err, &hint), errors.Is(err, state.ErrUnsafe), errors.Is(err, unix.EMFILE):
		return err
	}
	return namespaces.Unfit(err)
}

// plan is a run of this machine, with the descriptors that its command gets.
type plan struct {
	*Planned
	provider *Provider
	run      *Run            // the last that was begun
	named    []events.Hidden // as root, who gives up what it may see: see [plan.hiddenNames]
	started  atomic.Pointer[Started]
}

// Answers says how far each guarantee is kept.
func (p *plan) Answers() []profiles.Answer { return p.Planned.Answers }

// Warnings are what the user should hear.
func (p *plan) Warnings() []string { return p.Planned.Warnings }

// Bare reports whether nothing is made that would be left before a copy has its plan.
func (p *plan) Bare() bool {
	return !p.Plan.Identity.Root && !p.Egress.Inspects() && len(p.Plan.Overlays()) == 0
}

// Judge refuses descriptors that would lead out of the sandbox.
func (p *plan) Judge() error {
	if err := p.Plan.JudgeHanded(p.provider.stdio); err != nil {
		return err
	}
	return p.Plan.JudgePassing(p.Plan.PassFDs)
}

// Needs are the names that must stand in the persistent home.
func (p *plan) Needs() (needs []homes.Need) {
	for _, s := range p.Plan.HomeStubs() {
		needs = append(needs, homes.Need{Name: s.Name, Dir: s.Node == namespaces.Directory, Link: s.Link})
	}
	return needs
}

// Layers are what the overlays lie on.
func (p *plan) Layers() (list []changes.Layer) {
	for _, m := range p.Plan.Overlays() {
		list = append(list, changes.Layer{Path: m.Source, Dev: m.Device(), Ino: m.Ino})
	}
	return list
}

// Lower opens the directory under an overlay: as root, who is not root any
// more by now, through the mount that was lent.
func (p *plan) Lower(i int) (*os.Root, error) {
	m := p.run.Plan.Overlays()[i]
	if m.Donated < 0 {
		return os.OpenRoot(m.Source)
	}
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(m.Donated))
}

// Run carries the plan out.
func (p *plan) Run(ctx context.Context, io providers.Stdio, observer providers.Observer) (result providers.Result, err error) {
	o := observer.(providers.LocalObserver)
	p.provider.observer.Store(&o)
	t := &teller{o: o, policy: p.Policy, signs: p.signs}
	r := p.Planned.run(t)
	p.run, p.provider.run = r, r
	s, stdio, err := p.start(ctx, io, o, r)
	if err != nil {
		return result, unfit(err)
	}
	p.beside(s, o)
	drain := stdio.Run()
	var relay *terminal.Relay
	if s.Master != nil {
		relay, err = io.Terminal.Relay(terminal.Options{Terminal: stdio.Host, Master: s.Master, Lazy: stdio.Background, Log: stdio.Log})
	}
	p.started.Store(s)
	if err == nil {
		err = o.Running(s)
	}
	if err != nil {
		s.Kill()
		_, _ = s.Wait(func(unix.Signal) {})
		return result, err
	}
	defer context.AfterFunc(ctx, s.Kill)()
	go s.forward(io.Signals)
	r.sweep()
	s.Gone = func(end *namespaces.Result) {
		patience := o.Ended(ctx.Err() == nil && !end.TimedOut && !end.Status.Signaled())
		if relay != nil {
			relay.Wait(patience)
			relay.Close(patience)
		}
		if err := drain(patience); err != nil {
			o.Warning(events.Warning{Text: messages.InWords(err)})
		}
		s.pinned = s.changedCopies()
		o.Gone()
	}
	end, err := s.Wait(func(sig unix.Signal) { s.stopped(relay, sig) })
	if err != nil {
		err = unfit(err)
		var exec *providers.ExecError
		if errors.As(err, &exec) && exec.Err == unix.ENOENT {
			exec.Advice = cmp.Or(r.unseen(), exec.Advice)
		}
		return result, err
	}
	r.looked, r.made = end.Looked, end.Made
	end.Looked = slices.DeleteFunc(slices.Clone(end.Looked), func(path string) bool {
		return slices.ContainsFunc(r.outward, func(n survey.Named) bool { return n.Path == path })
	})
	t.end(end)
	for _, d := range p.soughtDenials() {
		o.Denial(d)
	}
	if r.unsought > 0 {
		o.Note(events.Dropped{Count: r.unsought})
	}
	told := end.Told()
	told.Spent = end.Spent(r.Policy)
	return *told, nil
}

// start opens what the command will work on, and lets it run. What fails takes away what was
// made.
func (p *plan) start(ctx context.Context, io providers.Stdio, o providers.LocalObserver, r *Run) (s *Started, stdio *namespaces.Stdio, err error) {
	box := p.provider.box
	p.provider.box = nil
	defer func() {
		if err != nil {
			if box != nil {
				box.Close()
			}
			if r.Plan.Staging != nil {
				_ = os.Remove(r.Plan.Staging.Kept)
			}
			r.Egress.Abandon()
			err = errors.Join(err, r.release())
		}
	}()
	stdio = p.provider.stdio
	stdio.Log = io.Log
	if slices.Contains(p.Policy.Without, profiles.LayerTTY) {
		stdio.HandIn()
	}
	if box != nil && (r.Plan.Nested || r.Limits.Born()) {
		box.Close()
		box = nil
	}
	upper := ""
	if len(r.Plan.Overlays()) > 0 {
		if upper, err = filepath.EvalSymlinks(filepath.Join(io.Changes.Name(), changes.UpperName)); err != nil {
			return nil, nil, err
		}
		r.overlaid = func() int64 { return changes.Usage(io.Changes) }
	}
	r.homed = io.Session.HomeSize
	if err := r.bind(p.provider.whole, upper); err != nil {
		return nil, nil, err
	}
	r.Plan.Staging = r.stage(p.provider.stateDir)
	id := r.Plan.Identity
	switch {
	case id.Root:
		if err = r.donate(); err == nil && upper != "" {
			err = changes.HandUpper(io.Changes, id.HostUID, id.HostGID)
		}
		if err != nil {
			return nil, nil, err
		}
	case box != nil && slices.ContainsFunc(r.Plan.Mounts, r.onStub):
		box.Close() // what is mounted on is made when this is opened
		box = nil
	case box != nil:
		box.Feed(r.Plan, stdio)
	}
	if err := o.Opened(r.Guarded()); err != nil {
		return nil, nil, err
	}
	if id.Root {
		p.named = p.hiddenNames()
		if err := r.shed(io.Session.Path); err != nil {
			return nil, nil, err
		}
	}
	if box == nil {
		shell, err := r.shell()
		if err != nil {
			return nil, nil, err
		}
		if box, err = namespaces.Begin(shell); err != nil {
			return nil, nil, err
		}
	}
	box.Cloned = func(pid int) error {
		o.Created(providers.Resource{Provider: providers.Native, ID: strconv.Itoa(pid)})
		return ctx.Err()
	}
	begun := box
	box = nil // whatever becomes of it, it is closed by then
	s, err = r.Start(begun, stdio)
	return s, stdio, err
}

// sharedKeyring is said where the floor alone keeps keys from the command.
const sharedKeyring = "no session keyring could be made: your key quota is used up; system calls for keys are denied"

// beside tells what became of a start beside the answers, and makes the file in which the
// command reads of refusals: before it can look.
func (p *plan) beside(s *Started, o providers.LocalObserver) {
	if s.SharesKeyring {
		if w := (events.Warning{Text: sharedKeyring}); p.provider.verbose {
			o.Warning(w)
		} else {
			o.Note(w)
		}
	}
	if s.Unreported {
		o.Warning(events.Warning{Text: "denied writes are not reported: another seccomp supervisor already runs around this pccrun"})
	}
	if p.Tells() {
		var err error
		if s.denials, err = s.Create(DenialsPath); err != nil {
			o.Warning(events.Warning{Text: messages.InWords(err), Hint: "the command finds its refusals there where the image has a directory /run"})
		}
	}
}

// Denials is the file that tells the command of refusals.
func (s *Started) Denials() *os.File { return s.denials }

// Process is pid 1, and the control groups of the run's own.
func (s *Started) Process() (pid int, groups []string) {
	if s.group != nil {
		groups = s.group.Paths()
	}
	return s.Pid, groups
}

// forward passes signals on. INT, QUIT and HUP go to the command's process group, as a terminal
// would send them, and so do STOP and CONT; TERM, USR1 and USR2 to the command alone, as kill(1)
// would.
func (s *Started) forward(signals <-chan int) {
	for n := range signals {
		switch sig := unix.Signal(n); sig {
		case unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGSTOP, unix.SIGCONT:
			s.Signal(sig, inside.ToGroup)
		default:
			s.Signal(sig, inside.ToCommand)
		}
	}
}

// stopped is called when the command was stopped, by Ctrl-Z or because it
// wants the keys. If the terminal is gone when we go on, nobody is left to continue
// the command: it gets what the kernel gives to a stopped group whose terminal goes,
// setpgid(2), HUP and CONT.
func (s *Started) stopped(relay *terminal.Relay, sig unix.Signal) {
	if relay == nil {
		return
	}
	halt := relay.Suspend
	if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
		halt = relay.Foreground
	}
	if halt() != nil {
		s.Signal(unix.SIGHUP, inside.ToGroup)
	}
	s.Resume(relay.Active())
}
