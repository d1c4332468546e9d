package changes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	store "github.com/pccrun/pccrun/state"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// The names in a session's directory.
const (
	UpperName   = "upper"  // holds all of the following
	recordName  = "record" // [Record]
	journalName = "journal"
	lockName    = "lock"
	treeName    = "tree" // in the directory of a layer, beside the kernel's work
)

const maxRecord = 1 << 30

// An Upper is what a run left of its overlays: for each a tree of what changed,
// and a [Record]. It lies in the session's directory, which the command cannot
// reach; what is in the trees the command chose, names and links and all.
type Upper struct {
	Record Record
	AskGit workspace.AskGit // of what an apply brings into repositories; nil if nobody is to
	dir    *os.Root
	before []*layer
	after  []*layer
	lock   *store.Lock // while it is changed: [Upper.Begin]

	byName map[string][]int // the rules of Record.Protect by the name that a path must have
	byGlob []globRule       // those whose name is a pattern
}

// ReadRecord reads the record of a session or of a snapshot.
func ReadRecord(dir *os.Root) (*Record, error) {
	text, err := store.ReadFile(dir, path.Join(UpperName, recordName), maxRecord)
	if err != nil {
		return nil, err
	}
	return parseRecord(text)
}

// An UpperError says that a session's directory cannot hold what an overlay
// changes.
type UpperError struct {
	Dir string
	Err error
}

func (e *UpperError) Error() string {
	return fmt.Sprintf("overlay: %s: the file system keeps no user attributes: %v", e.Dir, e.Err)
}

// Unwrap returns the cause.
func (e *UpperError) Unwrap() error { return e.Err }

// Hint says what mends it.
func (e *UpperError) Hint() string {
	return "set XDG_STATE_HOME to a directory on ext4, xfs, btrfs or a newer tmpfs"
}

func writeRecord(upper *os.Root, r *Record) error {
	return store.WriteFile(upper, recordName, r.append(nil), store.Fast)
}

// OpenUpper opens what a run left of its overlays; the error is
// [fs.ErrNotExist] if it had none. With open, the directories of the host are
// opened by that, given the number of the layer; else by their paths, and each
// must be the one that the run saw.
func OpenUpper(session *os.Root, open func(i int) (*os.Root, error)) (_ *Upper, err error) {
	dir, err := session.OpenRoot(UpperName)
	if err != nil {
		return nil, err
	}
	u := &Upper{dir: dir}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	text, err := store.ReadFile(dir, recordName, maxRecord)
	if err != nil {
		return nil, err
	}
	r, err := parseRecord(text)
	if err != nil {
		return nil, err
	}
	u.Record = *r
	for i, l := range r.Layers {
		tree := path.Join(strconv.Itoa(i), treeName)
		// The command may have closed it, as any directory in it.
		if info, err := dir.Lstat(tree); err == nil && info.Mode()&0o500 != 0o500 {
			if err := dir.Chmod(tree, 0o700); err != nil {
				return nil, err
			}
		}
		after, err := dir.OpenRoot(tree)
		if err != nil {
			return nil, err
		}
		u.after = append(u.after, &layer{root: after, partial: true})
		before, err := l.open(open, i)
		if err != nil {
			return nil, err
		}
		u.before = append(u.before, &layer{root: before})
	}
	return u, nil
}

func (l Layer) open(open func(int) (*os.Root, error), i int) (*os.Root, error) {
	if open != nil {
		return open(i)
	}
	if real, err := filepath.EvalSymlinks(l.Path); err != nil || real != l.Path {
		return nil, fmt.Errorf("%s: %w", l.Path, errReplaced)
	}
	root, err := os.OpenRoot(l.Path)
	if err != nil {
		return nil, err
	}
	if info, err := root.Stat("."); err != nil || !l.is(info) {
		root.Close()
		return nil, fmt.Errorf("%s: %w", l.Path, errReplaced)
	}
	return root, nil
}

var errReplaced = errors.New("it is not the directory that the run saw")

// Stands reports whether a session keeps something of its overlays.
func Stands(session *os.Root) bool {
	_, err := session.Lstat(path.Join(UpperName, recordName))
	return err == nil
}

