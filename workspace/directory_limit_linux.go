package workspace

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// launchDirs bounds the directories of a launch. In memory one takes 3 to 6 µs on two processors, and from a disk a
// hundred times as long.
// The post-run check of a run takes four times as many: what it could not look
// through it would have to quarantine.
func launchDirs() int { return maxDirs / 4 }

// A crowdError is a tree that a launch does not look through.
type crowdError struct {
	root string
	part string // the flag that uses a part of it
	most string // the directory in which most of it lies; absolute
	dirs int    // that it has, as far as they were seen
}

func (e *crowdError) Error() string {
	where := "in all of it"
	if e.most != e.root {
		where = fmt.Sprintf("%d of them or more in %s", e.dirs, beneath.Shorten(e.most))
	}
	return fmt.Sprintf("scan %s: too many or too deep directories, %s: %s", e.root, where, ErrTooMuch)
}

// Unwrap returns the sentinel.
func (e *crowdError) Unwrap() error { return ErrTooMuch }

// Hint says what to do.
func (e *crowdError) Hint() string {
	if e.most == e.root {
		return e.part + " uses a part of it"
	}
	return "remove it or move it away; " + e.part + " uses a part"
}

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
	return &crowdError{root: w.root, part: w.part(), most: filepath.Join(w.root, most.rel), dirs: dirs}
}

// heaviest goes down from a directory as long as one of those in it weighs more
// than half, and returns where that ends and how many directories are there.
func (d *dir) heaviest() (most *dir, dirs int) {
	dirs, weight := d.weigh()
	for {
		next, nextDirs, nextWeight := (*dir)(nil), 0, 0
		for _, k := range d.kids {
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
