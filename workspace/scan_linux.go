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
)

// maxMounts bounds what a launch has to pin: each costs it 9 µs.
const maxMounts = 16_384

// Scan looks through a workspace. Its errors name what could not be read, or
// are [ErrTooMuch]. What changes under its hands it looks at again, and gives up
// after some tries.
func Scan(q Query) (found *Found, err error) {
	for try := range tries {
		found, err = scanOnce(q)
		if !errors.Is(err, errUnsteady) {
			return found, err
		}
		time.Sleep(time.Duration(try+1) * time.Millisecond)
	}
	return nil, err
}

// worthwhile is from how many names on it is quicker to write the index than to read them again at the next launch.
const worthwhile = 1000

// tries is how often a workspace that changes is looked through.
const tries = 5

func scanOnce(q Query) (*Found, error) {
	if !filepath.IsAbs(q.Root) || filepath.Clean(q.Root) != q.Root || strings.IndexByte(q.Root, 0) >= 0 {
		return nil, fmt.Errorf("scan workspace %q: want an absolute, clean path", q.Root)
	}
	if q.Root == "/" {
		return nil, errors.New("scan workspace /: the root of the file system is no workspace")
	}
	if _, inside := beneath.Path(q.Root, filepath.Clean(q.IndexDir)); q.IndexDir != "" && inside && !q.Aside {
		return nil, fmt.Errorf("scan workspace %s: its index may not lie inside, in %s", q.Root, q.IndexDir)
	}
	rules, err := compile(q)
	if err != nil {
		return nil, err
	}
	fd, err := openRoot(q.Root)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", q.Root, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", q.Root, err)
	}
	if !keepsCtime(fd) {
		q.IndexDir = ""
	}

	start := time.Now()
	sum := rules.sum()
	old := loadIndex(q, sum)
	w := &walker{rules: rules, fd: fd, dev: st.Dev}
	root := &dir{}
	if old == nil {
		old = &index{}
		w.push(root)
	} else {
		root = old.Tree
		old.verify(fd, st.Dev)
		w.keep(root)
	}
	changed := len(w.todo) > 0
	w.want = old.inodes(changed)
	var s *scan
	linked, known := old.Linked, old
	for again := false; ; again = true {
		if err := w.run(); err != nil {
			return nil, w.crowd(err, root)
		}
		if !again && old.Tree != nil && !w.news && w.entries < worthwhile {
			changed = false // but for ctimes, of which each run moves one: what is written would not hold until the next
		}
		s = newScan(q, w, root, known)
		defer s.close()
		if err := s.collect(); err != nil {
			return nil, err
		}
		if again {
			for _, ino := range linked {
				s.linked[ino] = struct{}{}
			}
		}
		if again || s.allLinked() {
			break
		}
		// Something has other names that nobody has looked for: only a look
		// at every inode tells where they are.
		linked, known, changed = slices.Sorted(maps.Keys(s.linked)), &index{}, true
		w = &walker{rules: rules, fd: fd, dev: st.Dev, want: s.linked, entries: w.entries}
		root = &dir{}
		w.push(root)
	}
	if err := s.steady(); err != nil {
		return nil, err
	}
	s.found.Start = start
	found, err := s.finish()
	if err != nil {
		return nil, err
	}
	if q.IndexDir != "" && changed {
		forget(root, start, st.Dev)
		x := &index{Linked: slices.Sorted(maps.Keys(s.linked)), Tree: root}
		x.save(q, sum)
	}
	return found, nil
}

func openRoot(root string) (int, error) {
	return beneath.OpenPath(root, unix.O_RDONLY|unix.O_DIRECTORY)
}

// inodes returns the files whose other names matter: those that had some when
// the index was written and, if anything is to be read, those that nobody asks
// for their link count each time, because they lie in a directory that is
// protected or hidden as a whole.
func (x *index) inodes(reading bool) map[uint64]struct{} {
	want := make(map[uint64]struct{}, len(x.Linked))
	for _, ino := range x.Linked {
		want[ino] = struct{}{}
	}
	if !reading {
		return want
	}
	for _, d := range x.all {
		if d.State != protected && d.State != hidden && d.State != fixed {
			continue
		}
		for _, h := range d.Hits {
			if h.Class == classInside && h.Kind == File {
				want[h.Ino] = struct{}{}
			}
		}
	}
	return want
}

