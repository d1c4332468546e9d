package workspace

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A Stash is [quarantine.Stash].
type Stash = quarantine.Stash

// stands reports whether something has come to be at a path where nothing was:
// the path itself, or the link that took the place of a directory on the way.
func (g *Guard) stands(path string) (at string, yes bool) {
	var st unix.Stat_t
	err := g.stat(path, &st)
	for (err == unix.ELOOP || err == unix.ENOTDIR) && path != g.standing.Root && len(path) > 1 {
		path = filepath.Dir(path)
		if err = g.stat(path, &st); err == nil {
			return path, st.Mode&unix.S_IFMT == unix.S_IFLNK && g.touched(&st)
		}
	}
	return path, err == nil
}

// stat returns the status of an absolute path in the workspace or outside.
func (g *Guard) stat(path string, st *unix.Stat_t) error {
	dir, name, err := g.parent(path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return beneath.Stat(dir, name, st)
}

// abs returns the path of what was found; the root itself can be a repository.
func (g *Guard) abs(rel string) string {
	if rel == "" {
		return g.standing.Root
	}
	return g.standing.Root + "/" + rel
}

// parent opens the directory that holds a path, without following any link.
func (g *Guard) parent(path string) (fd int, name string, err error) {
	rel, in := beneath.Path(g.standing.Root, path)
	at, near := g.fd, ""
	for top, fd := range g.lent {
		rest, ok := beneath.Path(top, path)
		if g.parted && rest == "" {
			continue // what lies in it can be changed, its name not
		}
		if ok && (!in || (near != "" || g.parted) && len(top) > len(near)) {
			at, near, rel, in = fd, top, rest, true
		}
	}
	if !in {
		return beneath.ParentOf(path)
	}
	dir, name := "", rel
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		dir, name = rel[:i], rel[i+1:]
	}
	fd, err = beneath.Open(at, dir, unix.O_PATH|unix.O_DIRECTORY)
	return fd, name, err
}

// take moves what stands at a path into the stash.
func (g *Guard) take(c Finding) (Finding, error) {
	dir, name, err := g.parent(c.Path)
	if err != nil {
		return c, err
	}
	defer unix.Close(dir)
	return g.stash.Take(dir, name, c)
}

// quarantine quarantines a protected name, and tells of it. That nothing stands there any more is no error.
func (g *Guard) quarantine(path, why string) (done bool, err error) {
	c, err := g.take(Finding{Kind: Stashed, Path: path, Why: why})
	if beneath.Gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("quarantine %s: %w", beneath.Shorten(path), err)
	}
	g.report(c)
	return true, nil
}
