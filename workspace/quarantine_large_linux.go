package workspace

import (
	"cmp"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A command can make more directories, or deeper ones, than a look gets through. What it made so is quarantined unseen:
// all new directories of one that stood go together. What stood before the run is no more than a launch takes, so that
// the rest is looked through.

// maxLightenings bounds how often, for another run may go on making more.
const maxLightenings = 64

// maxDirs bounds the directories of the post-run check, some 300 bytes each. Tests
// set it.
var maxDirs = 1 << 20

// weigh is how many a directory and all that is known below it are, and what they weigh.
func (d *dir) weigh() (dirs, weight int) {
	dirs, weight = 1, d.weight()
	for _, k := range d.Kids {
		n, w := k.weigh()
		dirs, weight = dirs+n, weight+w
	}
	return dirs, weight
}

// deeper reports whether something below lies too deep.
func (d *dir) deeper() bool {
	return d.deep() || slices.ContainsFunc(d.Kids, (*dir).deeper)
}

// lighten quarantines the new directories of those that stood, where they lie too deep or weigh most, until half of what a look gets
// through is left. It returns how many it has moved.
func (g *Guard) lighten() (moved int, err error) {
	type place struct {
		in           *dir
		fresh        map[*dir]bool
		dirs, weight int
		deep         bool
	}
	var places []place
	var visit func(d *dir)
	visit = func(d *dir) {
		p := place{in: d, fresh: map[*dir]bool{}}
		for _, k := range d.Kids {
			if !g.born(k.Rel) {
				visit(k)
				continue
			}
			n, w := k.weigh()
			p.fresh[k], p.dirs, p.weight = true, p.dirs+n, p.weight+w
			p.deep = p.deep || k.deeper()
		}
		if len(p.fresh) > 0 {
			places = append(places, p)
		}
	}
	visit(g.tree)
	slices.SortFunc(places, func(a, b place) int {
		if a.deep != b.deep {
			return map[bool]int{true: -1, false: 1}[a.deep]
		}
		return cmp.Compare(b.weight, a.weight)
	})
	dirs, weight := g.tree.weigh()
	for i, p := range places {
		if i > 0 && !p.deep && dirs <= maxDirs/2 && weight <= g.during.bound()/2 {
			break
		}
		n, err := g.moveFresh(p.in)
		if moved += n; err != nil {
			return moved, fmt.Errorf("quarantine directories of %s: %w", beneath.Shorten(p.in.Rel), err)
		}
		p.in.Kids = slices.DeleteFunc(p.in.Kids, func(k *dir) bool { return p.fresh[k] })
		p.in.Ctime = 0 // to be read again
		dirs, weight = dirs-p.dirs, weight-p.weight
	}
	return moved, nil
}

// moveFresh quarantines all new directories in one, together.
func (g *Guard) moveFresh(d *dir) (moved int, err error) {
	from, err := beneath.Open(g.fd, d.Rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(from)
	path := g.standing.Root + "/" + join(d.Rel, quarantine.Prefix+"directories")
	c, left, moved, err := g.stash.TakeUnseen(from, Finding{Kind: Stashed, Path: path, Why: TooMuch}, func(name string) bool { return g.bornAt(from, name) })
	if left != "" {
		g.shut[join(d.Rel, left)] = true // it is closed to everybody, and no look opens it
	}
	if moved > 0 || left != "" {
		g.report(c)
	}
	return moved, err
}

// born reports whether a directory came into being during the run. No program
// can set the time of birth; where a file system keeps none, nothing did.
func (g *Guard) born(rel string) bool {
	fd, err := beneath.Open(g.fd, rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return g.bornAt(fd, "")
}

func (g *Guard) bornAt(dir int, name string) bool { return bornSince(dir, name, g.standing.Start) }
