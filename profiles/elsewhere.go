package profiles

import (
	"slices"
	"strings"
)

// Elsewhere is a machine that has a copy of the workspace, and nothing else of this one.
type Elsewhere struct {
	Home, Workspace string   // there; absolute
	WorkDir         string   // where the command starts
	Environ         []string // all that the command gets, NAME=VALUE
}

// For returns the policy as it is to be kept on another machine that has a copy: paths of
// the workspace and the home are those there. What is answered for by being a copy is left
// out: what is hidden did not go up, what may not change does not come back, protected names
// are held back there. A home that is persistent here is private there.
func (p *Policy) For(e *Elsewhere) *Policy {
	q := *p
	q.Home, q.Workspace, q.WorkDir = e.Home, e.Workspace, e.WorkDir
	q.Homes = slices.Clone(p.Homes)
	if dir := e.Home[:strings.LastIndexByte(e.Home, '/')]; dir != "" && !slices.Contains(q.Homes, dir) && e.Home != "/root" {
		q.Homes = append(q.Homes, dir)
	}
	q.Files, q.Tighten = p.filesFor(e, p.Files), p.filesFor(e, p.Tighten)
	q.Opened, q.Own, q.Protect, q.Seeds, q.Use = nil, nil, nil, nil, nil
	q.Network.Local, q.Network.Publish, q.Network.Sockets = nil, nil, nil
	for _, rule := range p.Network.Publish { // the place shows its own loopback's port
		if _, inside, err := PublishedPorts(rule.Text); err == nil {
			q.Network.Publish = append(q.Network.Publish, NetRule{Text: itoa(int(inside)), Origin: rule.Origin})
		}
	}
	q.Network.Inject = slices.Clone(p.Network.Inject)
	for i := range q.Network.Inject { // their values go along
		q.Network.Inject[i].File, q.Network.Inject[i].Command = "", nil
	}
	q.Environment = Environment{Set: map[string]EnvSet{}}
	for _, v := range e.Environ {
		name, value, _ := strings.Cut(v, "=")
		origin := Origin{Source: "environment", Key: name}
		if set, is := p.Environment.Set[name]; is {
			origin = set.Origin
		}
		q.Environment.Set[name] = EnvSet{Value: value, Origin: origin}
	}
	q.Place = Place{} // it is there
	q.NoLogin, q.FreshHome, q.ProtectStrict, q.Attempts, q.Warnings = false, false, false, false, nil
	q.Requirements = slices.DeleteFunc(slices.Clone(p.Requirements), func(r Requirement) bool {
		switch r.Guarantee {
		case FSHide, FSReadonly, FSProtect, FSOverlay, SyncUp, SyncDown:
			return true
		}
		return false
	})
	return &q
}

// filesFor moves rules to another machine.
func (p *Policy) filesFor(e *Elsewhere, rules []FileRule) []FileRule {
	var list []FileRule
	for _, r := range rules {
		inWorkspace := false
		for _, move := range [...]struct{ from, to string }{{p.Workspace, e.Workspace}, {p.Home, e.Home}} {
			if rest, below := strings.CutPrefix(r.Path, move.from); below && (rest == "" || rest[0] == '/') {
				r.Path, inWorkspace = move.to+rest, move.from == p.Workspace
				break
			}
		}
		switch {
		case inWorkspace && (r.Access < Read || r.Glob != "" && r.Access == Hide):
			continue
		case inWorkspace && r.Access == Overlay:
			r.Access = Write
		case r.Access == Persist:
			r.Access = Private
		}
		list = append(list, r)
	}
	return list
}
