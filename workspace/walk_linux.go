package workspace

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A hit is a directory entry that something has to be done about.
type hit struct {
	Class class
	Kind  Kind
	Arg   uint32
	Ino   uint64
	Name  string
}

// A state says why the files of a directory matter as a whole.
type state uint8

const (
	plain     state = iota
	protected       // by protect rule why, or as the hooks of a repository
	reviewed        // by protect rule why
	hidden          // by file rule why
	fixed           // read-only, by file rule why
)

// byGit stands in [dir.why] for the package's own rule about hooks.
const byGit = ^uint32(0)

// A dir is a directory of the workspace. The tree of them is what the index keeps.
type dir struct {
	Rel   string // relative to the root, "" for the root
	Dev   uint64
	Ino   uint64
	Ctime int64 // nanoseconds; 0 if it may not be trusted the next time
	State state
	Why   uint32
	Git   bool // looks like a repository's directory: HEAD and its like are there
	Kids  []*dir
	Hits  []hit

	watch int  // a descriptor that tells of changes, 0 for none
	same  bool // the index is right about it
	fresh bool // read in this scan
	gone  bool // vanished before it was read
	shut  bool // may not be read by this user
}

// lists reports whether two directories hold the same as far as anybody asks for it.
func (d *dir) lists(o *dir) bool {
	return d.Git == o.Git && !d.gone && !d.shut && slices.Equal(d.Hits, o.Hits) && slices.Equal(d.Kids, o.Kids)
}

func (d *dir) name() string { return d.Rel[strings.LastIndexByte(d.Rel, '/')+1:] }

// join returns the path of an entry, relative to the root.
func join(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}

// maxWeight bounds the tree: each directory weighs as many names as the kernel
// has to walk to open it, and a bit for the memory that its path takes. It is
// reached by 350,000 directories as they usually lie, or by some thousand at
// the bottom of a well. Tests set it.
var maxWeight = 4 << 20

// maxHits bounds the names of one directory that something has to be done about.
const maxHits = 1 << 18

// A walker reads directories, with several workers where there is enough to do: see [walker.hands].
type walker struct {
	*rules
	fd     int // the root
	dev    uint64
	want   map[uint64]struct{} // inodes whose other names are looked for
	during *during             // of a look that is not a launch's; nil for a launch

	mu      sync.Mutex
	wake    sync.Cond
	todo    []*dir
	busy    int // workers that may still add to todo
	helpers int // goroutines beside the first
	began   time.Time
	before  int64 // [fromDisk] then
	done    int   // directories that were read
	asked   int   // of how many it is asked next whether they come from a disk
	disk    bool  // they do
	dirs    int
	weight  int
	entries int
	news    bool // a directory that was read holds something else than the index says, or could be believed from now on
	full    bool // err is that the tree has too many directories, or too deep ones
	err     error
}

// granted returns what a mode allows the command of a root that gives itself up: that one is
// to the tree what its owner is, and a stranger to all others who have something in it.
func granted(st, root *unix.Stat_t) uint32 {
	switch {
	case st.Uid == root.Uid:
		return st.Mode >> 6 & 0o7
	case st.Gid == root.Gid:
		return st.Mode >> 3 & 0o7
	}
	return st.Mode & 0o7
}

// foreign reports whether a directory is closed to such a command.
func (w *walker) foreign(st *unix.Stat_t) bool {
	var root unix.Stat_t
	if st.Mode&0o555 == 0o555 || unix.Fstat(w.fd, &root) != nil {
		return false
	}
	if st.Uid == root.Uid && w.during != nil { // what the command has closed itself, the post-run check sees all the same
		return false
	}
	return granted(st, &root)&0o5 != 0o5
}

// pile is how many directories must wait before one more worker is worth its start.
const pile = 32

// run reads all directories that wait, and those that turn up below them.
func (w *walker) run() error {
	w.wake.L = &w.mu
	w.began, w.before = time.Now(), fromDisk()
	var helpers sync.WaitGroup
	w.work(&helpers)
	helpers.Wait()
	return w.err
}

