package workspace

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// look reads what has changed since the last look and quarantines what is new
// and protected. It returns how much that was.
func (g *Guard) look() (moved int, err error) {
	began := time.Now()
	// What was read counts, even if it was not all.
	errs := []error{g.read()}
	if g.stopped() {
		// The post-run check believes what was read here, but of directories that may
		// have changed once more by the same clock's tick.
		forget(g.tree, began, g.dev)
		return 0, errors.Join(errs...)
	}
	take := func(path, why string) {
		done, err := g.quarantine(path, why)
		if done {
			moved++
		}
		errs = append(errs, err)
	}
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind != isName || g.stood[s.rel] || g.listed(s) || g.mayStand(s) {
			return
		}
		stays, n := g.stub(s)
		if moved += n; !stays && g.swap(s) {
			stays = true
			moved++
		} else if !stays { // another run may have swapped it meanwhile
			stays, n = g.stub(s)
			moved += n
		}
		if !stays {
			take(g.abs(s.rel), s.why)
		}
	})
	vacant := slices.Clip(g.standing.Vacant)
	for path, config := range g.standing.Late {
		// Git inside has its own configuration, which lets it read that; the host's has not, unless
		// the host has changed it.
		if _, there := g.stands(path); there && (g.during.last || g.splits(config)) {
			vacant = append(vacant, path)
		}
	}
	for _, path := range vacant {
		if path, there := g.stands(path); there {
			take(path, g.standing.whyVacant(path))
		}
	}
	if len(g.standing.Keys) > 0 {
		i := g.gitCheck()
		i.reviewed()
		i.close()
		errs = append(errs, i.errs...)
	}
	forget(g.tree, began, g.dev)
	if g.during.fds != nil {
		g.during.sweep(g.tree)
	}
	return moved, errors.Join(errs...)
}

// splits is [scan.splits] of the host's configuration as it is now.
func (g *Guard) splits(path string) bool {
	b, err := g.readOwn(path, vcs.MaxConfig)
	return splits(b) || err != nil && !beneath.Gone(err)
}

// listed reports whether a new name is not quarantined, being executed only from a home: unless one of
// its kind stood beside it, for that may be where ZDOTDIR or a link of the user's home leads.
func (g *Guard) listed(s suspect) bool {
	if !s.home {
		return false
	}
	if g.homes == nil {
		g.homes = map[string]bool{}
		for name := range g.stood {
			abs := g.abs(name)
			if slices.ContainsFunc(g.standing.Protect, func(r profiles.ProtectRule) bool { return r.Home && r.Matches(g.standing.Root, abs) }) {
				g.homes[filepath.Dir(abs)] = true
			}
		}
	}
	return !g.homes[filepath.Dir(g.abs(s.rel))]
}

// read brings the tree up to date.
func (g *Guard) read() error {
	w := &walker{rules: g.rules, fd: g.fd, dev: g.dev, during: &g.during}
	g.verify(g.tree)
	if g.stopped() {
		return nil // what is not verified would be read anew
	}
	w.keep(g.tree)
	return w.run()
}

// stopped reports whether the watch is to end: a look that is under way leaves
// all to the last one, which waits for it.
func (g *Guard) stopped() bool {
	select {
	case <-g.stop:
		return true
	default:
		return false
	}
}

// verify marks the directories that are as the tree has them.
func (g *Guard) verify(d *dir) {
	d.same = false
	if g.during.skips(d.Rel) || g.stopped() {
		return
	}
	var st unix.Stat_t
	var err error
	switch {
	case g.during.fds == nil:
		err = beneath.Stat(g.fd, d.Rel, &st)
	case d.watch == 0 && !d.shut:
		// Armed first, and then compared: what changes from here on is told.
		var fd int
		if fd, err = beneath.Open(g.fd, d.Rel, unix.O_RDONLY|unix.O_DIRECTORY); err == nil {
			kept := g.during.watch(d, fd)
			err = unix.Fstat(fd, &st)
			if !kept {
				unix.Close(fd)
			}
		}
	case d.watch == 0:
		err = unix.EACCES
	default:
		g.during.rearm(d)
		err = unix.Fstat(d.watch, &st)
	}
	d.same = d.Ctime != 0 && err == nil && st.Dev == d.Dev && st.Ino == d.Ino && st.Ctim.Nano() == d.Ctime
	for _, k := range d.Kids {
		g.verify(k)
	}
}

// whyVacant says why nothing may come to stand at a path: a pattern names it, or
// something leads there.
func (r *Standing) whyVacant(path string) string {
	for _, p := range r.Protect {
		if p.Pattern == path {
			return path
		}
	}
	return "a name that git or a link leads to"
}
