package workspace

import (
	"maps"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// Outside of the workspace no scan goes: what is for review there is looked
// through by itself, at the start and at the end.
const (
	maxReviewed = 1024  // files that are known as they stood: they are written down with the record
	maxLooked   = 65536 // names that one look goes through
	maxLevels   = 64    // directories, one in the other
)

// Review notes what is for review outside of the workspace, before the command
// starts: the end tells of each file that changed, is new, or is gone. The paths
// are absolute; a directory stands for what is in it. Of more than 1,024 files
// the others are reported if they changed, and not if they are gone.
func (r *Standing) Review(paths []string) {
	r.Reviewed = append(r.Reviewed, paths...)
	for _, path := range paths {
		r.know(path, path)
	}
}

// know notes the files that stand at a path.
func (r *Standing) know(path, why string) {
	dir, name, err := beneath.ParentOf(path)
	if err != nil {
		return // what is not known is reported if it changed
	}
	defer unix.Close(dir)
	known := 0
	look(dir, name, path, func(at string, st *unix.Stat_t) {
		if known++; known <= maxReviewed {
			r.Known = append(r.Known, Known{Node: Node{at, KindOf(st.Mode), st.Dev, st.Ino}, Ctime: st.Ctim.Nano(), Why: why})
		}
	})
}

// reviewed tells of what is new, or was too much to be known, where something is
// for review outside of the workspace, or is that no pattern finds.
func (g *Guard) reviewed() {
	known, reported := map[string]bool{}, map[string]bool{}
	for i := range g.standing.Known {
		known[g.standing.Known[i].Path] = true
	}
	awaited := g.standing.Awaited
	for _, path := range append(slices.Sorted(maps.Keys(awaited)), g.standing.Reviewed...) {
		why, in := awaited[path]
		stood := 0
		if !in {
			why = path
		} else {
			for at := range known {
				if inside(path, at) {
					stood++
				}
			}
		}
		tell := func(at, what string) {
			if !reported[at] {
				reported[at] = true
				g.report(g.stash.Note(Finding{Kind: Review, Path: at, Why: why, What: what}, nil, false))
			}
		}
		dir, name, err := g.parent(path)
		if beneath.Gone(err) {
			continue
		}
		if err != nil {
			tell(path, "not read")
			continue
		}
		unseen := look(dir, name, path, func(at string, st *unix.Stat_t) {
			// Of what stood in the workspace all names are known, so that one which was
			// moved there with its directory, as old as it is, is new.
			if !known[at] && (g.touched(st) || in && stood < maxReviewed) {
				tell(at, "new")
			}
		})
		unix.Close(dir)
		if unseen != "" {
			tell(unseen, "not read")
		}
	}
}

// look calls yield with what stands at a name in a directory, or, but for directories,
// with all that lies below it. It follows no link. It returns a directory that
// could not be looked through, for what it holds or for its mode; "" for none.
func look(dir int, name, path string, yield func(path string, st *unix.Stat_t)) (unseen string) {
	var st unix.Stat_t
	switch err := beneath.Stat(dir, name, &st); {
	case beneath.Gone(err):
		return ""
	case err != nil:
		return path
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		yield(path, &st)
		return ""
	}
	fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return path
	}
	defer unix.Close(fd)
	l := beneath.Limits{Entries: maxLooked, Depth: maxLevels, Time: math.MaxInt64, Shut: func(rel string, _ error) error {
		unseen = path + "/" + rel
		return nil
	}}
	err = beneath.Walk(fd, l, func(_ int, _ string, st *unix.Stat_t, rel func() string) error {
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			yield(path+"/"+rel(), st)
		}
		return nil
	})
	if err != nil {
		unseen = path
	}
	return unseen
}
