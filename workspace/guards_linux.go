package workspace

import (
	"errors"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// Guards look after all trees of the host's that a run may change, each after one:
// the first after the workspace. A place in two of them is that one's whose root
// is nearer: the other does not look there.
type Guards []*Guard

// Together makes guards those of one run.
func Together(list ...*Guard) Guards {
	for _, g := range list {
		g.peers = list
	}
	return list
}

// Finish ends the watch and looks a last time, at everything. Call it when no
// process of the run lives. When it returns without an error, nothing that is
// new and protected stands in the trees, and no repository that came into
// being runs anything. It returns all that the user should hear of.
func (gs Guards) Finish() ([]Finding, error) {
	first := gs[0]
	var errs []error
	for _, g := range gs {
		g.halt()
	}
	for _, g := range gs {
		errs = append(errs, g.search())
	}
	first.stubs.close()
	for _, g := range gs {
		errs = append(errs, g.removed()...)
	}
	for _, g := range gs {
		g.replaced()
	}
	for _, g := range gs { // which may quarantine in each other's
		errs = append(errs, g.inerter().all())
	}
	for _, g := range gs {
		errs = append(errs, g.review())
	}
	first.Configs.merge(first) // last: else a review would report what is merged as the host's change
	return first.stash.Settle(), errors.Join(errs...)
}

// Watch begins to look, in the trees whose guards are to.
func (gs Guards) Watch() {
	for _, g := range gs {
		if !g.Last {
			g.Watch()
		}
	}
}

// watching returns how many there are whose trees are watched.
func (gs Guards) watching() (n int) {
	for _, g := range gs {
		if !g.Last {
			n++
		}
	}
	return n
}

// Close gives back what the guards have opened.
func (gs Guards) Close() {
	for _, g := range gs {
		g.Close()
	}
}

// near returns the guard that looks after a path, nil if none does.
func (gs Guards) near(path string) (near *Guard) {
	for _, g := range gs {
		if _, in := beneath.Path(g.standing.Root, path); in && (near == nil || len(g.standing.Root) > len(near.standing.Root)) {
			near = g
		}
	}
	return near
}

// at returns the one that makes inert what lies at a path, nil if nobody looks
// after it.
func (i *inerter) at(path string) *inerter {
	g := i.guard.peers.near(path)
	if g == nil {
		return nil
	}
	k := i.others[g]
	if k == nil {
		k = g.inerter()
		k.others = i.others
		i.others[g] = k
	}
	return k
}

// follow follows a path, and says whose tree it ends in; nil for nobody's. As root
// that has been given up, what lies above another tree may be closed: in it the
// path goes on by that tree's own descriptor.
func (i *inerter) follow(base, path string) (t trail, whose *inerter, err error) {
	t, err = i.view.follow(base, path)
	proc := t.proc
	from := i
	for range i.guard.peers {
		if whose = i.at(t.end.Path); err != nil || t.found || whose == nil || whose == from {
			break
		}
		rel, _ := beneath.Path(whose.view.root, t.end.Path)
		hops := t.hops
		for _, n := range t.links {
			hops = append(hops, n.Path)
		}
		t, err = whose.view.follow(whose.view.root, rel)
		t.hops = append(hops, t.hops...)
		from, proc = whose, proc || t.proc
	}
	if proc { // what begins in /proc leads elsewhere for each process that follows it
		whose = nil
	}
	t.proc = proc
	return t, whose, err
}
