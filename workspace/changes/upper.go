package changes

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"

	store "github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace"
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

	protection *Protection // by the rules of Record
}

// ReadRecord reads the record of a session or of a snapshot.
func ReadRecord(dir *os.Root) (*Record, error) {
	text, err := store.ReadFile(dir, path.Join(UpperName, recordName), maxRecord)
	if err != nil {
		return nil, err
	}
	return parseRecord(text)
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
	r, err := ReadRecord(session)
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
func Stands(session *os.Root) bool { return has(session, path.Join(UpperName, recordName)) }

// Interrupted reports whether an apply of what a session keeps was killed before
// it was through.
func Interrupted(session *os.Root) bool { return has(session, path.Join(UpperName, journalName)) }

// Interrupted reports whether an apply was killed before it was through.
func (u *Upper) Interrupted() bool { return has(u.dir, journalName) }

func has(dir *os.Root, name string) bool {
	_, err := dir.Lstat(name)
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
		u.protect(i, s)
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
	switch {
	case was.Touched && now == nil:
		return "removed on the host during the run"
	case was.Touched:
		return "changed on the host during the run"
	case was.same(now, c.After):
		return ""
	case was.Entry == nil:
		return "made on the host since the run"
	case was.Index != 0 && now != nil && now.Kind == workspace.File && u.index(was.Layer, c.Path) == was.Index:
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
		return then.Mode == now.Mode // names that come and go in it are changes of their own
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
	for _, s := range sets {
		lost += len(s.Lost)
	}
	n, err = u.Keep(sets)
	return n, lost, err
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
