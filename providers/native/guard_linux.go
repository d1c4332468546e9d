package native

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace"
)

// Guarded is what the look after a run goes by: the trees that the command may write.
type Guarded struct {
	Policy *profiles.Policy
	Trees  []survey.Tree // the workspace first
	Writes func(path string) bool
	Own    map[string]int // see Plan.Own of package namespaces
}

// Guarded returns it for this run.
func (r *Run) Guarded() *Guarded {
	return &Guarded{Policy: r.Policy, Trees: r.trees, Writes: r.Plan.Writes, Own: r.Plan.Own}
}

// Guards reports whether the command could leave something on the host that is
// protected: whether it may write there at all, and the layer is on.
func Guards(p *profiles.Policy) bool {
	if slices.Contains(p.Without, profiles.LayerProtect) || len(p.Protect) == 0 {
		return false
	}
	for _, table := range [...][]profiles.FileRule{p.Files, p.Tighten} {
		for i := range table {
			if table[i].Access == profiles.Write {
				return true
			}
		}
	}
	return false
}

// Tells reports whether the command has a file that tells it of refusals.
func (r *Run) Tells() bool {
	return Guards(r.Policy) || r.Policy.Attempts || r.Egress.Rules != nil
}

// Standing returns what stood in the workspace, and in each other tree that the
// command may write, for the look at the end.
func (g *Guarded) Standing(session string) []*workspace.Standing {
	list := make([]*workspace.Standing, len(g.Trees))
	for i, t := range g.Trees {
		list[i] = t.Found.Standing(session, t.Query)
		// Where the command cannot write, nothing appears that is its own.
		list[i].Vacant = slices.DeleteFunc(slices.Clone(list[i].Vacant), func(path string) bool {
			return !g.Writes(path)
		})
	}
	list[0].Review(g.reviewed())
	return list
}

// Held returns what is protected in an overlay: what the policy names, and what git would
// execute in the workspace by the configurations that stood.
func (g *Guarded) Held() []profiles.ProtectRule {
	return append(slices.Clip(g.Policy.Protect), g.Trees[0].Found.Named()...)
}

// reviewed returns what is for review outside of the workspace, and may change:
// the paths of the rules, and where they lead.
func (g *Guarded) reviewed() (paths []string) {
	for i := range g.Policy.Protect {
		p := &g.Policy.Protect[i]
		if !p.Review || !strings.HasPrefix(p.Pattern, "/") {
			continue
		}
		list := []string{p.Pattern}
		if to, err := filepath.EvalSymlinks(p.Pattern); err == nil && to != p.Pattern {
			list = append(list, to)
		}
		for _, path := range list {
			in := path == g.Policy.Workspace || strings.HasPrefix(path, g.Policy.Workspace+"/")
			if rule, ok := g.Policy.Protected(path); !in && g.Writes(path) && (!ok || rule.Review) {
				paths = append(paths, path)
			}
		}
	}
	for _, path := range g.Policy.Opened { // the scan stays out of what is protected as a whole
		if g.Writes(path) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// Guard returns the guards over the trees of a run that has started, given what
// [Guarded.Standing] returned.
func (g *Guarded) Guard(standing []*workspace.Standing, stash *workspace.Stash, told func(workspace.Finding)) (workspace.Guards, error) {
	list := make(workspace.Guards, 0, len(standing))
	for i, s := range standing {
		one, err := workspace.NewGuard(s, g.Trees[i].Found, g.Own, stash, told)
		if err != nil {
			list.Close()
			return nil, err
		}
		one.Last = g.Trees[i].State
		list = append(list, one)
	}
	return workspace.Together(list...), nil
}

// Configs returns the private copies of git's configurations that a run which has started has.
func (s *Started) Configs(session string) *workspace.Configs {
	c := workspace.NewConfigs(session, s.Sandbox.Configs(true))
	if c != nil {
		decider := s.run.Policy.Decider()
		c.At = s.run.Plan.OpenConfig
		c.Shown = func(path string) bool { return decider.Decide(path).Access >= profiles.Read }
	}
	return c
}

// protectMechanism says how fs.protect is kept.
const protectMechanism = "pinned read-only mounts, a watch that sets new names aside, a last look"

// strictMechanism says how it is kept where names are forbidden.
const strictMechanism = "pinned read-only mounts, names made by the launcher and withheld by Landlock, a last look"

// pins returns what is pinned in all trees that the command may write.
func (r *Run) pins() (pins []workspace.Pin) {
	for i := range r.trees {
		pins = append(pins, r.trees[i].Found.Pins...)
	}
	return pins
}

// protectGap says what fs.protect leaves open on this run, "" for nothing.
func (r *Run) protectGap() string {
	switch {
	case r.Policy.Nested:
		return "what the host replaces stays open in a mount namespace that the command has made"
	case r.Plan.Watch != nil && r.Plan.Watch.Opens && r.Plan.Alone() == "":
	case slices.ContainsFunc(r.pins(), func(p workspace.Pin) bool { return p.Kind != workspace.Dir }):
		return "a protected file that the host replaces during the run can be changed by a command that waits for it; it is named at exit"
	}
	return ""
}