func (w *walker) work(helpers *sync.WaitGroup) {
	buf := make([]byte, listSize)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	for {
		for len(w.todo) == 0 && w.busy > 1 && w.err == nil {
			w.busy--
			w.wake.Wait()
			w.busy++
		}
		if len(w.todo) == 0 || w.err != nil {
			w.busy--
			w.wake.Broadcast()
			return
		}
		d := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if len(w.todo) > pile && w.helpers+1 < w.hands() {
			w.helpers++
			helpers.Go(func() { w.work(helpers) })
		}
		w.mu.Unlock()
		was := *d
		n, err := w.read(d, buf)
		w.mu.Lock()
		w.entries += n
		w.done++
		if err != nil {
			d.Ctime = 0 // its list is not whole
			if w.err == nil {
				w.err, w.full = err, w.during.crowds(len(d.Kids))
			}
		}
		w.descend(d, was.Kids)
		w.news = w.news || !d.lists(&was) || was.Ctime == 0 && !changedSince(d.Ctime, w.began)
		if w.helpers > 0 && len(w.todo) > 0 {
			w.wake.Broadcast()
		}
	}
}

// descend puts the directories below d, which has just been read, on the pile.
// What the index knew of one is kept if it stands where it stood.
func (w *walker) descend(d *dir, old []*dir) {
	var known map[string]*dir
	if len(old) > 0 {
		known = make(map[string]*dir, len(old))
		for _, o := range old {
			known[o.Rel] = o
		}
	}
	for i, k := range d.Kids {
		if o := known[k.Rel]; o != nil && o.State == k.State && o.Why == k.Why {
			d.Kids[i] = o
			w.keep(o)
			continue
		}
		w.push(k)
	}
}

// keep takes over what the index says of d and all below it, and puts what has
// changed on the pile.
func (w *walker) keep(d *dir) {
	if w.during.skips(d.Rel) {
		return
	}
	if !d.same {
		w.push(d)
		return
	}
	if !w.fits(d) {
		return
	}
	for _, k := range d.Kids {
		w.keep(k)
	}
}

func (w *walker) push(d *dir) {
	if w.during.skips(d.Rel) {
		d.Ctime = 0 // for a later look to read
		return
	}
	if !w.fits(d) {
		return
	}
	w.todo = append(w.todo, d)
}

// weight is what a directory counts.
func (d *dir) weight() int { return 1 + strings.Count(d.Rel, "/") + len(d.Rel)/16 }

// deepest is how deep directories may lie in each other, of which some thousand would weigh as much as all that a launch
// takes.
const deepest = 1000

func (d *dir) deep() bool { return strings.Count(d.Rel, "/") >= deepest }

// fits counts a directory, and reports whether there is room for it.
func (w *walker) fits(d *dir) bool {
	w.dirs++
	w.weight += d.weight()
	tooDeep := (w.during == nil || w.during.last) && d.deep() // while a run goes on it may remove that yet
	if (tooDeep || w.weight > w.during.bound() || w.during.crowds(w.dirs)) && w.err == nil {
		w.err = fmt.Errorf("scan %s: directory %d, %s: %w", w.root, w.dirs, beneath.Shorten(d.Rel), ErrTooMuch)
		w.full = true
	}
	return w.err == nil
}

// listSize is the room for what is read of a directory at a time. It is no constant, so that no stack has to grow for it.
var listSize = 64 << 10

