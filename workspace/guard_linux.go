package workspace

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
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
	told     func(Finding)

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
	Configs *Configs

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

// leavings is what a scan leaves for a [Guard].
type leavings struct {
	rules *rules
	tree  *dir
	gits  []string // directories of git, also those that do not look like one: relative
	stood Standing // as far as the scan knows it by itself

	covered []Reviewed // of [Found.Review], but for a pinned directory above
}

// Standing returns what a look at the end of a run in this workspace needs to
// know. The query is the one that was answered.
func (f *Found) Standing(session string, q Query) *Standing {
	stood := f.after.stood
	r := &stood
	r.Session, r.Root, r.Start, r.Vacant, r.Protect = session, q.Root, f.Start, f.Vacant, q.Protect
	for _, file := range q.Files {
		_, in := beneath.Path(q.Root, file.Path)
		_, around := beneath.Path(file.Path, q.Root)
		if in || around && file.Glob != "" {
			r.Files = append(r.Files, file)
		}
	}
	know := func(n Node, pin bool, why string) {
		var st unix.Stat_t
		if n.Kind == Dir || beneath.Stat(unix.AT_FDCWD, n.Path, &st) != nil {
			return
		}
		r.Known = append(r.Known, Known{Node: Node{n.Path, n.Kind, st.Dev, st.Ino}, Ctime: st.Ctim.Nano(), Pin: pin, Why: why})
	}
	for _, p := range f.Pins {
		know(p.Node, true, p.Why)
	}
	for _, v := range f.after.covered {
		know(v.Node, true, v.Why)
	}
	for _, v := range f.Review {
		if !inModules(v.Path) { // an installer replaces those by the hundred
			know(v.Node, false, v.Why)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(r.Awaited)) {
		r.know(path, r.Awaited[path])
	}
	f.after.rules.suspects(f.after.tree, func(s suspect) {
		switch s.kind {
		case isRepo:
			r.Repos = append(r.Repos, s.rel)
		default:
			r.Names = append(r.Names, s.rel)
		}
	})
	r.Shut = f.after.tree.shuts(nil)
	for _, rel := range f.after.gits {
		if !slices.Contains(r.Repos, rel) {
			r.Repos = append(r.Repos, rel)
		}
	}
	r.Covered = f.covered()
	formats := map[string]vcs.Format{}
	for _, c := range f.Common {
		r.GitDirs = append(r.GitDirs, c.GitDir)
		if c.sure {
			formats[c.GitDir] = c.format
		}
		for _, dir := range c.Write {
			if dir != c.GitDir {
				r.Stores = append(r.Stores, dir)
			}
		}
	}
	r.Formats = formats
	known := make(chan struct{}) // beside what follows, which reads as much
	go func() { defer close(known); r.knowTips(nil) }()
	defer func() { <-known }()
	r.Git = map[string]GitEntry{}
	room := maxStood
	for _, rel := range r.Repos {
		r.noteGit(filepath.Join(r.Root, rel), "", &room)
	}
	for _, dir := range r.GitDirs {
		r.noteGit(dir, "", &room)
	}
	for _, dir := range r.Stores {
		r.noteGit(filepath.Dir(dir), filepath.Base(dir), &room)
	}
	for _, p := range q.Protect {
		if p.Review || !strings.HasPrefix(p.Pattern, "/") || strings.ContainsAny(p.Pattern, "*?[") {
			continue
		}
		if _, in := beneath.Path(q.Root, p.Pattern); in {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(p.Pattern, &st) == unix.ENOENT {
			r.Vacant = append(r.Vacant[:len(r.Vacant):len(r.Vacant)], p.Pattern)
		}
	}
	return r
}

// AddCommands has what git executes by the configurations of the workspace count in the working trees that lie in another
// directory: they may be linked worktrees of its repositories.
func (r *Standing) AddCommands(main *Standing) {
	r.Hooks, r.Commands = slices.Concat(r.Hooks, main.Hooks), slices.Concat(r.Commands, main.Commands)
	r.Placed = slices.Concat(r.Placed, main.Placed)
}

// Named returns rules for what git would execute by the configurations that stood and that
// was not there, or is relative to a working tree, of which there may be more by now.
func (f *Found) Named() (list []profiles.ProtectRule) {
	literal := func(path string) string {
		return strings.Map(func(c rune) rune {
			if strings.ContainsRune("*?[", c) {
				return '?'
			}
			return c
		}, path)
	}
	for _, path := range f.Vacant {
		list = append(list, profiles.ProtectRule{Pattern: literal(path)})
	}
	for _, value := range slices.Concat(f.after.stood.Hooks, f.after.stood.Commands) {
		if value = filepath.Clean(value); filepath.IsLocal(value) && value != "." {
			list = append(list, profiles.ProtectRule{Pattern: "**/" + literal(value)})
		}
	}
	return list
}

// A suspect is what a look finds in the tree and compares with what stood.
type suspect struct {
	kind suspectKind
	dir  *dir // of isName the one that holds it, else itself
	rel  string
	why  string // of isName: the pattern
	hit  hit
	home bool // of isName: see [profiles.ProtectRule]
}

type suspectKind uint8

const (
	isName suspectKind = iota // a protected name
	isRepo                    // a directory of git, or a file that leads to one
)

// shuts returns the directories of the tree that cannot be listed, what is hidden or
// read-only among them: a look leaves them as they were.
func (d *dir) shuts(list []string) []string {
	if d.gone {
		return list
	}
	if d.shut {
		return append(list, d.Rel)
	}
	for _, k := range d.Kids {
		list = k.shuts(list)
	}
	return list
}

// suspects calls yield with what the tree holds below d, as far as the command
// can reach it: containing directories first, and of a name that is protected
// nothing within it.
func (c *rules) suspects(d *dir, yield func(suspect)) {
	if d.gone || d.shut || d.State == hidden {
		return
	}
	if d.Git || d.name() == ".git" {
		yield(suspect{kind: isRepo, dir: d, rel: d.Rel})
	}
	if d.State == protected && d.Why != byGit {
		return // read-only inside, or as good as quarantined
	}
	last := ""
	for _, h := range d.Hits {
		switch {
		case h.Class == classGit && h.Kind != Dir:
			yield(suspect{kind: isRepo, dir: d, rel: join(d.Rel, h.Name), hit: h})
		case h.Class == classProtect && c.protect[h.Arg].Home: // another rule of that name may deny it
			if h.Kind != Dir && !inModules(d.Rel) {
				yield(suspect{kind: isName, dir: d, rel: join(d.Rel, h.Name), why: c.protect[h.Arg].Pattern, hit: h, home: true})
			}
		case h.Class == classProtect && !c.protect[h.Arg].Review && !inModules(d.Rel) && h.Name != last:
			last = h.Name
			yield(suspect{kind: isName, dir: d, rel: join(d.Rel, h.Name), why: c.protect[h.Arg].Pattern, hit: h})
		case h.Class == classWay && !inModules(d.Rel) && h.Name != last: // where it leads there may be anything, now or later
			last = h.Name
			yield(suspect{kind: isName, dir: d, rel: join(d.Rel, h.Name), why: c.deep[h.Arg].Whole, hit: h})
		}
	}
	for _, k := range d.Kids {
		c.suspects(k, yield)
	}
}

// NewGuard returns a guard over the workspace of a record: that of a run which
// begins, with what was found, or of one whose launcher is gone, with nil. What
// it quarantines goes to the stash, and told hears of it. Lent are descriptors of
// directories by their path, the workspace among them, for a launcher that may
// not open them; nil for one that may.
func NewGuard(r *Standing, f *Found, lent map[string]int, stash *Stash, told func(Finding)) (*Guard, error) {
	g := &Guard{standing: r, stash: stash, told: told, lent: lent, stood: map[string]bool{}, repos: map[string]bool{}, shut: map[string]bool{}}
	if f != nil {
		g.rules, g.tree = f.after.rules, f.after.tree
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
	g.during.covered, g.during.nodes = map[string]bool{}, map[[2]uint64]bool{}
	for _, n := range r.Covered {
		rel, _ := beneath.Path(r.Root, n.Path)
		g.during.covered[rel], g.during.nodes[[2]uint64{n.Dev, n.Ino}] = true, true
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
			g.fd, err = openShut(r.Root) // the run may have closed it, also one that has just begun
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

// openShut is openRoot for a directory of the user's own, whatever its mode.
func openShut(root string) (int, error) {
	top, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(top)
	return beneath.OpenOwnDir(top, root[1:])
}

// Watch begins to look, whenever something has changed, until [Guard.Finish].
func (g *Guard) Watch() {
	g.stop, g.ended = make(chan struct{}), make(chan struct{})
	go g.follow()
}

// grace is how long a run lasts before its directories are watched: what is
// over sooner meets the post-run check, and costs nothing else.
const grace = 3 * time.Millisecond

// Looks may take a tenth of the time on the whole, so that a build is not slowed
// by what looks after it, and as much as burst at once, so that what appears
// after a calm is met without delay.
const (
	idle  = 10
	burst = 50 * time.Millisecond
)

// A budget is how long looks may take.
type budget struct {
	credit time.Duration
	last   time.Time // of a look
}

// spend counts a look that has just ended, by the time that its thread has had, not by what went
// by: on a loaded machine others' turns would be taken for its own, and a name stand ten times as
// long. It returns how long the guard rests now.
func (b *budget) spend(worked time.Duration, now time.Time) time.Duration {
	b.credit = min(b.credit+now.Sub(b.last)/idle, burst) - worked
	b.last = now
	return max(-b.credit*idle, time.Millisecond/2)
}

// flood is how many names at once are looked for again without a pause.
const flood = 32

// poll is how often directories are looked at that cannot be watched.
const poll = 50 * time.Millisecond

func (g *Guard) follow() {
	defer close(g.ended)
	g.remember()
	pause := time.NewTimer(grace)
	defer pause.Stop()
	select {
	case <-g.stop:
		return
	case <-pause.C:
	}
	g.lookout.stand(g.watch)
}

// watch looks whenever something has changed, until the watch is to end.
func (g *Guard) watch() {
	g.during.begin(&g.lookout, g.peers.watching())
	defer g.during.end()
	defer g.Configs.watch(&g.lookout)()
	b := budget{burst, time.Now()}
	for !g.stopped() {
		began := worked()
		if moved, _ := g.look(); moved >= flood {
			continue // none of so many may stand until the guard has time again
		}
		g.Configs.save(g.stash)
		if !g.rest(b.spend(worked()-began, time.Now())) && !g.stopped() {
			g.lookout.wait(g.during.patience())
		}
	}
}

// rest lets some time go by, unless the watch is to end, and reports whether
// anything has changed meanwhile.
func (g *Guard) rest(long time.Duration) (changed bool) {
	for end := time.Now().Add(long); long > 0 && !g.stopped(); long = time.Until(end) {
		changed = g.lookout.wait(long) || changed
	}
	return changed
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
	g.during = during{last: true, shut: g.shut, covered: g.during.covered, nodes: g.during.nodes}
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
