package native

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// Guards reports whether the command could leave something on the host that is
// protected: whether it may write there at all, and the layer is on.
func (r *Run) Guards() bool {
	p := r.Policy
	if slices.Contains(p.Without, profiles.LayerProtect) || len(p.Protect)+len(p.Keyed) == 0 {
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
	n := &r.Policy.Network
	return r.Guards() || r.Policy.Attempts || len(n.Allow)+len(n.Local) > 0 || r.ask != nil || r.learn != nil
}

// Standing returns what stood in the workspace, for the look at the end.
func (r *Run) Standing(session string) *workspace.Standing {
	standing := r.found.Standing(session, r.query)
	// Where the command cannot write, nothing appears that is its own.
	standing.Vacant = slices.DeleteFunc(slices.Clone(standing.Vacant), func(path string) bool {
		return !r.Plan.Writes(path)
	})
	for _, path := range r.vacant {
		if p, ok := r.Policy.Protected(path); ok && p.Review && r.Plan.Writes(path) {
			standing.Passing = append(standing.Passing, path)
		}
	}
	standing.Review(r.reviewed(standing.Passing))
	return standing
}

// reviewed returns what is for review outside of the workspace, and may change:
// the paths of the rules, and where they lead. What passes is gone at the end.
func (r *Run) reviewed(passing []string) (paths []string) {
	for i := range r.Policy.Protect {
		p := &r.Policy.Protect[i]
		if !p.Review || !strings.HasPrefix(p.Pattern, "/") || slices.Contains(passing, p.Pattern) {
			continue
		}
		list := []string{p.Pattern}
		if to, err := filepath.EvalSymlinks(p.Pattern); err == nil && to != p.Pattern {
			list = append(list, to)
		}
		for _, path := range list {
			in := path == r.Policy.Workspace || strings.HasPrefix(path, r.Policy.Workspace+"/")
			if rule, ok := r.Policy.Protected(path); !in && r.Plan.Writes(path) && (!ok || rule.Review) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// Guard returns the guard over the workspace of a run that has started.
func (r *Run) Guard(standing *workspace.Standing, stash *workspace.Stash, told func(workspace.Finding)) (*workspace.Guard, error) {
	g, err := workspace.NewGuard(standing, r.found, r.Plan.Own, stash, told)
	if err == nil {
		g.Private = append(slices.Clip(g.Private), r.passing()...)
	}
	return g, err
}

// passing returns the paths below protected names that are private.
func (r *Run) passing() (paths []string) {
	for i := range r.Policy.Files {
		f := &r.Policy.Files[i]
		if f.Glob != "" || f.Access != profiles.Private {
			continue
		}
		if p, ok := r.Policy.Protected(f.Path); ok && !p.Review {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

// Made returns what the command has made at paths that it may write, that did
// not exist, and that lie in a private directory: it is for [Sandbox.Gone], and
// to be carried over. Copied are the files of which it had a copy, to be sorted by
// keys.
func (s *Started) Made() (list []workspace.Carried, copied []*workspace.Copied, err error) {
	made, err := s.Sandbox.Made()
	plan := s.run.Plan
	for _, m := range made {
		if i := slices.IndexFunc(plan.Copied, func(k workspace.Keyed) bool { return k.Real == m.Path }); i >= 0 {
			k := &workspace.Copied{Keyed: plan.Copied[i], Dir: m.Dir, Name: m.Name}
			if plan.Identity.Root {
				k.At = plan.OpenBeside
			}
			copied = append(copied, k)
			continue
		}
		c := workspace.Carried{Path: m.Path, Dir: m.Dir, Name: m.Name}
		for i := range s.run.Policy.Files {
			if f := &s.run.Policy.Files[i]; f.Glob == "" && strings.HasPrefix(f.Path, m.Path+"/") && s.run.Policy.Decide(f.Path).Access != profiles.Write {
				c.Without = append(c.Without, f.Path)
			}
		}
		list = append(list, c)
	}
	return list, copied, err
}

// protectMechanism says how fs.protect is kept.
const protectMechanism = "pinned read-only mounts, a watch that sets new names aside, a last look"

// strictMechanism says how it is kept where names are forbidden.
const strictMechanism = "pinned read-only mounts, names made by the launcher and withheld by Landlock, a last look"

// protectGap says what fs.protect leaves open on this run, "" for nothing.
func (r *Run) protectGap() string {
	switch {
	case r.Policy.Nested:
		return "what the host replaces stays open in a mount namespace that the command has made"
	case r.Plan.Watch != nil && r.Plan.Watch.Opens && r.Plan.Alone() == "":
	case slices.ContainsFunc(r.found.Pins, func(p workspace.Pin) bool { return p.Kind != workspace.Dir }):
		return "a protected file that the host replaces during the run can be changed by a command that waits for it; it is named at exit"
	}
	return ""
}
