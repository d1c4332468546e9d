package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// What an agent keeps, its own program outside goes on writing: it appends to logs and
// histories under names that the command has seen, and much of what it appends the
// command has chosen. A link in place of such a file has it written into a start-up
// file. So a new link in there stays only if it leads to what the command could write
// itself, and nobody executes: no other way does it come that a later run could turn.
// Hard links need no look: what is kept is a mount of its own, and link(2) makes none
// from one mount to another.

// outOfState says why a link is set aside.
const outOfState = "what is written to it goes where it leads, out of what the agent keeps"

// stays reports whether a link in what an agent keeps, which leads where the trail
// ends, is one that nothing is written through but what is kept so.
func (i *inerter) stays(t *trail, whose *inerter) bool {
	switch {
	case t.proc: // it leads elsewhere for each process
		return false
	case t.end.Path == "/dev/null" && t.found:
		return true
	case whose == nil:
		return i.closed(t)
	}
	return whose.guard.standing.Inward && !i.strays(t) && !i.protects(t.end.Path)
}

// strays reports whether a trail comes through directories that neither hold what is
// kept nor lie in it, or a link in such a one that the run may write: who does can make
// it lead elsewhere.
func (i *inerter) strays(t *trail) bool {
	for _, n := range t.links {
		if g := i.guard.peers.near(n.Path); g == nil || !g.standing.Inward {
			return true
		}
	}
	for _, path := range t.hops {
		if g := i.guard.peers.near(path); g != nil && !g.standing.Inward {
			return true // of a workspace that holds what is kept, as one of dotfiles does
		}
	}
	for _, dir := range t.dirs {
		known := false
		for _, g := range i.guard.peers {
			_, above := beneath.Path(dir, g.standing.Root)
			known = known || above && g.standing.Inward
		}
		if g := i.guard.peers.near(dir); !known && (g == nil || !g.standing.Inward) {
			return true
		}
	}
	return false
}

// protects reports whether what is protected lies at a path, above it, or below.
func (i *inerter) protects(path string) bool {
	if i.sealed == nil {
		i.sealed = []string{}
		for _, g := range i.guard.peers {
			for k := range g.rules.protect {
				p := g.rules.protect[k].Pattern
				if !strings.HasPrefix(p, "/") {
					continue
				}
				i.sealed = append(i.sealed, p)
				// The home may be named by a link to it.
				t, _, err := i.follow("/", p)
				if err != nil {
					t.end.Path = "/"
				}
				i.sealed = append(i.sealed, t.end.Path)
			}
		}
	}
	return slices.ContainsFunc(i.sealed, func(p string) bool { return inside(p, path) || inside(path, p) })
}

// closed reports whether a trail ends at a file that its user can neither write nor
// replace, by no other way than there is now: the interpreter of a virtual environment.
func (i *inerter) closed(t *trail) bool {
	if !t.found || t.end.Kind != File || !i.guard.ours() || !beyond(t.end.Path) {
		return false
	}
	for _, dir := range t.dirs {
		if !inside(dir, i.guard.standing.Root) && !beyond(dir) {
			return false
		}
	}
	return !inside(filepath.Dir(t.end.Path), i.guard.standing.Root)
}

// beyond reports whether this user cannot change a file, or what a directory holds.
func beyond(path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil || int(st.Uid) == os.Geteuid() {
		return false
	}
	err := unix.Access(path, unix.W_OK)
	return err == unix.EACCES || err == unix.EROFS
}

// ours reports whether this process is what the agent outside is: as root, pccrun has
// given itself up, and what it may write says nothing of what root may.
func (g *Guard) ours() bool {
	for path := g.standing.Root; ; path = filepath.Dir(path) {
		var st unix.Stat_t
		switch err := unix.Lstat(path, &st); {
		case err == nil:
			return int(st.Uid) == os.Geteuid()
		case err != unix.ENOENT || path == "/":
			return false
		}
	}
}
