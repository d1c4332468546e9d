package workspace

import (
	"errors"

	"golang.org/x/sys/unix"

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
	var notes []Finding
	for _, g := range gs {
		g.halt()
	}
	for _, g := range gs {
		errs = append(errs, g.search())
	}
	first.stubs.close()
	for _, g := range gs {
		errs = append(errs, g.finishRemoval()...)
	}
	for _, g := range gs {
		g.replaced()
	}
	for _, g := range gs { // which may quarantine in each other's
		list, err := g.gitCheck().all()
		notes, errs = append(notes, list...), append(errs, err)
	}
	for _, g := range gs {
		errs = append(errs, g.review())
	}
	first.Configs.merge(first) // last: else a review would report what is merged as the host's change
	for _, f := range notes {
		var st unix.Stat_t
		if gs[0].near(f.Path).stat(f.Path, &st) == nil { // a lock of the host's git is soon gone
			first.report(first.stash.Note(f, nil, false))
		}
	}
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
