package workspace

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A command can make more directories, or deeper ones, than a look gets through.
// What it made so is quarantined whole, unseen: by one rename each, or, where
// there are thousands side by side, into one directory of the stash. What stood
// before the run is no more than a launch takes, so that the rest is looked
// through.

const (
	// maxUnit bounds what one new directory may weigh, once all of them weigh
	// too much together. [maxWeight] says what a weight is.
	maxUnit = 1 << 20
	// maxUnits is how many new directories of one directory are looked at one by
	// one, then.
	maxUnits = 4096
	// maxWork bounds what is read so in all, as weights: what is left then is set
	// aside unseen. It is no time, which a busy machine would have less of.
	maxWork = 64 << 20
	// maxLightenings bounds how often, for another run may go on making more.
	maxLightenings = 64
)

// maxDirs bounds the directories of the post-run check, some 300 bytes each. Tests
// set it.
var maxDirs = 1 << 20

// weigh is how many a directory and all that is known below it are, what they
// weigh, and whether some of it was not read yet.
func (d *dir) weigh() (dirs, weight int, unread bool) {
	dirs, weight, unread = 1, d.weight(), !d.fresh && d.ctime == 0
	for _, k := range d.kids {
		n, w, u := k.weigh()
		dirs, weight, unread = dirs+n, weight+w, unread || u
	}
	return dirs, weight, unread
}

// lighten quarantines what is too much of the directories that came into being
// since the run began, and returns how many that were.
func (g *Guard) lighten(work *int) (moved int, err error) {
	l := lightener{guard: g, work: work, room: g.during.bound() / 2, dirs: maxDirs * 3 / 4}
	err = l.dir(g.tree)
	return l.moved, err
}

type lightener struct {
	guard *Guard
	work  *int // what may still be read
	room  int  // for the weight of what stays
	dirs  int  // and for how many that are
	moved int
}

// dir goes through a directory that stood.
func (l *lightener) dir(d *dir) error {
	var fresh []*dir
	for _, k := range d.kids {
		if l.guard.born(k.rel) {
			fresh = append(fresh, k)
			continue
		}
		l.room -= k.weight()
		l.dirs--
		if err := l.dir(k); err != nil {
			return err
		}
	}
	if len(fresh) > maxUnits {
		return l.crate(d)
	}
	// The light ones first, so that no heavy one takes the work from them.
	for _, most := range [...]int{maxUnit / 64, maxUnit} {
		fresh = slices.DeleteFunc(fresh, func(k *dir) bool { return l.fits(k, most) })
	}
	for _, k := range fresh {
		if err := l.guard.box(k.rel); err != nil {
			return err
		}
		l.moved++
		d.kids = slices.DeleteFunc(d.kids, func(o *dir) bool { return o == k })
	}
	return nil
}

// fits reports whether a new directory weighs no more than most, which it reads
// for that, and has room beside the others.
func (l *lightener) fits(d *dir, most int) bool {
	dirs, weight, unread := d.weigh()
	if weight <= most && unread {
		if *l.work <= 0 {
			return false
		}
		g := l.guard
		w := &walker{rules: g.rules, fd: g.fd, dev: g.dev, during: &g.during, most: most}
		w.keep(d)
		err := w.run()
		*l.work -= w.weight
		if err != nil {
			return false
		}
		dirs, weight = w.dirs, w.weight
	}
	if weight > min(most, l.room) || dirs > l.dirs {
		return false
	}
	l.room -= weight
	l.dirs -= dirs
	return true
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

// box sets a directory aside as it is.
func (g *Guard) box(rel string) error {
	path := g.abs(rel)
	dir, name, err := g.parent(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	c, left, err := g.stash.Box(dir, name, Finding{Kind: Stashed, Path: path, Why: TooMuch, What: Dir.String()})
	if err != nil {
		return fmt.Errorf("quarantine %s: %w", beneath.Shorten(path), err)
	}
	g.closed(rel[:len(rel)-len(name)], left)
	g.told(c)
	return nil
}

// closed notes the name of what could not be moved out of the workspace, and was
// closed to everybody: no look opens it.
func (g *Guard) closed(prefix, left string) {
	if left != "" {
		g.shut[prefix+left] = true
	}
}

// crate sets all new directories in one aside, together.
func (l *lightener) crate(d *dir) error {
	g := l.guard
	from, err := beneath.Open(g.fd, d.rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open %s: %w", beneath.Shorten(d.rel), err)
	}
	defer unix.Close(from)
	path := g.standing.Root + "/" + join(d.rel, quarantine.Prefix+"directories")
	crate, err := g.stash.NewCrate(from, Finding{Kind: Stashed, Path: path, Why: TooMuch})
	if err != nil {
		return fmt.Errorf("quarantine directories of %s: %w", beneath.Shorten(d.rel), err)
	}
	var failed error
	err = beneath.Each(from, make([]byte, 64<<10), func(raw []byte) {
		if name := string(raw); failed == nil && name != crate.Left && g.bornAt(from, name) {
			if e := quarantine.Move(from, name, crate.FD, name); e == nil {
				crate.Count++
			} else if !beneath.Gone(e) {
				failed = fmt.Errorf("move %s: %w", name, e)
			}
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return errors.Join(fmt.Errorf("quarantine directories of %s: %w", beneath.Shorten(d.rel), err), crate.Close())
	}
	l.moved += crate.Count
	d.kids, d.ctime = nil, 0 // to be read again
	g.closed(join(d.rel, "")[:len(d.rel)+min(len(d.rel), 1)], crate.Left)
	err = crate.Close()
	g.told(crate.Finding)
	return err
}
