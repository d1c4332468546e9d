package workspace

import (
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A name that another run makes in the same place stands until that run's guard
// has set it aside. A run that begins in this moment finds it, and it must not
// count as one that stood: it could be made again when the other is over.

// Young reports whether a protected name of the record, or a repository, may have come since a moment.
func (r *Standing) Young(since time.Time) bool {
	return slices.ContainsFunc(r.Repos, func(repo string) bool { return r.madeSince(repo, since) }) || slices.ContainsFunc(r.Names, func(name string) bool {
		var st unix.Stat_t
		err := beneath.Stat(unix.AT_FDCWD, filepath.Join(r.Root, name), &st)
		return err != nil || changedSince(st.Ctim.Nano(), since)
	})
}

// madeSince reports whether a repository, or the working tree of a .git file, came into being since a moment.
func (r *Standing) madeSince(repo string, start time.Time) bool {
	path := filepath.Join(r.Root, repo)
	return pathBornSince(path, start) || filepath.Base(repo) == ".git" && pathBornSince(filepath.Dir(path), start)
}

// Without takes out of the record the names that another run, which goes on, would quarantine, and the repositories and
// working trees that it has made: while git writes them, their configuration, hooks and programs would be quarantined as
// names that did not stand. Both runs make such a one inert at their ends. One that stood when the other began stays in
// the record, by its path and by its birth.
func (r *Standing) Without(other *Standing) error {
	c, err := compile(Query{Root: other.Root, Files: other.Files, Protect: other.Protect})
	if err != nil {
		return err
	}
	r.Names = slices.DeleteFunc(r.Names, func(name string) bool {
		path := filepath.Join(r.Root, name)
		rel, in := beneath.Path(other.Root, path)
		return in && !slices.Contains(other.Names, rel) && c.protects(other.Root, rel, unix.S_IFREG) != ""
	})
	var made []string
	r.Repos = slices.DeleteFunc(slices.Clone(r.Repos), func(repo string) bool {
		path := filepath.Join(r.Root, repo)
		rel, in := beneath.Path(other.Root, path)
		if !in || slices.Contains(other.Repos, rel) || !r.madeSince(repo, other.Start) {
			return false
		}
		made = append(made, workTreeOf(path), path)
		return true
	})
	r.Vacant = slices.DeleteFunc(slices.Clone(r.Vacant), func(path string) bool {
		// What the other run knows as well is where a link leads that stood.
		return !slices.Contains(other.Vacant, path) && slices.ContainsFunc(made, func(dir string) bool { return inside(dir, path) })
	})
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

// workTreeOf returns the working tree of what is named .git, and of a bare repository itself: hooks are run there.
func workTreeOf(path string) string {
	if filepath.Base(path) == ".git" {
		return filepath.Dir(path)
	}
	return path
}