// Interrupted reports whether an apply of what a session keeps was killed before
// it was through.
func Interrupted(session *os.Root) bool {
	_, err := session.Lstat(path.Join(UpperName, journalName))
	return err == nil
}

// Close closes what is open.
func (u *Upper) Close() error {
	var errs []error
	for _, l := range u.after {
		errs = append(errs, l.root.Close())
	}
	for _, l := range u.before {
		errs = append(errs, l.root.Close())
	}
	if u.lock != nil {
		errs = append(errs, u.lock.Release())
	}
	return errors.Join(append(errs, u.dir.Close())...)
}

// Open opens a changed file as it is now in the overlay, or as it is on the
// host.
func (u *Upper) Open(layer int, name string, after bool) (*os.File, error) {
	if after {
		return u.after[layer].open(name)
	}
	return u.before[layer].open(name)
}

// Changes says what the run changed and the host does not have yet, a change
// set for each layer. Its cost is that of what changed.
func (u *Upper) Changes() ([]*Set, error) {
	stood := map[string]*Stood{}
	for i := range u.Record.Stood {
		s := &u.Record.Stood[i]
		stood[key(s.Layer, s.Path)] = s
	}
	var sets []*Set
	for i, l := range u.Record.Layers {
		s := &Set{Root: l.Path}
		d := differ{before: u.before[i], after: u.after[i], set: s}
		if err := d.root(); err != nil {
			return nil, err
		}
		var kept []Change
		var lost map[string]bool
		if u.Record.Ended {
			lost = lostDirs(s, func(path string) bool { return stood[key(i, path)] != nil })
		}
		for _, c := range s.Changes {
			was := stood[key(i, c.Path)]
			if u.Record.Ended && was == nil && !lost[c.Path] {
				continue // the host has moved on where the run left all as it was
			}
			if c.Conflict = u.conflict(&c, was); lost[c.Path] {
				c.Conflict, c.inWay = sinceRun(c.Before), c.Before != nil
			}
			kept = append(kept, c)
		}
		s.Changes = kept
		u.protect(s)
		sets = append(sets, s)
	}
	return sets, nil
}

// lostDirs returns the directories that are none on the host any more, and in which the
// run changed something: without them nothing can be put there.
func lostDirs(s *Set, changed func(path string) bool) map[string]bool {
	list := map[string]bool{}
	for _, c := range s.Changes {
		if c.After == nil || !changed(c.Path) {
			continue
		}
		for dir := path.Dir(c.Path); dir != "." && !list[dir]; dir = path.Dir(dir) {
			list[dir] = true
		}
	}
	for _, c := range s.Changes {
		if list[c.Path] && (changed(c.Path) || c.Before != nil && c.Before.Kind == workspace.Dir) {
			delete(list, c.Path)
		}
	}
	return list
}

// sinceRun is the conflict of what stood when the run ended, and is another by now, or none.
func sinceRun(now *Entry) string {
	if now == nil {
		return "removed on the host since the run"
	}
	return "changed on the host since the run"
}

func key(layer int, path string) string { return strconv.Itoa(layer) + " " + path }

// conflict says how what stands on the host now is not what the run saw.
func (u *Upper) conflict(c *Change, was *Stood) string {
	now := c.Before
	if was == nil || !u.Record.Ended {
		return u.touched(c, was)
	}
	then := was.Entry
	switch {
	case was.Touched && now == nil:
		return "removed on the host during the run"
	case was.Touched:
		return "changed on the host during the run"
	case then == nil && now == nil:
		return ""
	case then == nil:
		return "made on the host since the run"
	case now == nil:
		return sinceRun(now)
	case bothDirs(then, now) && c.After != nil && c.After.Kind == workspace.Dir:
		if then.Mode == now.Mode {
			return "" // names that come and go in it are changes of their own
		}
	case then.Kind == now.Kind && then.Mode == now.Mode && then.Size == now.Size && then.Stamp.same(now.Stamp):
		return ""
	case was.Index != 0 && now.Kind == workspace.File && u.index(was.Layer, c.Path) == was.Index:
		return "" // git has looked at its files, and noted their times
	}
	return sinceRun(now)
}

// index returns the digest of the host's file, if it is an index of git.
func (u *Upper) index(layer int, name string) uint64 {
	if base(name) != "index" {
		return 0
	}
	b, err := read(u.before[layer], name, vcs.MaxGitIndex)
	if err != nil {
		return 0
	}
	return vcs.IndexDigest(b)
}

