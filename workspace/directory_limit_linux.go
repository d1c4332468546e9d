package workspace

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// launchDirs bounds the directories of a launch. In memory one takes 3 to 6 µs on two processors, and from a disk a
// hundred times as long.
// The post-run check of a run takes four times as many: what it could not look
// through it would have to quarantine.
func launchDirs() int { return maxDirs / 4 }

// part returns the flag that names less than the tree.
func (c *rules) part() string {
	if c.aside {
		return "--write DIR"
	}
	return "--workspace DIR"
}

// crowd says of a walk that was too much where most of it lies.
func (w *walker) crowd(err error, tree *dir) error {
	if !w.full || !errors.Is(err, ErrTooMuch) {
		return err
	}
	most, dirs := tree.heaviest()
	where, fix := "in all of it", w.part()+" uses a part of it"
	if path := filepath.Join(w.root, most.Rel); path != w.root {
		where = fmt.Sprintf("%d of them or more in %s", dirs, beneath.Shorten(path))
		fix = "remove it or move it away; " + w.part() + " uses a part"
	}
	return hint.Errorf(fix, "scan %s: too many or too deep directories, %s: %w", w.root, where, ErrTooMuch)
}

// heaviest goes down from a directory as long as one of those in it weighs more
// than half, and returns where that ends and how many directories are there.
func (d *dir) heaviest() (most *dir, dirs int) {
	dirs, weight := d.weigh()
	for {
		next, nextDirs, nextWeight := (*dir)(nil), 0, 0
		for _, k := range d.Kids {
			if n, w := k.weigh(); w > weight/2 {
				next, nextDirs, nextWeight = k, n, w
				break
			}
		}
		if next == nil {
			return d, dirs
		}
		d, dirs, weight = next, nextDirs, nextWeight
	}
}
