package workspace

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A Guard quarantines what appears in a workspace during a run and is
// protected: a name that does not exist cannot be forbidden without leaving a
// stub. It looks again whenever a directory has changed, and a last time when
// nothing of the run lives any more, after which nothing new that is protected
// stands ([Guard.Finish]).
//
// A look asks each directory for its ctime and reads those that changed: what
// told of a change only says that there is something to look for, so that no
// queue can overflow.
type Guard struct {
	standing *Standing
	peers    Guards // all of the run, this one among them
	rules    *rules
	tree     *dir
	stash    *Stash
	report   func(Finding)

	lent   map[string]int
	parted bool // the lent root is read-only: what may change in it is lent separately
	fd     int  // the root
	dev    uint64
	stood  map[string]bool // protected names
	homes  map[string]bool // directories in which names of a home stood, nil until asked
	repos  map[string]bool
	shut   map[string]bool
	during during

	// Configs are the private copies of the run; of the first guard, nil if there are none.
	Configs *PrivateConfigs

	// AskGit asks git of what the run has written into repositories; of the first guard, nil if nobody is to.
	AskGit AskGit

	// TreeLost reports whether a working tree that the run has made outside is deleted with it, and no other run
	// that goes on may have made its directory in the repository; of the first guard, nil if nobody knows.
	TreeLost func(tree, admin string) bool

	written map[string]*Written // what the run has written into repositories

	unwritten []Refusal         // pinned files that git has other content for
	originals map[string][]byte // of files for review, by path
	links     map[string]string // where those that are pinned led, by path

	stubs   *Stubs // of the first guard, nil for none
	lookout lookout
	stop    chan struct{}
	ended   chan struct{}

	// Last is set for a tree of which the post-run check is enough: nothing of the host is
	// expected to execute what stands there meanwhile.
	Last bool
}

// NewGuard returns a guard over the workspace of a record: that of a run which
// begins, with what was found, or of one whose launcher is gone, with nil. What
// it quarantines goes to the stash, and is reported. Lent are descriptors of
// directories by their path, the workspace among them, for a launcher that may
// not open them; nil for one that may.
func NewGuard(r *Standing, f *Found, lent map[string]int, stash *Stash, report func(Finding)) (*Guard, error) {
	g := &Guard{standing: r, stash: stash, report: report, lent: lent, stood: map[string]bool{}, repos: map[string]bool{}, shut: map[string]bool{}}
	if f != nil {
		g.rules, g.tree = f.forGuard.rules, f.forGuard.tree
	} else {
		var err error
		protect := append(slices.Clip(r.Protect), profiles.ProtectRule{Pattern: quarantine.Moving + "*"})
		if g.rules, err = compile(Query{Root: r.Root, Files: r.Files, Protect: protect}); err != nil {
			return nil, err
		}
		g.tree = &dir{}
	}
	for _, list := range [...]struct {
		set   map[string]bool
		names []string
	}{{g.stood, r.Names}, {g.repos, r.Repos}, {g.shut, r.Shut}} {
		for _, name := range list.names {
			list.set[name] = true
		}
	}
	g.during.closedPaths, g.during.closedNodes = map[string]bool{}, map[[2]uint64]bool{}
	for _, n := range r.Closed {
		rel, _ := beneath.Path(r.Root, n.Path)
		g.during.closedPaths[rel], g.during.closedNodes[[2]uint64{n.Dev, n.Ino}] = true, true
	}
	g.during.written = map[string]bool{}
	for path := range r.Keys {
		if rel, in := beneath.Path(r.Root, filepath.Dir(path)); in {
			g.during.written[rel] = true
		}
	}
	fd, ok := lent[r.Root]
	if g.fd = fd; !ok {
		var err error
		if g.fd, err = openRoot(r.Root); err == unix.EACCES {
			var dir int
			var name string
			if dir, name, err = beneath.ParentOf(r.Root); err == nil {
				g.fd, err = beneath.OpenOwnDir(dir, name) // the run may have closed it, also one that has just begun
				unix.Close(dir)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("open workspace %s: %w", r.Root, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(g.fd, &st); err != nil {
		return nil, fmt.Errorf("stat workspace %s: %w", r.Root, err)
	}
	g.dev = st.Dev
	g.parted = !ok && len(lent) > 0
	if ok {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(g.fd, &fs); err != nil {
			return nil, fmt.Errorf("statfs workspace %s: %w", r.Root, err)
		}
		g.parted = fs.Flags&unix.ST_RDONLY != 0
	}
	if f != nil {
		forget(g.tree, f.Start, g.dev)
	}
	g.peers = Guards{g}
	return g, nil
}

// maxRounds bounds how often the post-run check is repeated because something was
// found: nothing of the run lives any more, so the second finds nothing, unless
// the host or another run is at work there.
const maxRounds = 8

// halt ends the watch.
func (g *Guard) halt() {
	if g.stop != nil {
		close(g.stop)
		g.lookout.wake()
		<-g.ended
		g.stop = nil
	}
	g.during = during{last: true, shut: g.shut, closedPaths: g.during.closedPaths, closedNodes: g.during.closedNodes}
}

// search quarantines what is new and protected until nothing is left of it.
func (g *Guard) search() error {
	lightened := 0
	for round := 0; ; round++ {
		moved, err := g.look()
		if errors.Is(err, ErrTooMuch) && lightened < maxLightenings {
			n, e := g.lighten()
			if lightened++; n > 0 && e == nil {
				round--
				continue
			}
			err = errors.Join(err, e)
		}
		if moved > 0 && err == nil && round < maxRounds {
			continue
		}
		return err
	}
}

// replaced takes out of the repositories that stood those of which another directory has
// the place. The command cannot remove one, but what the host removes it can make anew.
func (g *Guard) replaced() {
	steady := keepsCtime(g.fd) // else inodes may be numbered anew
	g.rules.suspects(g.tree, func(s suspect) {
		if s.kind != isRepo || !g.repos[s.rel] {
			return
		}
		if s.hit.Name != "" {
			if g.linkedSince(g.abs(s.rel)) {
				delete(g.repos, s.rel)
			}
			return
		}
		had, known := g.standing.Git[g.abs(s.rel)]
		dir, name, err := g.parent(g.abs(s.rel))
		if err != nil {
			return
		}
		defer unix.Close(dir)
		// The clock of births goes in steps, and lags: what was made just before the run never
		// has a later one.
		if known && steady && had.Ino != s.dir.Ino || bornAt(dir, name, g.standing.Start.UnixNano()) {
			delete(g.repos, s.rel)
		}
	})
}

// Close gives back what the guard has opened.
func (g *Guard) Close() {
	if _, ok := g.lent[g.standing.Root]; !ok {
		unix.Close(g.fd)
	}
}
