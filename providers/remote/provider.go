package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/inside"
)

// machineKey is the label that says which machine a sandbox was made from: nobody else's
// is found, or destroyed.
const machineKey = "pccrun.machine"

// A Provider runs commands at a service.
type Provider struct {
	service Service
	facts   Facts
	host    providers.Host
	patient patience
	goesOn  atomic.Pointer[running]
}

// running is the run that goes on.
type running struct {
	others *inside.Executions
	place  *place
}

// New returns the provider of a service.
func New(service Service, facts Facts, host providers.Host) *Provider {
	if facts.Now == nil {
		facts.Now = time.Now
	}
	return &Provider{service: service, facts: facts, host: host, patient: usual}
}

// Name is the service's.
func (p *Provider) Name() string { return p.service.Name() }

// Examined is what Examine learns: that the key is right, and that there is a program for the place's processor.
type Examined struct{ Provider string }

// CannotKeep says why no sandbox stands for a later run.
func (p *Provider) CannotKeep() error {
	if _, can := p.service.(Extender); !can {
		return &providers.UnusableError{Provider: p.Name(), Cause: "--keep: the end of its sandboxes cannot be moved"}
	}
	if p.facts.Elsewhere {
		return &providers.UnusableError{Provider: p.Name(), Cause: "--keep: " + unknownDaemon + ", and so change what the next run trusts"}
	}
	return nil
}

// Examine asks the service whether the key is right. It looks for the program that would be uploaded first.
func (p *Provider) Examine(ctx context.Context) (providers.Facts, error) {
	if err := p.service.Ready(); err != nil {
		return nil, err
	}
	f, err := p.openProgram()
	if err != nil {
		return nil, err
	}
	f.Close()
	if _, err := p.Find(ctx, ""); err != nil {
		return nil, err
	}
	return &Examined{p.Name()}, nil
}

// arch is the processor of the place.
func (p *Provider) arch() string { return cmp.Or(p.facts.Arch, runtime.GOARCH) }

// openProgram opens pccrun's program for the place.
func (p *Provider) openProgram() (io.ReadCloser, error) {
	if p.host.LinuxProgram == nil {
		return nil, fmt.Errorf("BUG: %s: no program for Linux", p.Name())
	}
	f, err := p.host.LinuxProgram(p.arch())
	if err != nil {
		return nil, &providers.UnusableError{Provider: p.Name(), Cause: err.Error(), Advice: profiles.Hint(err)}
	}
	return f, nil
}

// ready makes a sandbox ready for Exec, one that is stopped too where the provider can do that.
func ready(ctx context.Context, s Service, id string) (*Sandbox, error) {
	if s, can := s.(Sleeper); can {
		return s.Resume(ctx, id)
	}
	return s.Status(ctx, id)
}

// Make has a sandbox made that is ready for Exec. Where that fails none is left.
func Make(ctx context.Context, s Service, r *Request) (*Sandbox, error) {
	box, err := s.Create(ctx, r)
	if box == nil || err == nil && box.Running {
		return box, err
	}
	return readied(ctx, s, box.ID, err)
}

// readied makes a sandbox ready that came without an error. Of another one nobody would know: it is destroyed.
func readied(ctx context.Context, s Service, id string, err error) (*Sandbox, error) {
	var box *Sandbox
	if err == nil {
		box, err = ready(ctx, s, id)
	}
	if err == nil {
		return box, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), usual.script)
	defer cancel()
	if e := s.Destroy(ctx, id); !errors.Is(e, ErrGone) {
		err = errors.Join(err, e)
	}
	return nil, err
}

// extend has a sandbox end after a time.
func (p *Provider) extend(ctx context.Context, box *Sandbox, lifetime time.Duration, remove bool) error {
	s, can := p.service.(Extender)
	if !can {
		return fmt.Errorf("%s cannot move the end of a sandbox", p.Name())
	}
	return s.Extend(ctx, box, lifetime, remove)
}

// lifetime is how long a sandbox may live that nobody extends.
func (p *Provider) lifetime(policy *profiles.Policy) time.Duration {
	if _, can := p.service.(Extender); can {
		return p.patient.lifetime
	}
	if p.facts.Idle > 0 {
		return p.facts.Idle
	}
	life := cmp.Or(p.facts.MaxLife, 24*time.Hour)
	if wall := policy.Resources.Deadline(); wall > 0 {
		life = min(life, wall+p.patient.after)
	}
	return life
}

// bearing lists the sandboxes that bear all of some labels, whatever the service took the question for.
func (p *Provider) bearing(ctx context.Context, labels map[string]string) ([]Sandbox, error) {
	found, err := p.service.Find(ctx, labels)
	return slices.DeleteFunc(found, func(s Sandbox) bool {
		for key, value := range labels {
			if s.Labels[key] != value {
				return true
			}
		}
		return s.Labels[providers.LabelKey] == ""
	}), err
}