func bothDirs(a, b *Entry) bool { return a.Kind == workspace.Dir && b.Kind == workspace.Dir }

// touched says whether the host changed a file since the run began, which its
// ctime tells; carried is what stood when the snapshot was made that the run
// began with. It errs on one side: what the host changed before the command
// did counts too.
func (u *Upper) touched(c *Change, carried *Stood) string {
	now := c.Before
	switch {
	case carried != nil && (carried.Touched || !carried.same(now, c.After)):
		return "changed on the host since the snapshot"
	case carried != nil:
		return ""
	case now == nil:
	case now.Kind == workspace.Dir && c.After != nil && c.After.Kind == workspace.Dir:
	case now.Stamp.Ctime >= u.Record.Started:
		return "changed on the host during the run"
	}
	return ""
}

// same reports whether what stood still stands.
func (s *Stood) same(now, after *Entry) bool {
	then := s.Entry
	if then == nil || now == nil {
		return then == nil && now == nil
	}
	if bothDirs(then, now) && after != nil && after.Kind == workspace.Dir {
		return then.Mode == now.Mode
	}
	return then.Kind == now.Kind && then.Mode == now.Mode && then.Size == now.Size && then.Stamp.same(now.Stamp)
}

// Settle notes, at the end of a run, what stands on the host under each change,
// and returns how many there are, beside what cannot be kept. The record then
// tells what the host changes later.
func (u *Upper) Settle() (n, lost int, err error) {
	if u.Record.Ended { // a download has noted it: [Upper.Keep]
		return len(u.Record.Stood), 0, nil
	}
	sets, err := u.Changes()
	if err != nil {
		return 0, 0, err
	}
	r := &u.Record
	r.Stood, r.Ended = nil, true
	for i, s := range sets {
		lost += len(s.Lost)
		for _, c := range s.Changes {
			r.Stood = append(r.Stood, Stood{Layer: i, Path: c.Path, Entry: c.Before, Touched: c.Conflict != "", Index: u.index(i, c.Path)})
		}
	}
	if len(r.Stood) == 0 {
		return 0, lost, nil
	}
	return len(r.Stood), lost, writeRecord(u.dir, r)
}

// protect marks what a host tool would execute.
func (u *Upper) protect(s *Set) {
	drop := make([]bool, len(s.Changes))
	layer := slices.IndexFunc(u.Record.Layers, func(l Layer) bool { return l.Path == s.Root })
	known := map[string]bool{} // thousands of changes may lie in one directory
	bare := func(dir string) bool {
		is, asked := known[dir]
		if !asked {
			has := func(name string) bool { return u.has(layer, path.Join(dir, name)) }
			is = has("HEAD") && (has("objects") && has("refs") || has("commondir"))
			known[dir] = is
		}
		return is
	}
	for i := range s.Changes {
		c := &s.Changes[i]
		c.Protect, c.Review = u.protected(filepath.Join(s.Root, c.Path))
		if c.Protect == "" && base(c.Path) == ".git" && c.After != nil && c.After.Kind != workspace.Dir {
			c.Protect = ".git: it points to another repository"
		}
		if c.Protect == "" && c.After != nil && c.After.Kind == workspace.Link {
			c.Protect = u.way(filepath.Join(s.Root, c.Path))
		}
		if c.Protect == "" {
			c.Protect = through(s.Root, c)
		}
		if c.Protect == "" {
			c.Protect, drop[i] = u.inGit(s, layer, c, bare)
		}
	}
	for i := range s.Changes {
		if c := &s.Changes[i]; c.Protect == "" {
			c.Protect = s.bare(u, c)
		}
	}
	kept := s.Changes[:0]
	for i := range s.Changes {
		if !drop[i] {
			kept = append(kept, s.Changes[i])
		}
	}
	s.Changes = kept
}