// A scan turns the tree of directories into what [Found] says.
type scan struct {
	view
	q    Query
	tree *dir

	pins    map[string]Pin
	matches map[string]Match
	review  map[string]Reviewed
	fifos   map[string]Node
	vacant  map[string]bool
	away    []string
	late    map[string]string // see [Standing.Late]
	awaited map[string]string // see [Standing.Awaited]

	repos       []repo
	gitDirs     []string
	otherTrees  []string // working trees whose repositories lie elsewhere
	isGitDir    map[string]bool
	walked      map[string]bool // git directories whose hooks the walk has looked into
	ownGit      string          // where the root's own .git leads, if that is outside and trusted
	configs     int             // files of configuration that were read
	configBytes int
	copies      int             // see [Pin.Private]
	crowded     bool            // there are more
	copied      int             // bytes of those
	hooks       map[string]bool // relative paths of hooks that configurations name
	commands    map[string]bool // and of programs
	executed    map[string]bool // what both lead to
	userFiles   map[string]bool // see [Found.Outside]

	linked     map[uint64]struct{} // inodes of what is protected or hidden and has other names
	known      map[uint64]struct{} // those whose names the walk has looked for
	pinnedAs   map[uint64]origin   // one name of each, as far as it is pinned
	restricted map[uint64]origin   // and as far as a rule of the file table hides it or makes it read-only
	aliases    []alias

	found Found
}

// An alias is a name whose inode is one of those that were looked for.
type alias struct {
	path   string
	ino    uint64
	pinned bool // with a directory above it
}

// An origin is the file that an alias is another name of, and why it matters.
type origin struct {
	path string
	file profiles.FileRule // in restricted
	rule profiles.ProtectRule
}

func newScan(q Query, w *walker, tree *dir, old *index) *scan {
	s := &scan{
		view: newView(w.rules, w.fd, w.dev), q: q, tree: tree,
		pins: map[string]Pin{}, matches: map[string]Match{}, review: map[string]Reviewed{}, awaited: map[string]string{}, fifos: map[string]Node{},
		vacant: map[string]bool{}, late: map[string]string{}, hooks: map[string]bool{}, commands: map[string]bool{}, executed: map[string]bool{}, userFiles: map[string]bool{},
		isGitDir: map[string]bool{}, walked: map[string]bool{},
		linked: map[uint64]struct{}{}, known: w.want, pinnedAs: map[uint64]origin{}, restricted: map[uint64]origin{},
	}
	for _, ino := range old.Linked {
		s.linked[ino] = struct{}{}
	}
	s.found.Stats.Entries, s.found.Holding = w.entries, map[string][2]uint64{}
	return s
}

// collect goes through the tree, then through what it leads to.
func (s *scan) collect() error {
	if err := s.visit(s.tree); err != nil {
		return err
	}
	if err := s.repositories(); err != nil {
		return err
	}
	if err := s.namedInOtherTrees(); err != nil {
		return err
	}
	if err := s.spare(); err != nil {
		return err
	}
	if err := s.byName(); err != nil {
		return err
	}
	s.alias()
	return nil
}

func (s *scan) visit(d *dir) error {
	if d.gone {
		s.unseen[s.abs(d.Rel)] = unix.ENOENT
		return nil
	}
	s.found.Stats.Dirs++
	if d.fresh {
		s.found.Stats.Read++
	}
	if d.shut {
		// Its owner could open it from inside and change what lies there.
		if err := s.pin(s.abs(d.Rel), profiles.ProtectRule{Pattern: Unlisted}); err != nil {
			return err
		}
	}
	if (d.Git || d.name() == ".git") && d.State != hidden {
		s.walked[s.abs(d.Rel)] = true
		s.addGitDir(s.abs(d.Rel))
	}
	for _, h := range d.Hits {
		if err := s.hit(d, h); err != nil {
			return err
		}
	}
	for _, k := range d.Kids {
		if err := s.visit(k); err != nil {
			return err
		}
	}
	return nil
}

func (s *scan) hit(d *dir, h hit) error {
	path := s.abs(join(d.Rel, h.Name))
	if h.Class == classProtect || h.Class == classGlob {
		s.found.Holding[s.abs(d.Rel)] = [2]uint64{d.Dev, d.Ino}
	}
	switch h.Class {
	case classGit:
		return s.gitEntry(s.abs(d.Rel), path, h.Kind)
	case classProtect:
		r := s.protect[h.Arg]
		if r.Home && h.Kind == Dir {
			return nil
		}
		if inModules(d.Rel) {
			if r.Review {
				return nil
			}
			r.Review = true
		}
		return s.guard(Node{path, h.Kind, d.Dev, h.Ino}, r)
	case classGlob:
		return s.match(path, h)
	case classAlias:
		if d.State != hidden { // else it is out of reach
			s.aliases = append(s.aliases, alias{path: path, ino: h.Ino})
		}
	case classInside:
		return s.inside(d, h, path)
	case classFIFO:
		return s.fifo(path)
	case classLead:
		s.found.Leads = append(s.found.Leads, path)
	case classWay:
		way := s.deep[h.Arg]
		if inModules(d.Rel) || strings.ContainsAny(way.rest, "*?[") {
			return nil
		}
		r := way.rule
		r.Pattern = way.Whole
		return s.leadsTo(s.abs(d.Rel), h.Name+"/"+way.rest, r)
	}
	return nil
}

