package namespaces

import (
	"slices"

	"github.com/pccrun/pccrun/internal/survey"
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