// inGit asks the table of git directories of a change in one: why it is held back, "" for one that is not, and
// whether it is none that anybody needs, since git computes that again.
func (u *Upper) inGit(s *Set, layer int, c *Change, bare func(dir string) bool) (why string, drop bool) {
	dir, rel, worktree := u.gitDirOf(s.Root, layer, c.Path, bare)
	if first, _, named := strings.Cut(rel, "/"); rel == "" || c.After == nil || named && (first == "worktrees" || first == "modules") && c.After.Kind == workspace.Dir {
		return "", false // repositories may lie there
	}
	e := gitdir.Judge(rel, modeOf(c.After.Kind), worktree)
	switch e.Verdict {
	case gitdir.Config, gitdir.Nest: // the rules protect that, or it is asked once more
		return "", false
	case gitdir.Delete:
		return "", true
	case gitdir.Keep, gitdir.List:
		c.Review = c.Review || e.Verdict == gitdir.List
		if e.Sound == nil || c.After.Kind != workspace.File {
			return "", false
		}
		b, err := read(u.after[layer], c.Path, e.Limit)
		if f, known := u.hash(layer, dir); err != nil || !known || !e.Sound(b, f) {
			return e.Bad, false
		}
		return "", false
	case gitdir.Foreign:
		if !vcs.InsideGit(filepath.Join(s.Root, c.Path)) && !gitdir.Own(rel) {
			return "", false // it makes something else a repository, and git does not read it
		}
		if c.After.Kind == workspace.Link && gitdir.IsLinkedRef(rel, c.After.Target) || c.After.Kind != workspace.Link && c.Before != nil && c.Before.Kind == c.After.Kind {
			return "", false // as git writes references, or others what stood
		}
	}
	return e.Why, false
}