// fifo notes a FIFO: whoever has its other end is outside.
func (s *scan) fifo(path string) error {
	n, _, ok := s.node(path)
	if !ok || n.Kind != Special {
		return nil
	}
	if len(s.fifos) >= maxMounts {
		return fmt.Errorf("scan workspace %s: FIFO %d, %s: %w", s.root, maxMounts, path, ErrTooMuch)
	}
	s.fifos[path] = n
	return nil
}

// byName looks at the files that rules hide or make read-only by their names,
// for whether they have others.
func (s *scan) byName() error {
	for _, i := range slices.Concat(s.closed, s.fixed) {
		r := s.files[i]
		if s.q.Single != nil && s.q.Single(r.Path) {
			continue
		}
		if n, st, ok := s.node(r.Path); ok && n.Kind == File && st.Nlink > 1 && n.Dev == s.dev {
			s.linked[n.Ino] = struct{}{}
			s.restrict(n.Ino, origin{path: r.Path, file: r})
		}
	}
	return nil
}

// restrict gives a file's other names what its own has; of two the stricter.
func (s *scan) restrict(ino uint64, o origin) {
	if have, ok := s.restricted[ino]; !ok || o.file.Access < have.file.Access {
		s.restricted[ino] = o
	}
}

// inside is for a file or link below a directory that matters as a whole.
func (s *scan) inside(d *dir, h hit, path string) error {
	rule := profiles.ProtectRule{Pattern: ".git/hooks"}
	byFile := d.State == hidden || d.State == fixed
	if !byFile && d.Why != byGit {
		rule = s.protect[d.Why]
	}
	take := func(ino uint64) { s.pinnedAs[ino] = origin{path: path, rule: rule} }
	switch {
	case d.State == reviewed:
		rule.Review = true // or why is a rule that does not hold in node_modules
		return s.guard(Node{path, h.Kind, d.Dev, h.Ino}, rule)
	case byFile:
		take = func(ino uint64) { s.restrict(ino, origin{path: path, file: s.files[d.Why]}) }
	case h.Kind == Link:
		err := s.leadsTo(filepath.Dir(path), h.Name, rule)
		if errors.Is(err, errWhole) {
			s.note("%v", err)
			err = nil
		}
		return err
	}
	if h.Kind != File {
		return nil
	}
	if _, known := s.known[h.Ino]; known {
		take(h.Ino)
		if d.State == protected {
			s.aliases = append(s.aliases, alias{path, h.Ino, true})
		}
		return nil
	}
	if d.fresh {
		var st unix.Stat_t
		if s.stat(path, &st) == nil && st.Nlink > 1 {
			s.linked[st.Ino] = struct{}{}
			take(st.Ino)
		}
	}
	return nil
}

// allLinked reports whether the walk has looked for all names of all that has several.
func (s *scan) allLinked() bool {
	for ino := range s.linked {
		if _, ok := s.known[ino]; !ok {
			return false
		}
	}
	return true
}

// inModules reports whether a path lies in a directory that package managers
// remove and fill again: a pin in there would make them fail, and its files
// belong to packages, not to the project.
func inModules(rel string) bool {
	return strings.Contains("/"+rel+"/", "/node_modules/")
}

// guard pins or reviews what is at a path, as the rule says. Of a directory,
// the files are reviewed.
func (s *scan) guard(n Node, r profiles.ProtectRule) error {
	if !r.Review {
		return s.pin(n.Path, r)
	}
	if _, seen := s.review[n.Path]; seen || n.Kind == Dir {
		return nil
	}
	s.review[n.Path] = Reviewed{Node: n, Why: r.Pattern, Origin: r.Origin}
	if n.Kind == Link {
		return s.reviewEnd(n.Path, r)
	}
	return nil
}

// maxAwaited bounds the directories to which links lead that are for review.
const maxAwaited = 16