// read lists one directory. It returns how many entries it looked at. That the
// directory is gone, or is none any more, is no error: somebody else is at
// work, and the mount planner compares inodes.
func (w *walker) read(d *dir, buf []byte) (entries int, err error) {
	d.Kids, d.Hits, d.Git, d.fresh = nil, nil, false, true
	d.gone, d.shut = false, w.during.leaves(d.Rel)
	if d.shut {
		return 0, nil
	}
	if stall != nil {
		stall(d.Rel)
	}
	fd, err := beneath.Open(w.fd, d.Rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && w.during.opens(d.Rel) && beneath.Unlock(w.fd, d.Rel) == nil {
		fd, err = beneath.Open(w.fd, d.Rel, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EXDEV, unix.EAGAIN: // the last two if it is moved while it is looked up, openat2(2)
		d.gone = true
		return 0, nil
	case unix.EACCES, unix.EPERM:
		d.shut = true
		return 0, nil
	default:
		return 0, fmt.Errorf("open %s/%s: %w", w.root, d.Rel, err)
	}
	kept := false
	defer func() {
		if !kept {
			unix.Close(fd)
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("stat %s/%s: %w", w.root, d.Rel, err)
	}
	if int(st.Uid) == os.Getuid() && st.Mode&0o500 != 0o500 && os.Getuid() != 0 {
		// Its names or what they stand for are closed to us, and would not be
		// to a command that changes the mode.
		if !w.during.opens(d.Rel) || unix.Fchmod(fd, st.Mode&0o7777|0o700) != nil {
			d.shut = true
			return 0, nil
		}
	}
	if os.Getuid() == 0 && w.foreign(&st) {
		d.shut = true
		return 0, nil
	}
	kept = w.during.watch(d, fd)
	// Before the list, so that what changes while it is read shows the next time.
	d.Dev, d.Ino, d.Ctime = st.Dev, st.Ino, st.Ctim.Nano()

	var l listing
	for {
		n, err := beneath.Getdents(fd, buf)
		if err == unix.ENOENT { // removed while it was read
			break
		}
		if err != nil {
			return entries, fmt.Errorf("read directory %s/%s: %w", w.root, d.Rel, err)
		}
		if n == 0 {
			break
		}
		for b := buf[:n]; len(b) > 0; {
			// struct linux_dirent64 { u64 ino; s64 off; u16 reclen; u8 type; char name[]; }
			size := binary.NativeEndian.Uint16(b[16:])
			e := b[:size]
			b = b[size:]
			name := e[19:]
			if name[0] == '.' && (name[1] == 0 || name[1] == '.' && name[2] == 0) {
				continue
			}
			entries++
			name = name[:bytes.IndexByte(name, 0)]
			w.entry(fd, d, &l, name, e[18], binary.NativeEndian.Uint64(e))
		}
		if len(d.Hits) > maxHits || w.during.crowds(len(d.Kids)) {
			return entries, fmt.Errorf("scan %s: entry %d of %s: %w", w.root, entries, beneath.Shorten(d.Rel), ErrTooMuch)
		}
	}
	w.finishDirectory(d, &l)
	return entries, nil
}

// A listing is what the entries of one directory have said so far of the
// directory itself.
type listing [4]bool

// gitParts are the names by which a directory of git's is known.
var gitParts = [...]string{"HEAD", "objects", "refs", "commondir"}

// note looks at a name.
func (l *listing) note(name []byte) {
	for i, part := range gitParts {
		l[i] = l[i] || string(name) == part
	}
}

// git reports whether the directory looks like one of git's.
func (l *listing) git() bool {
	return gitdir.IsRepository(func(name string) bool { return l[slices.Index(gitParts[:], name)] })
}

// entry looks at one directory entry. This runs for every file of the
// workspace: most are done with after two table look-ups.
func (w *walker) entry(fd int, d *dir, l *listing, name []byte, dtype byte, ino uint64) {
	if dtype == unix.DT_UNKNOWN {
		dtype = beneath.DirentType(fd, string(name))
	}
	isDir := dtype == unix.DT_DIR
	lead := dtype == unix.DT_LNK && w.during == nil && w.leadsOut(fd, d.Rel, name)
	look := lead || dtype == unix.DT_FIFO || w.begun(name) || w.ends[name[len(name)-1]] || w.rest.head != 0 || d.State != plain
	if !look && w.want != nil {
		_, look = w.want[ino]
	}
	if !look && !isDir {
		return
	}
	if look {
		first := len(d.Hits)
		w.look(d, l, name, dtype, ino)
		if lead && d.State != hidden {
			d.Hits = append(d.Hits, hit{Class: classLead, Kind: Link, Ino: ino, Name: string(name)})
		}
		if isDir {
			w.enter(d, join(d.Rel, string(name)), ino, d.Hits[first:])
		}
		if w.during != nil { // a guard asks for no globs of files
			d.Hits = append(d.Hits[:first], slices.DeleteFunc(d.Hits[first:], func(h hit) bool { return h.Class == classGlob })...)
		}
		return
	}
	w.enter(d, join(d.Rel, string(name)), ino, nil)
}

// leadsOut reports whether a link stands where people, or npm (npm-link(1)), put one to a directory of theirs: at the top,
// or in node_modules, if its text leads out. There are thousands there of which it does not.
func (w *walker) leadsOut(fd int, rel string, name []byte) bool {
	if rel == "" {
		return true
	}
	packages := rel
	if strings.HasPrefix(filepath.Base(rel), "@") {
		packages = filepath.Dir(rel)
	}
	if filepath.Base(packages) != "node_modules" {
		return false
	}
	to, err := beneath.ReadLink(fd, string(name))
	if err != nil {
		return false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(w.root, rel, to)
	}
	return !inside(w.root, filepath.Clean(to))
}

// look records what an entry is a hit for.
func (w *walker) look(d *dir, l *listing, name []byte, dtype byte, ino uint64) {
	kind := beneath.KindOf(uint32(dtype) << 12)
	l.note(name)
	text := "" // allocated once, and only if there is a hit
	add := func(class class, arg uint32) {
		if text == "" {
			text = string(name)
		}
		d.Hits = append(d.Hits, hit{Class: class, Kind: kind, Arg: arg, Ino: ino, Name: text})
	}
	if d.State != plain && (kind == File || kind == Link) && (w.during == nil || d.State == reviewed) {
		add(classInside, 0)
	}
	if _, ok := w.want[ino]; ok && kind == File {
		add(classAlias, 0)
	}
	if d.State == hidden {
		return // the payload meets none of these names
	}
	if dtype == unix.DT_FIFO && w.during == nil {
		add(classFIFO, 0)
	}
	if string(name) == ".git" {
		add(classGit, 0)
	}
	path := ""
	w.candidates(name, func(r *rule) {
		if path == "" {
			path = w.root + "/" + join(d.Rel, string(name))
		}
		if (r.class != classWay || kind == Link) && w.matches(r, path) {
			add(r.class, r.arg)
		}
	})
}

// enter adds a directory below d, with the state that d and what its name was
// a hit for give it. Of a directory that the payload will not see, nothing is
// searched but what a rule shows in it, and what has other names.
func (w *walker) enter(d *dir, rel string, ino uint64, hits []hit) {
	k := &dir{Rel: rel, State: d.State, Why: d.Why}
	if d.State != hidden {
		for _, h := range hits {
			switch {
			case h.Class != classProtect || w.protect[h.Arg].Home: // no tool executes a directory of such a name
			case !w.protect[h.Arg].Review && !inModules(rel):
				k.State, k.Why = protected, h.Arg
			case k.State == plain:
				k.State, k.Why = reviewed, h.Arg
			}
		}
	}
	if len(w.closed) > 0 || len(hits) > 0 {
		if file, ok := w.closes(w.root+"/"+rel, hits); ok && !w.shows(w.root+"/"+rel) && w.during.isClosed(rel, d.Dev, ino) {
			if w.files[file].Access != profiles.Hide {
				return
			}
			k.State, k.Why = hidden, file
		}
	}
	if len(w.fixed) > 0 {
		k.State, k.Why = w.fixes(w.root+"/"+rel, k.State, k.Why)
	}
	d.Kids = append(d.Kids, k)
}

// finishDirectory draws the conclusions from the whole list of d.
func (w *walker) finishDirectory(d *dir, l *listing) {
	if w.kept && d.store() {
		d.Kids = slices.DeleteFunc(d.Kids, func(k *dir) bool { return vcs.IsFan(k.name()) })
	}
	d.Git = l.git()
	named := d.name() == ".git"
	if !d.Git && !named {
		return
	}
	kept := d.Kids[:0]
	for _, k := range d.Kids {
		switch k.name() {
		case "hooks", "config", "config.worktree", "commondir": // those but the first are files, in a repository that works
			if k.State != protected && k.State != hidden {
				k.State, k.Why = protected, byGit
				if r, i := w.gitRule(".git/hooks"); r.Review && k.name() == "hooks" {
					k.State, k.Why = reviewed, uint32(i) // what is new in there is reported
				}
			}
		case "objects", "refs", "logs":
			// Nothing that a tool opens by its name stands in there. A
			// directory elsewhere that only looks like a repository is
			// searched like any other.
			if d.Git && vcs.InsideGit(d.Rel) {
				continue
			}
		}
		kept = append(kept, k)
	}
	d.Kids = kept
}

// store reports whether a directory looks like one that git keeps objects in.
func (d *dir) store() bool { return d.name() == "objects" && d.holds("pack") && d.holds("info") }

// holds reports whether a directory of that name lies in d.
func (d *dir) holds(name string) bool {
	return slices.ContainsFunc(d.Kids, func(k *dir) bool { return k.name() == name })
}

// KindOf is [beneath.KindOf].
func KindOf(mode uint32) Kind { return beneath.KindOf(mode) }