func modeOf(kind workspace.Kind) fs.FileMode {
	switch kind {
	case workspace.File:
		return 0
	case workspace.Dir:
		return fs.ModeDir
	case workspace.Link:
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// gitDirOf cuts the path of a change behind the git directory that it lies in, "" for none.
func (u *Upper) gitDirOf(root string, layer int, name string, bare func(dir string) bool) (dir, rel string, worktree bool) {
	full := strings.TrimPrefix(root, "/") + "/" + name
	if _, rest, in := strings.Cut("/"+full+"/", "/.git/"); in {
		rel = strings.TrimSuffix(rest, "/")
	} else {
		for at := path.Dir(name); at != "." && at != "/"; at = path.Dir(at) {
			if bare(at) {
				rel = name[len(at)+1:]
				break
			}
		}
	}
	at := func() string { return strings.Trim(strings.TrimSuffix(name, rel), "/") }
	for rel != "" {
		first, rest, _ := strings.Cut(rel, "/")
		switch {
		case first == "worktrees" && !worktree && strings.Contains(rest, "/"):
			_, rel, _ = strings.Cut(rest, "/")
			worktree = true
		case first == "modules" && rest != "":
			inner := "" // of directories without a repository the names are nobody's
			for i, c := range rest {
				if c == '/' && u.has(layer, at()+"/modules/"+rest[:i]+"/HEAD") {
					inner = rest[i+1:]
					break
				}
			}
			if inner == "" {
				return at(), rel, false
			}
			rel, worktree = inner, false
		default:
			return at(), rel, worktree
		}
	}
	return "", "", false
}

// hash returns by what the objects of a repository are named, and whether that is sure. By SHA-256 is understood
// only where the host's own configuration says so.
func (u *Upper) hash(layer int, dir string) (f vcs.Format, known bool) {
	common := dir
	if i := strings.LastIndex(dir, "/worktrees/"); i >= 0 && u.has(layer, path.Join(dir, "commondir")) {
		common = dir[:i]
	}
	if b, err := read(u.before[layer], path.Join(common, "config"), vcs.MaxConfig); err == nil {
		if f, known = vcs.HashOf(b); !known {
			return f, false
		}
	}
	// The run's own configuration is held back, and may be applied afterwards.
	if b, err := read(u.after[layer], path.Join(common, "config"), vcs.MaxConfig); err == nil {
		if own, known := vcs.HashOf(b); !known || own != f {
			return f, false
		}
	}
	return f, true
}

// read reads a file of a layer that is not too large.
func read(l *layer, name string, most int64) ([]byte, error) {
	f, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = workspace.ErrTooMuch
	}
	return b, err
}

// A globRule is a rule of which one name begins and ends with texts.
type globRule struct {
	rule       int
	head, tail string
}

// protected says which rule of the run's policy protects a path of the host.
func (u *Upper) protected(path string) (deny string, review bool) {
	if u.byName == nil { // there are a hundred rules, and there may be as many thousand paths
		u.byName = map[string][]int{}
		for i := range u.Record.Protect {
			name, plain := u.Record.Protect[i].Last()
			if plain {
				u.byName[name] = append(u.byName[name], i)
				continue
			}
			end := strings.LastIndexAny(name, "*?[]") // -1: all of nothing
			u.byGlob = append(u.byGlob, globRule{i, name[:max(0, strings.IndexAny(name, "*?[]"))], name[end+1:]})
		}
	}
	var rules []int
	for name := range strings.SplitSeq(path, "/") {
		rules = append(rules, u.byName[name]...)
		for _, g := range u.byGlob {
			if strings.HasPrefix(name, g.head) && strings.HasSuffix(name, g.tail) {
				rules = append(rules, g.rule)
			}
		}
	}
	slices.Sort(rules)
	for _, i := range slices.Compact(rules) {
		r := &u.Record.Protect[i]
		switch {
		case !u.matches(r, path):
		case r.Review:
			review = true
		default:
			return r.Pattern, false
		}
	}
	return "", review
}

// matches reports whether a rule holds for a path: in the workspace, and in an
// overlay of any other directory as if that were one.
func (u *Upper) matches(r *profiles.ProtectRule, path string) bool {
	return r.Matches(u.Record.Workspace, path) ||
		slices.ContainsFunc(u.Record.Layers, func(l Layer) bool { return l.Path != u.Record.Workspace && r.Matches(l.Path, path) })
}

// way says to what a link at a path leads the way: where it leads there may be
// anything, now or later.
func (u *Upper) way(path string) string {
	roots := []string{u.Record.Workspace}
	for _, l := range u.Record.Layers {
		roots = append(roots, l.Path)
	}
	for i := range u.Record.Protect {
		for _, root := range roots {
			for _, d := range workspace.Ways(root, &u.Record.Protect[i]) {
				if d.Matches(root, path) {
					return d.Whole
				}
			}
		}
	}
	return ""
}

// bare says whether a change is part of a repository without a .git around it:
// a directory that has HEAD, and objects and refs or a commondir. There git
// reads configuration and hooks. What lies in a .git has rules of its own.
func (s *Set) bare(u *Upper, c *Change) string {
	if c.After == nil {
		return ""
	}
	i := slices.IndexFunc(u.Record.Layers, func(l Layer) bool { return l.Path == s.Root })
	for dir, name := path.Split(c.Path); name != "" && name != "."; dir, name = path.Split(dir) {
		dir = strings.TrimSuffix(dir, "/")
		before := func(name string) bool {
			_, err := u.before[i].root.Lstat(path.Join(dir, name))
			return err == nil
		}
		switch strings.ToLower(name) {
		case "head", "config", "config.worktree", "commondir", "hooks":
		case "objects", "refs":
			// What goes on in a repository is no news; what makes one is: the
			// rest of it may have come with an earlier run.
			store := before("objects") && before("refs")
			if before("HEAD") && (store || before("commondir")) || store && !u.has(i, path.Join(dir, "HEAD")) {
				continue
			}
		default:
			if c.After.Kind != workspace.Link { // which git writes through
				continue
			}
		}
		if strings.Contains(filepath.Join(s.Root, dir)+"/", "/.git/") && !vcs.InsideStore(dir) {
			continue
		}
		has := func(name string) bool { return u.has(i, path.Join(dir, name)) }
		store := has("objects") && has("refs")
		if has("HEAD") && (store || has("commondir")) || store && (has("config") || has("hooks")) { // worktrees share one without a HEAD
			return "a repository: git executes what its configuration names"
		}
	}
	return ""
}

// has reports whether a path is there in what the command saw.
func (u *Upper) has(i int, name string) bool {
	if _, err := u.after[i].root.Lstat(name); err == nil {
		return !u.after[i].whiteout(name)
	}
	_, err := u.before[i].root.Lstat(name)
	return err == nil
}

// HandUpper gives what a session keeps of its overlays to another user.
func HandUpper(session *os.Root, uid, gid int) error {
	return fs.WalkDir(session.FS(), UpperName, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return session.Lchown(path, uid, gid)
	})
}
