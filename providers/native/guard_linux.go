package native

import (
	"slices"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace"
)

// Guarded returns what the look after this run goes by.
func (r *Planned) Guarded() *survey.Guarded {
	return &survey.Guarded{Policy: r.Policy, Trees: r.trees, Writes: r.Plan.Writes, Own: r.Plan.Own}
}

// Tells reports whether the command has a file that tells it of refusals.
func (r *Planned) Tells() bool {
	return survey.Guards(r.Policy) || r.Policy.Attempts || r.Egress.Rules != nil
}

// Configs returns the private copies of git's configurations that a run which has started has.
func (s *Started) Configs(session string) *workspace.Configs {
	c := workspace.NewConfigs(session, s.Sandbox.Configs(true))
	if c != nil {
		c.At = s.run.Plan.OpenConfig
		c.Shown = func(path string) bool { return s.run.Policy.Decide(path).Access >= profiles.Read }
	}
	return c
}

// protectMechanism says how fs.protect is kept.
const protectMechanism = "read-only mounts, quarantine of new names, post-run check"

// strictMechanism says how it is kept where names are forbidden.
const strictMechanism = "read-only mounts, names created by the launcher under Landlock, post-run check"

// pins returns what is pinned in all trees that the command may write.
func (r *Planned) pins() (pins []workspace.Pin) {
	for i := range r.trees {
		pins = append(pins, r.trees[i].Found.Pins...)
	}
	return pins
}

// protectGap says what fs.protect leaves open on this run, "" for nothing.
func (r *Planned) protectGap() string {
	switch {
	case r.Policy.Nested:
		return "a file that the host replaces can be changed in a mount namespace that the command made"
	case r.Plan.Watch != nil && r.Plan.Watch.Opens && r.Plan.Alone() == "":
	case slices.ContainsFunc(r.pins(), func(p workspace.Pin) bool { return p.Kind != workspace.Dir }):
		return "a command that waits can change a protected file when the host replaces it during the run; it is reported at exit"
	}
	return ""
}
