package native

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/egress"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
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
	observer atomic.Pointer[providers.Observer] // of the run that goes on

	stdio *namespaces.Stdio
	box   *namespaces.Sandbox // begun before the policy is read; nil for none
	run   *Run                // that has something to tidy
}

// New returns this machine for what a request asks for. It judges what the command will hold
// before anything is cloned, and begins the sandbox: the kernel makes the namespaces while the
// policy is read. Flags that change the namespaces wait for the policy.
func New(req *profiles.Request, host providers.Host) (*Provider, error) {
	p := &Provider{whole: host.Whole, without: req.Without, verbose: req.Verbose}
	passed, named := slices.Clone(req.PassFDs), namespaces.NamedPipes(req.Command)
	for _, fd := range named {
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
	if namespaces.WhoAmI().Root && !req.DryRun {
		if err := namespaces.OpenToOthers(named); err != nil {
			return nil, err
		}
	}
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
	p.stateDir, p.programs, p.budget = host.StateDir, host.Programs, host.Budget
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
	looked, err := survey.Look(policy, survey.Options{Getenv: host.Getenv, Environ: host.Environ, Command: paths})
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
	started  atomic.Pointer[Started] // for [plan.Exec]
}

// Answers says how far each guarantee is kept.
func (p *plan) Answers() []profiles.Answer { return p.Planned.Answers }

// Warnings are what the user should hear.
func (p *plan) Warnings() []string { return p.Planned.Warnings }

// JudgeDescriptors refuses descriptors that would lead out of the sandbox.
func (p *plan) JudgeDescriptors() error {
	if err := p.Plan.JudgeHanded(p.provider.stdio); err != nil {
		return err
	}
	return p.Plan.JudgePassing(p.Plan.PassFDs)
}

// HomeNeeds are the names that must stand in the persistent home.
func (p *plan) HomeNeeds() (needs []homes.Need) {
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
