package namespaces

import (
	"slices"

	"github.com/pccrun/pccrun/survey"
)

// Home is [survey.Home].
type Home = survey.Home

// HomeStubs returns what must stand in the persistent home for the mounts in it, parents
// first; nil where there is none.
func (p *Plan) HomeStubs() []Stub {
	if i := slices.IndexFunc(p.Mounts, func(m Mount) bool { return m.Kind == Persist }); i >= 0 {
		return p.Mounts[i].Stubs
	}
	return nil
}

// SeedHome puts a file into the private home, for the command to change, unless the plan has
// something else at the path. The path is absolute.
func (p *Plan) SeedHome(home, path, text string) {
	in := -1
	for i := range p.Mounts {
		if m := &p.Mounts[i]; below(home, m.Target) && (in < 0 || len(m.Target) >= len(p.Mounts[in].Target)) {
			in = i
		}
		if p.Mounts[i].Target == path {
			return
		}
	}
	if in < 0 || p.Mounts[in].Kind != Fresh || p.Mounts[in].ReadOnly {
		return
	}
	p.Mounts[in].addStub(Place{Path: path, Node: File, Text: text}, p.Mounts[in].Target)
}
