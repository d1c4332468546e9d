package workspace

import (
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A name that another run makes in the same place stands until that run's guard
// has set it aside. A run that begins in this moment finds it, and it must not
// count as one that stood: it could be made again when the other is over.

// Doubtful reports whether something of the record may be another run's.
func (r *Standing) Doubtful() bool {
	return len(r.Names)+len(r.unfinished())+len(r.waiting()) > 0
}

// Young reports whether a protected name of the record may have come since a
// moment, or a repository or a working tree is just being made.
func (r *Standing) Young(since time.Time) bool {
	for tree := range r.waiting() {
		if pathBornSince(filepath.Join(r.Root, tree), since) {
			return true
		}
	}
	return len(r.unfinished()) > 0 || slices.ContainsFunc(r.Names, func(name string) bool {
		var st unix.Stat_t
		err := beneath.Stat(unix.AT_FDCWD, filepath.Join(r.Root, name), &st)
		return err != nil || changedSince(st.Ctim.Nano(), since)
	})
}

// unfinished returns the repositories without a configuration, which is among the first
// that git writes. One of another name than .git is none before it has one.
func (r *Standing) unfinished() (list []string) {
	for _, path := range r.Vacant {
		dir, name := filepath.Split(path)
		rel, in := beneath.Path(r.Root, filepath.Clean(dir))
		if in && name == "config" && vcs.InsideGit(rel) && slices.Contains(r.Repos, rel) {
			list = append(list, rel)
		}
	}
	return list
}

// waiting returns the working trees in which something that a configuration names does not
// exist, with these names: a worktree that is checked out at this moment is one.
func (r *Standing) waiting() map[string][]string {
	var list map[string][]string
	for _, path := range r.Vacant {
		rel, in := beneath.Path(r.Root, path)
		for tree := filepath.Dir(rel); in && tree != "." && !vcs.InsideGit(rel); tree = filepath.Dir(tree) {
			if !slices.Contains(r.Repos, tree+"/.git") {
				continue
			}
			if list == nil {
				list = map[string][]string{}
			}
			list[tree] = append(list[tree], path)
			break
		}
	}
	return list
}

// Without takes out of the record the names that another run, which goes on,
// would quarantine, and the repositories and working trees that it is making at this moment:
// as names that did not stand, their configuration, hooks and programs would be quarantined
// as git writes them.
// Both runs make such a one inert at their ends. One that stood when the other began
// stays in the record, by its path and by its birth.
func (r *Standing) Without(other *Standing) error {
	c, err := compile(Query{Root: other.Root, Files: other.Files, Protect: other.Protect})
	if err != nil {
		return err
	}
	r.Names = slices.DeleteFunc(r.Names, func(name string) bool {
		path := filepath.Join(r.Root, name)
		rel, in := beneath.Path(other.Root, path)
		return in && !slices.Contains(other.Names, rel) && c.denies(path)
	})
	for tree, names := range r.waiting() {
		path := filepath.Join(r.Root, tree)
		rel, in := beneath.Path(other.Root, path)
		if !in || slices.Contains(other.Repos, rel+"/.git") || !pathBornSince(path, other.Start) {
			continue
		}
		r.Repos = slices.DeleteFunc(slices.Clone(r.Repos), func(s string) bool { return s == tree+"/.git" })
		r.Vacant = slices.DeleteFunc(slices.Clone(r.Vacant), func(s string) bool {
			return slices.Contains(names, s) && !slices.Contains(other.Vacant, s)
		})
	}
	for _, repo := range r.unfinished() {
		path := filepath.Join(r.Root, repo)
		rel, in := beneath.Path(other.Root, path)
		if !in || slices.Contains(other.Repos, rel) || !pathBornSince(path, other.Start) {
			continue
		}
		r.Repos = slices.DeleteFunc(slices.Clone(r.Repos), func(s string) bool { return s == repo })
		r.Vacant = slices.DeleteFunc(slices.Clone(r.Vacant), func(s string) bool {
			// What the other run knows as well is where a link leads that stood.
			name, in := beneath.Path(path, s)
			return in && slices.Contains(gitNames[:], name) && !slices.Contains(other.Vacant, s)
		})
	}
	return nil
}

// pathBornSince reports whether what stands at a path came into being after a run's start,
// which no program can pretend. Where a file system keeps no such times, nothing did.
func pathBornSince(path string, start time.Time) bool {
	at, name, err := beneath.ParentOf(path)
	if err != nil {
		return false
	}
	defer unix.Close(at)
	return bornSince(at, name, start)
}

// Overlaps reports whether what stands at a path concerns the run.
func (r *Standing) Overlaps(path string) bool {
	_, in := beneath.Path(r.Root, path)
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
