package workspace

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// A name that another run makes in the same place stands until that run's guard
// has set it aside. A run that begins in this moment finds it, and it must not
// count as one that stood: it could be made again when the other is over.

// Young reports whether a protected name of the record may have come since a
// moment.
func (r *Standing) Young(since time.Time) bool {
	return slices.ContainsFunc(r.Names, func(name string) bool {
		var st unix.Stat_t
		err := statBeneath(unix.AT_FDCWD, filepath.Join(r.Root, name), &st)
		return err != nil || latest(st.Ctim.Nano()) >= since.Add(-racy).UnixNano()
	})
}

// Forget takes out of the record the links that may be another run's: all if one goes
// on, else those that are gone again, which the other has set aside at its end.
func (r *Standing) Forget(another bool) {
	maps.DeleteFunc(r.Recent, func(rel, text string) bool {
		if another {
			return true
		}
		now, err := os.Readlink(filepath.Join(r.Root, rel))
		return err != nil || now != text
	})
}

// Without takes out of the record the names that another run, which goes on,
// would set aside.
func (r *Standing) Without(other *Standing) error {
	c, err := compile(Query{Root: other.Root, Files: other.Files, Protect: other.Protect})
	if err != nil {
		return err
	}
	r.Names = slices.DeleteFunc(r.Names, func(name string) bool {
		path := filepath.Join(r.Root, name)
		rel, in := below(other.Root, path)
		return in && !slices.Contains(other.Names, rel) && c.denies(path)
	})
	return nil
}

// Overlaps reports whether what stands at a path concerns the run.
func (r *Standing) Overlaps(path string) bool {
	_, in := below(r.Root, path)
	return in || slices.Contains(r.Vacant, path)
}

// denies reports whether a path has a protected name.
func (c *rules) denies(path string) bool {
	for i := range c.protect {
		if p := &c.protect[i]; !p.Review && !c.overridden(i) && p.Matches(c.root, path) {
			return true
		}
	}
	return false
}
