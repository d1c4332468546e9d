package workspace

import (
	"bytes"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// What git checks out into a new linked worktree has protected names where the repository has
// some. If they were quarantined at once, `git worktree add` would fail half way. So such a name stands
// where it holds what stands by the same path in the workspace, which the command cannot have
// changed: what a tool of the host executes there, it executes here already. While git writes a
// file it may hold the beginning of it. When the run has ended a file that does not hold all of it is
// quarantined.

// Bounds of what is compared for one name.
const (
	maxCompared      = 256 // files
	maxComparedSize  = 1 << 20
	maxComparedDepth = 16
)

// mayStand reports whether a protected name may stand, since it is a part of a linked worktree and
// holds what the workspace has.
func (g *Guard) mayStand(s suspect) bool {
	at := g.worktree(s.rel)
	if at == "" || s.hit.Kind == Link || strings.HasPrefix(s.why, ".git/") || !g.sameAsWorkspace(s.rel, s.rel[len(at)+1:]) {
		return false
	}
	g.during.writes(path.Dir(s.rel))
	return true
}

// sameAsWorkspace reports whether a path holds what the workspace has by another, which the command could not change.
func (g *Guard) sameAsWorkspace(rel, stood string) bool {
	main := g.peers[0]
	c := comparison{now: g.fd, was: main.fd, root: main.standing.Root, shown: main.standing.policy(), during: &g.during, changed: main.touched, room: maxCompared}
	return main.isPinned(main.abs(stood)) && c.same(rel, stood, 0)
}

// worktree returns the nearest directory around a name that has a .git file, "" for none: the root of the tree is none
// that the run has made.
func (g *Guard) worktree(rel string) string {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		var st unix.Stat_t
		if beneath.Stat(g.fd, dir+"/.git", &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return dir
		}
	}
	return ""
}

// A comparison is of what is new in one tree with what stood in another.
type comparison struct {
	now, was int // the roots of both
	root     string
	shown    *profiles.Policy // what of the workspace the command may read: what it may not, it must not be able to guess
	during   *during
	changed  func(*unix.Stat_t) bool // whether what stood may have been changed since
	room     int
}

// same reports whether a path holds what stood at another, or less of it.
func (c *comparison) same(rel, stood string, depth int) bool {
	if c.room--; c.room < 0 || depth > maxComparedDepth {
		return false
	}
	if c.shown.Decide(c.root+"/"+stood).Access < profiles.Read {
		return false
	}
	now, err := beneath.Open(c.now, rel, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err == unix.ELOOP {
		return c.sameLink(rel, stood, depth)
	}
	if err != nil {
		return beneath.Gone(err)
	}
	kept := false
	defer func() {
		if !kept {
			unix.Close(now)
		}
	}()
	was, err := beneath.Open(c.was, stood, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer unix.Close(was)
	var a, b unix.Stat_t
	if unix.Fstat(now, &a) != nil || unix.Fstat(was, &b) != nil || a.Mode&unix.S_IFMT != b.Mode&unix.S_IFMT || a.Uid != b.Uid || a.Mode&^b.Mode&0o7111 != 0 {
		return false
	}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		kept = c.during.watchCompared(rel, now) // armed first, and then compared
		names, err := beneath.Entries(now)
		for _, name := range names {
			if err != nil || !c.same(rel+"/"+name, stood+"/"+name, depth+1) {
				return false
			}
		}
		return err == nil
	case unix.S_IFREG:
		if a.Nlink != 1 || a.Size > b.Size || b.Size > maxComparedSize || c.changed(&b) {
			return false
		}
		text, err := beneath.ReadOpen(now, b.Size) // nothing longer begins with that
		if err != nil {
			return false
		}
		whole, err := beneath.ReadOpen(was, b.Size)
		return err == nil && bytes.HasPrefix(whole, text) && (!c.during.last || len(text) == len(whole))
	}
	return false
}

// sameLink reports whether a link says what one says that stood, and leads to the same: to one place, or in each tree to
// what holds the same. It is no link where something on its way is one.
func (c *comparison) sameLink(rel, stood string, depth int) bool {
	now, err := beneath.ReadLinkBelow(c.now, rel)
	was, e := beneath.ReadLinkBelow(c.was, stood)
	if err != nil || e != nil || now != was {
		return false
	}
	if path.IsAbs(now) {
		return true
	}
	end := path.Join(path.Dir(stood), now)
	return end != "." && end != ".." && !strings.HasPrefix(end, "../") && c.same(strings.TrimSuffix(rel, stood)+end, end, depth+1)
}