// here lists this machine's sandboxes that bear a label, or any of pccrun's.
func (p *Provider) here(ctx context.Context, label string) ([]Sandbox, error) {
	if err := p.service.Ready(); err != nil {
		return nil, err
	}
	labels := map[string]string{machineKey: machine(p.host.StateDir)}
	if label != "" {
		labels[providers.LabelKey] = label
	}
	return p.bearing(ctx, labels)
}

// Find is [Provider.here].
func (p *Provider) Find(ctx context.Context, label string) (list []providers.Resource, err error) {
	found, err := p.here(ctx, label)
	for i := range found {
		list = append(list, p.resource(&found[i]))
	}
	return list, err
}

func (p *Provider) resource(s *Sandbox) providers.Resource {
	return providers.Resource{Provider: p.Name(), ID: s.ID, Region: s.Region, Labels: s.Labels, Account: p.Account()}
}

// Destroy removes a sandbox; where its name was not known yet when the record was
// written, all that bear its label.
func (p *Provider) Destroy(ctx context.Context, r providers.Resource) error {
	if err := p.service.Ready(); err != nil {
		return err
	}
	if r.ID != "" {
		return p.destroy(ctx, r.ID)
	}
	label := r.Labels[providers.LabelKey]
	if label == "" {
		return fmt.Errorf("%s: destroy: the record names no sandbox", p.Name())
	}
	found, err := p.here(ctx, label)
	if err != nil {
		return err
	}
	return p.destroyAll(ctx, found)
}

// destroy ends a sandbox. One that is gone already is no error.
func (p *Provider) destroy(ctx context.Context, id string) error {
	if err := p.service.Destroy(ctx, id); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// destroyAll ends sandboxes, but for those of some names.
func (p *Provider) destroyAll(ctx context.Context, list []Sandbox, but ...string) (err error) {
	for _, s := range list {
		if !slices.Contains(but, s.ID) {
			err = errors.Join(err, p.destroy(ctx, s.ID))
		}
	}
	return err
}

// park stops a sandbox, where the provider keeps its files then. One that is stopped already is no error.
func (p *Provider) park(ctx context.Context, box *Sandbox) error {
	sleeper, can := p.service.(Sleeper)
	if !can {
		return nil
	}
	err := sleeper.Park(ctx, box)
	if err != nil && !errors.Is(err, ErrGone) {
		if now, e := p.service.Status(ctx, box.ID); e == nil && !now.Running {
			return nil
		}
	}
	return err
}

// machine is a name for this machine, user and directory of sessions that tells nobody who
// they are: whose sessions are not here, his sandboxes are not either.
func machine(stateDir string) string {
	id, err := os.ReadFile("/etc/machine-id")
	host, _ := os.Hostname()
	if err != nil {
		id = nil
	}
	return sumOf(fmt.Appendf(nil, "pccrun %s %s %d %s", strings.TrimSpace(string(id)), host, os.Getuid(), stateDir))[:16]
}

// Plan decides a run.
func (p *Provider) Plan(policy *profiles.Policy, survey *providers.Survey, facts providers.Facts, command providers.Command) (providers.Plan, error) {
	if _, ok := facts.(*Examined); !ok {
		return nil, fmt.Errorf("BUG: %s: facts of another provider: %T", p.Name(), facts)
	}
	r := &plan{provider: p, policy: policy, command: command}
	r.request = Request{Labels: map[string]string{providers.LabelKey: command.Label, machineKey: machine(p.host.StateDir)}, Lifetime: p.lifetime(policy), Policy: installing(policy, command.Install), Ask: command.Ask}
	if survey != nil {
		r.warnings, r.seeds = append(r.warnings, survey.Notes...), survey.Seeds
	}
	if err := r.refuse(); err != nil {
		return nil, err
	}
	if open := FilterOf(&r.request).Open; open != "" {
		r.warnings = append(r.warnings, p.Name()+"'s own filter of hosts is not set: it cannot say "+open+"; pccrun in the sandbox keeps the rules")
	}
	r.place()
	r.answers = r.answer()
	return r, nil
}

// namePrefix begins the name of a sandbox whose provider has no labels.
const namePrefix = "pccrun-"

// NameOf is a name that says what labels say, for a provider that has none.
func NameOf(labels map[string]string) string {
	return namePrefix + labels[machineKey] + "-" + labels[providers.LabelKey]
}

// LabelsOf is what such a name says; nil for a sandbox that is not pccrun's.
func LabelsOf(name string) map[string]string {
	rest, is := strings.CutPrefix(name, namePrefix)
	machine, label, whole := strings.Cut(rest, "-")
	if !is || !whole {
		return nil
	}
	return map[string]string{machineKey: machine, providers.LabelKey: label}
}
