package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

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
	host    providers.Host
	patient patience
	others  atomic.Pointer[inside.Executions] // of the run that goes on
}

// New returns the provider of a service.
func New(service Service, host providers.Host) *Provider {
	return &Provider{service: service, host: host, patient: usual}
}

// Name is the service's.
func (p *Provider) Name() string { return p.service.Name() }

// Facts are what Examine learns: that the key is right.
type Facts struct{ Provider string }

// Examine asks the service whether the key is right.
func (p *Provider) Examine(ctx context.Context) (providers.Facts, error) {
	if _, err := p.Find(ctx, ""); err != nil {
		return nil, err
	}
	return &Facts{p.Name()}, nil
}

// Find lists this machine's sandboxes that bear a label, or any of pccrun's.
func (p *Provider) Find(ctx context.Context, label string) ([]providers.Resource, error) {
	if err := p.service.Ready(); err != nil {
		return nil, err
	}
	labels := map[string]string{machineKey: machine(p.host.StateDir)}
	if label != "" {
		labels[providers.LabelKey] = label
	}
	found, err := p.service.Find(ctx, labels)
	if err != nil {
		return nil, err
	}
	var list []providers.Resource
	for i := range found {
		s := &found[i]
		if s.Labels[machineKey] != labels[machineKey] || s.Labels[providers.LabelKey] == "" || label != "" && s.Labels[providers.LabelKey] != label {
			continue // whatever the service took the question for
		}
		list = append(list, p.resource(s))
	}
	return list, nil
}

func (p *Provider) resource(s *Sandbox) providers.Resource {
	return providers.Resource{Provider: p.Name(), ID: s.ID, Region: s.Region, Labels: s.Labels}
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
	found, err := p.Find(ctx, label)
	for _, one := range found {
		if err == nil {
			err = p.destroy(ctx, one.ID)
		}
	}
	return err
}

// destroy ends a sandbox. One that is gone already is no error.
func (p *Provider) destroy(ctx context.Context, id string) error {
	if err := p.service.Destroy(ctx, id); !errors.Is(err, ErrGone) {
		return err
	}
	return nil
}

// park stops a sandbox. One that is stopped already is no error.
func (p *Provider) park(ctx context.Context, box *Sandbox) error {
	err := p.service.Park(ctx, box)
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
	sum := sha256.Sum256(fmt.Appendf(nil, "pccrun %s %s %d %s", strings.TrimSpace(string(id)), host, os.Getuid(), stateDir))
	return hex.EncodeToString(sum[:8])
}

// Plan decides a run.
func (p *Provider) Plan(policy *profiles.Policy, survey *providers.Survey, facts providers.Facts, command providers.Command) (providers.Plan, error) {
	if _, ok := facts.(*Facts); !ok {
		return nil, fmt.Errorf("BUG: %s: facts of another provider: %T", p.Name(), facts)
	}
	r := &plan{provider: p, policy: policy, command: command}
	r.request = Request{Labels: map[string]string{providers.LabelKey: command.Label, machineKey: machine(p.host.StateDir)}, Lifetime: p.patient.lifetime, Policy: policy, Ask: command.Ask}
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
