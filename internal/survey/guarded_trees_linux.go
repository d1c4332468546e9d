package survey

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// Guarded is what the look after a run goes by: the trees that the command may write.
type Guarded struct {
	Policy *profiles.Policy
	Trees  []Tree // the workspace first
	Writes func(path string) bool
	Own    map[string]int // as root: descriptors of directories that the command may write
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
		if i > 0 && !t.State {
			list[i].AddCommands(list[0])
		}
	}
	list[0].Review(g.reviewed())
	return list
}

// OverlayProtect returns what is protected in an overlay: what the policy names, and what git would
// execute in the workspace by the configurations that stood.
func (g *Guarded) OverlayProtect() []profiles.ProtectRule {
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
		if to, err := state.Real(p.Pattern); err == nil && to != p.Pattern {
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