// reviewEnd has what a link leads to reviewed as the link is, and the links on the way, as
// far as they lie in the workspace: who reads the one reads the other.
func (s *scan) reviewEnd(path string, r profiles.ProtectRule) error {
	t, err := s.follow(filepath.Dir(path), filepath.Base(path))
	if err != nil {
		return err
	}
	for _, l := range t.links {
		if _, seen := s.review[l.Path]; !seen && inside(s.root, l.Path) {
			s.review[l.Path] = Reviewed{Node: l, Why: r.Pattern, Origin: r.Origin}
		}
	}
	_, above := beneath.Path(t.end.Path, path)
	switch end := t.end; {
	case !inside(s.root, end.Path):
	case t.found && above:
		s.note("%s links to a parent directory: changes there are not listed", path)
	case t.found && end.Kind != Dir:
		if _, seen := s.review[end.Path]; !seen {
			s.review[end.Path] = Reviewed{Node: end, Why: r.Pattern, Origin: r.Origin}
		}
	case s.awaited[end.Path] != "":
	case len(s.awaited) >= maxAwaited:
		s.note("%s links to %s: changes there are not listed after %d other links", path, end.Path, maxAwaited)
	default:
		s.awaited[end.Path] = r.Pattern
	}
	return nil
}

// pin makes a path read-only, and what it leads to if it is a link.
func (s *scan) pin(path string, r profiles.ProtectRule) error {
	if _, seen := s.pins[path]; seen {
		return nil
	}
	n, st, ok := s.node(path)
	if !ok {
		return nil
	}
	if len(s.pins) >= maxMounts {
		return fmt.Errorf("scan workspace %s: protect %s: pin %d: %w", s.root, path, maxMounts, ErrTooMuch)
	}
	s.pins[path] = Pin{Node: n, Why: r.Pattern, Origin: r.Origin}
	switch n.Kind {
	case File:
		if st.Nlink > 1 && n.Dev == s.dev {
			s.linked[n.Ino] = struct{}{}
			s.pinnedAs[n.Ino] = origin{path: path, rule: r}
		}
	case Link:
		return s.leadsTo(filepath.Dir(path), filepath.Base(path), r)
	}
	return nil
}

// leadsTo pins what a path leads to, and the links on the way, as far as they
// lie in the workspace. Of a place that does not exist it notes the name.
func (s *scan) leadsTo(base, path string, r profiles.ProtectRule) error {
	t, err := s.follow(base, path)
	if err != nil {
		return err
	}
	s.pinLinks(t, r)
	if _, above := beneath.Path(t.end.Path, s.root); above && t.found {
		return fmt.Errorf("protect %s: %s leads to %s: %w", r.Pattern, beneath.Shorten(filepath.Join(base, path)), t.end.Path, errWhole)
	}
	if _, in := beneath.Path(s.root, t.end.Path); !in {
		s.away = append(s.away, filepath.Join(base, path))
		return nil
	}
	if !t.found {
		s.vacant[t.end.Path] = true
		return nil
	}
	if t.end.Kind == Dir && len(t.links) > 0 {
		s.note("%s is read-only, because %s links to it", t.end.Path, t.links[0].Path)
	}
	return s.pin(t.end.Path, r)
}

// pinLinks pins the links of a trail, and not what is at its end.
func (s *scan) pinLinks(t trail, r profiles.ProtectRule) {
	for _, n := range t.links {
		if _, seen := s.pins[n.Path]; !seen {
			s.pins[n.Path] = Pin{Node: n, Why: r.Pattern, Origin: r.Origin}
		}
	}
}

// errWhole is for a link that would make the whole workspace read-only.
var errWhole = errors.New("it contains the workspace, which would become read-only")

func (s *scan) note(format string, args ...any) {
	s.found.Notes = append(s.found.Notes, fmt.Sprintf(format, args...))
}

// match records what a glob of the file table matches; of two rules for a path
// the stricter.
func (s *scan) match(path string, h hit) error {
	r := s.files[h.Arg]
	if m, seen := s.matches[path]; seen && m.Rule.Access <= r.Access {
		return nil
	}
	n, st, ok := s.node(path)
	if !ok {
		return nil
	}
	if len(s.matches) >= maxMounts {
		return fmt.Errorf("scan workspace %s: %s matches %s: match %d: %w", s.root, r.Origin, path, maxMounts, ErrTooMuch)
	}
	m := Match{Node: n, Rule: r}
	if n.Kind == Link {
		t, err := s.follow(filepath.Dir(path), filepath.Base(path))
		if err != nil {
			return err
		}
		if t.found {
			m.Target, m.Links = t.end.Path, t.links
			// A file is hidden where it is. What a link shows of a directory
			// has names of its own for a pattern to match.
			if rest, ok := beneath.Path(s.root, t.end.Path); ok && rest != "" && t.end.Kind == File {
				m.Node, m.Target, m.Why = t.end, "", "where "+path+" leads"
				_, st, _ = s.node(m.Path)
				if first, seen := s.matches[m.Path]; seen && first.Rule.Access <= r.Access {
					return nil
				}
			}
		}
	}
	s.matches[m.Path] = m
	if m.Kind == File && st.Nlink > 1 && m.Dev == s.dev {
		s.linked[m.Ino] = struct{}{}
		s.restrict(m.Ino, origin{path: m.Path, file: r})
	}
	return nil
}

// alias gives the other names of a file the treatment of the first: what is
// hidden under one name is hidden under all.
func (s *scan) alias() {
	for _, a := range s.aliases {
		hide, hidden := s.restricted[a.ino]
		pin, pinned := s.pinnedAs[a.ino]
		if hidden && hide.path == a.path || !hidden && (!pinned || a.pinned) {
			continue
		}
		n, _, ok := s.node(a.path)
		if !ok || n.Ino != a.ino || n.Dev != s.dev {
			continue
		}
		s.linked[a.ino] = struct{}{}
		if hidden {
			if m, seen := s.matches[a.path]; !seen || m.Rule.Access > hide.file.Access {
				s.matches[a.path] = Match{Node: n, Rule: hide.file, Why: "same file as " + hide.path}
			}
		} else if _, seen := s.pins[a.path]; !seen {
			s.pins[a.path] = Pin{Node: n, Why: "same file as " + pin.path, Origin: pin.rule.Origin}
		}
	}
}

// finish puts the answer together.
func (s *scan) finish() (*Found, error) {
	f := &s.found
	// What lies below a read-only directory is read-only already.
	for _, p := range byPath(s.pins) {
		if !s.belowPin(p.Path) {
			f.Pins = append(f.Pins, p)
		}
	}
	anchors := map[string]bool{}
	for _, p := range f.Pins {
		top := s.root
		if m := s.q.Main; m != nil && inside(m.forGuard.rules.root, p.Path) && !inside(top, p.Path) {
			top = m.forGuard.rules.root
		} else if !inside(top, p.Path) {
			top = filepath.Dir(p.Path) // the command cannot write there
		}
		for _, c := range f.Common {
			for _, w := range c.Write {
				if _, ok := beneath.Path(w, p.Path); ok {
					top = w
				}
			}
		}
		for dir := filepath.Dir(p.Path); dir != top && dir != "/"; dir = filepath.Dir(dir) {
			if anchors[dir] {
				break
			}
			anchors[dir] = true
		}
	}
	if n := len(anchors) + len(f.Pins); n > maxMounts {
		return nil, fmt.Errorf("scan workspace %s: %d mounts to protect it, limit %d: %w", s.root, n, maxMounts, ErrTooMuch)
	}
	f.Anchors, f.Outside = slices.Sorted(maps.Keys(anchors)), slices.Sorted(maps.Keys(s.userFiles))
	f.Matches = byPath(s.matches)
	f.FIFOs = byPath(s.fifos)
	var belowPins []Reviewed
	for _, r := range byPath(s.review) {
		if _, pinned := s.pins[r.Path]; pinned {
			continue
		} else if s.belowPin(r.Path) {
			belowPins = append(belowPins, r)
			continue
		}
		f.Review = append(f.Review, r)
	}
	f.Vacant, f.Away = slices.Sorted(maps.Keys(s.vacant)), s.away
	f.forGuard = guardInput{s.rules, s.tree, s.plainGits(), Standing{
		Keys: f.keys(s), Late: s.late, Awaited: s.awaited, Hooks: slices.Sorted(maps.Keys(s.hooks)), Commands: slices.Sorted(maps.Keys(s.commands)),
		Executed: slices.Sorted(maps.Keys(s.executed)),
	}, belowPins}
	slices.Sort(f.Notes)
	f.Notes = slices.Compact(f.Notes)
	return f, nil
}

// belowPin reports whether a pinned directory lies above a path.
func (s *scan) belowPin(path string) bool {
	for dir := filepath.Dir(path); dir != "/"; dir = filepath.Dir(dir) {
		if p, ok := s.pins[dir]; ok && p.Kind == Dir {
			return true
		}
	}
	return false
}

func byPath[T any](m map[string]T) []T {
	all := make([]T, 0, len(m))
	for _, path := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[path])
	}
	return all
}
