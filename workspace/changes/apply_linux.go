package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/shell"
	store "github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Begin takes the lock under which an Upper is changed. The error is
// [store.ErrLocked] if another has it.
func (u *Upper) Begin() (err error) {
	u.lock, err = store.TryLock(u.dir, lockName)
	return err
}

// Apply makes the host's files what the overlay's are, as far as selected: all
// of it or, if anything fails, nothing. What an apply before it left half done
// is finished first. [Upper.Begin] must have been called.
func (u *Upper) Apply(sel Selection) (*Outcome, error) {
	var before []workspace.Finding
	if u.Interrupted() { // nobody was told of what that has brought
		var err error
		if before, err = u.committed(nil, time.Unix(0, u.Record.Started), u.finish); err != nil {
			return nil, err
		}
	}
	if !u.Record.Ended { // the run was killed
		if _, _, err := u.Settle(); err != nil {
			return nil, err
		}
	}
	a := &applying{upper: u}
	out, err := a.plan(&sel)
	if err == nil && len(a.journal.Steps) > 0 {
		out.Committed, err = u.committed(out, time.Now(), a.run)
	}
	if err != nil {
		return nil, err
	}
	out.Left = len(u.Record.Stood)
	out.Committed = append(before, out.Committed...)
	return out, nil
}

// committed runs what applies, and returns what it has brought since then of protected names
// into the repositories that it reaches into; nil is for all of them.
func (u *Upper) committed(out *Outcome, since time.Time, apply func() error) (found []workspace.Finding, err error) {
	var notes []*workspace.History
	defer func() {
		for _, n := range notes {
			n.Close()
		}
	}()
	for _, l := range u.Record.Layers {
		if out != nil && !slices.ContainsFunc(out.Applied, func(path string) bool {
			return (vcs.InsideGit(path) || vcs.InsideStore(path)) && contains(l.Path, path)
		}) {
			continue
		}
		n, err := workspace.NoteHistory(l.Path, u.Record.Protect, since, u.AskGit)
		if err != nil {
			return nil, err
		}
		notes = append(notes, n)
	}
	if err := apply(); err != nil {
		return nil, err
	}
	for _, n := range notes {
		found = append(found, n.Brought()...)
	}
	return found, nil
}

// plan says what is to be done.
func (a *applying) plan(sel *Selection) (*Outcome, error) {
	u := a.upper
	token := strconv.FormatUint(rand.Uint64(), 36)
	sets, err := u.Changes()
	if err != nil {
		return nil, err
	}
	out := &Outcome{}
	for i, set := range sets {
		p, withheld, err := u.plan(&a.journal, i, set, sel, token)
		if err != nil {
			return nil, err
		}
		out.Withheld = append(out.Withheld, withheld...)
		for j := range set.Changes {
			c := &set.Changes[j]
			if !p.take[j] {
				continue
			}
			out.Applied = append(out.Applied, filepath.Join(set.Root, c.Path))
			if c.plain != nil {
				if err := u.rewrite(i, c); err != nil {
					return nil, err
				}
			}
		}
		a.plans = append(a.plans, p)
	}
	if len(a.journal.Steps) > 0 {
		u.accept(sets, a.plans)
	}
	return out, nil
}

// rewrite leaves an index in the overlay as it is to be on the host. Its time stays: by that git knows which files may
// have been changed in the moment in which it was written.
func (u *Upper) rewrite(layer int, c *Change) error {
	name := path.Join(strconv.Itoa(layer), treeName, c.Path)
	mtime := time.Unix(0, c.After.Stamp.Mtime)
	if err := store.WriteFile(u.dir, name, c.plain, store.Fast); err != nil {
		return err
	}
	return errors.Join(u.dir.Chmod(name, fs.FileMode(c.After.Mode&0o777)), u.dir.Chtimes(name, mtime, mtime))
}

// accept takes the host's files as they are now for what the run saw: they have
// been compared, or the user wants to have it so.
func (u *Upper) accept(sets []*Set, plans []*applyPlan) {
	for i := range u.Record.Stood {
		s := &u.Record.Stood[i]
		if j, ok := plans[s.Layer].set.find(s.Path); ok && plans[s.Layer].take[j] {
			s.Entry, s.Touched = sets[s.Layer].Changes[j].Before, false
		}
	}
}

// finish brings an apply that was killed to its end: it takes back what was
// not decided yet, and completes what was.
func (u *Upper) finish() error { return u.recover((*applying).commit) }

// TakeBack takes an apply that was killed back, unless it had come to its end.
func (u *Upper) TakeBack() error {
	return u.recover(func(a *applying) error { return a.takeBack(nil) })
}

func (u *Upper) recover(decided func(*applying) error) error {
	text, err := store.ReadFile(u.dir, journalName, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	j, err := parseJournal(text, len(u.Record.Layers))
	if err != nil {
		return err
	}
	a := &applying{upper: u, journal: *j}
	if j.Phase == committing {
		return decided(a)
	}
	return a.forget()
}

// applying is an apply under way.
type applying struct {
	upper   *Upper
	plans   []*applyPlan // by layer
	journal journal
	owner   owner
	before  map[string]*Entry // what the record says, by [key]
}

// owner is who a new file belongs to on the host.
type owner struct{ uid, gid int }

func (a *applying) write(p phase) error {
	a.journal.Phase = p
	err := store.WriteFile(a.upper.dir, journalName, a.journal.append(nil), store.Durable)
	passed()
	return err
}

func (a *applying) run() error {
	if err := writeRecord(a.upper.dir, &a.upper.Record); err != nil {
		return err
	}
	if err := a.write(staging); err != nil {
		return errors.Join(err, a.forget())
	}
	for i := range a.journal.Steps {
		if s := &a.journal.Steps[i]; s.Op == put {
			if err := a.stage(a.plans[s.Layer], s); err != nil {
				return errors.Join(a.failed(s, err), a.forget())
			}
			passed()
		}
	}
	a.sync() // what will be put in place is on the disk before its name is
	if err := a.write(committing); err != nil {
		return errors.Join(err, a.takeBack(nil))
	}
	return a.commit()
}

func (a *applying) full(s *step) string {
	return filepath.Join(a.upper.Record.Layers[s.Layer].Path, s.Path)
}

// failed says where a step failed.
func (a *applying) failed(s *step, err error) error {
	path := a.full(s)
	if errors.Is(err, unix.EACCES) {
		return hint.Errorf("chmod u+rwx "+shell.Quote(filepath.Dir(path))+" lets you write there; then apply again", "apply %s: %w", path, err)
	}
	return fmt.Errorf("apply %s: %w", path, err)
}

func (a *applying) sync() {
	for _, l := range a.upper.before {
		if f, err := l.root.Open("."); err == nil {
			_ = unix.Syncfs(int(f.Fd()))
			f.Close()
		}
	}
}

// commit puts everything in its place. A step that has been done is passed
// over; where the host turns out to have changed, all is taken back.
func (a *applying) commit() error {
	for i := range a.journal.Steps {
		s := &a.journal.Steps[i]
		if err := a.do(s); err != nil {
			return a.takeBack(a.failed(s, err))
		}
		passed()
	}
	a.sync()
	if err := a.write(cleaning); err != nil {
		return a.takeBack(err)
	}
	return a.forget()
}

// takeBack undoes what commit did, the last first, because of an error or
// because it was asked for.
func (a *applying) takeBack(because error) error {
	errs := []error{because}
	stuck := false
	for i := len(a.journal.Steps) - 1; i >= 0; i-- {
		s := &a.journal.Steps[i]
		if err := a.undo(s); err != nil {
			errs = append(errs, fmt.Errorf("undo %s: %w", a.full(s), err))
			stuck = stuck || !isLost(err)
		}
		passed()
	}
	if stuck { // what stood has a name of the apply's own still, and must not go with those
		return errors.Join(errs...)
	}
	// From here on nothing is left to be completed. Where that cannot be written
	// down, it is no matter unless the journal stays.
	noted := a.write(staging)
	if err := a.forget(); err != nil {
		errs = append(errs, noted, err)
	}
	return errors.Join(errs...)
}

// forget removes what has a name of the apply's own, brings the record up to date, and removes the journal.
func (a *applying) forget() error {
	for i := range a.journal.Steps {
		s := &a.journal.Steps[i]
		if s.Op == mode || a.lost(s) {
			continue
		}
		if err := store.RemoveAll(a.upper.before[s.Layer].root, s.Temp); err != nil {
			return fmt.Errorf("remove %s: %w", s.Temp, err)
		}
		passed()
	}
	for i := len(a.journal.Steps) - 1; i >= 0 && a.journal.Phase == cleaning; i-- {
		if s := &a.journal.Steps[i]; s.closes() {
			if err := a.chmod(s, s.Modes[1]); err != nil && !isLost(err) {
				return fmt.Errorf("close %s: %w", a.full(s), err)
			}
			passed()
		}
	}
	if err := a.upper.note(a.journal.Steps); err != nil {
		return err
	}
	passed()
	if err := a.upper.dir.Remove(journalName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	passed()
	return nil
}

// note takes out of the record what is no difference any more. Of what was moved away and back, and of the
// directories around what was moved, it notes the new times, where nothing else about them has changed.
func (u *Upper) note(steps []step) error {
	moved := map[string]bool{}
	for _, s := range steps {
		moved[key(s.Layer, s.Path)], moved[key(s.Layer, path.Dir(s.Path))] = true, true
	}
	for _, s := range u.Record.Stood {
		if s.Entry == nil || !moved[key(s.Layer, s.Path)] {
			continue
		}
		now, err := u.before[s.Layer].entry(s.Path)
		if err == nil && now.alike(s.Entry) && (now.Kind == workspace.Dir || now.Stamp.Mtime == s.Entry.Stamp.Mtime) {
			s.Entry.Stamp = now.Stamp
		}
	}
	sets, err := u.Changes()
	if err != nil {
		return err
	}
	u.Record.Stood = slices.DeleteFunc(u.Record.Stood, func(s Stood) bool {
		_, left := sets[s.Layer].find(s.Path)
		return !left
	})
	return writeRecord(u.dir, &u.Record)
}

// alike reports whether two entries are of one file, as far as its times do not tell.
func (e *Entry) alike(f *Entry) bool {
	return e.Kind == f.Kind && e.Mode == f.Mode && e.Size == f.Size && e.Stamp.Ino == f.Stamp.Ino
}

// lost reports whether the directory of a step is none any more: the host has taken what was
// made in it along, and put a file or a link there perhaps. What is left to be done in it can
// never be, and must not keep all else from it.
func (a *applying) lost(s *step) bool {
	dir, err := a.upper.parent(s.Layer, s.Path)
	if err != nil {
		return isLost(err)
	}
	dir.Close()
	return false
}

// isLost also takes a link on the way for nothing: none is followed.
func isLost(err error) bool { return isAbsent(err) || errors.Is(err, unix.ELOOP) }

// parent opens the directory that holds a path, through no link and on no other
// file system: whatever the host has put there since, nothing is written
// outside of the layer.
func (u *Upper) parent(layer int, name string) (*os.File, error) {
	root, err := u.before[layer].root.Open(".")
	if err != nil {
		return nil, err
	}
	dir := path.Dir(name)
	if dir == "." {
		return root, nil
	}
	defer root.Close()
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(int(root.Fd()), dir, &how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(u.Record.Layers[layer].Path, dir), Err: err}
	}
	return os.NewFile(uintptr(fd), dir), nil
}

// do carries a step out, if it has not been.
func (a *applying) do(s *step) error {
	if s.Op == mode {
		if s.closes() {
			return nil // see [applying.forget]
		}
		return a.chmod(s, s.Modes[1])
	}
	dir, err := a.upper.parent(s.Layer, s.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, name, temp := int(dir.Fd()), base(s.Path), base(s.Temp)
	switch s.Op {
	case put:
		if inode(fd, name) == s.New {
			break // done before
		}
		if inode(fd, temp) != s.New {
			return errChanged // somebody else can write there too
		}
		flags := uint(unix.RENAME_EXCHANGE)
		if s.Old == 0 {
			flags = unix.RENAME_NOREPLACE
		}
		if err := unix.Renameat2(fd, temp, fd, name, flags); err != nil {
			return os.NewSyscallError("renameat2", err)
		}
	case remove:
		if inode(fd, temp) != 0 {
			break
		}
		if err := unix.Renameat2(fd, name, fd, temp, unix.RENAME_NOREPLACE); err != nil {
			return os.NewSyscallError("renameat2", err)
		}
	}
	if s.Old != 0 && !a.stood(s) {
		return errChanged
	}
	return nil
}

var errChanged = errors.New("the host changed it during apply")

// undo takes a step back, if it was done.
func (a *applying) undo(s *step) error {
	if s.Op == mode {
		return a.chmod(s, s.Modes[0])
	}
	dir, err := a.upper.parent(s.Layer, s.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, name, temp := int(dir.Fd()), base(s.Path), base(s.Temp)
	switch {
	case s.Op == remove && inode(fd, temp) != 0:
		err = unix.Renameat2(fd, temp, fd, name, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			// The host has put something else there. What stood before is
			// somebody's work: it is left, under a name that is not ours.
			err = unix.Renameat2(fd, temp, fd, name+".pccrun-before", unix.RENAME_NOREPLACE)
		}
	case s.Op == put && s.New != 0 && inode(fd, name) == s.New && s.Old != 0:
		err = unix.Renameat2(fd, temp, fd, name, unix.RENAME_EXCHANGE)
	case s.Op == put && s.New != 0 && inode(fd, name) == s.New:
		err = unix.Renameat2(fd, name, fd, temp, unix.RENAME_NOREPLACE)
	}
	return os.NewSyscallError("renameat2", err)
}

// inode returns the inode of a name, a link's own; 0 for none.
func inode(dir int, name string) uint64 {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Ino
}

// chmod changes the mode of a step's directory, and of nothing else.
func (a *applying) chmod(s *step, mode uint32) error {
	dir, err := a.upper.parent(s.Layer, s.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), base(s.Path), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	return os.NewSyscallError("chmod", unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode))
}

// stood reports whether what a step moved out of its place is what the record
// says, down to the last file of a directory: between the look and the rename
// somebody may have written.
func (a *applying) stood(s *step) bool {
	if a.before == nil {
		a.before = map[string]*Entry{}
		for _, r := range a.upper.Record.Stood {
			a.before[key(r.Layer, r.Path)] = r.Entry
		}
	}
	l := a.upper.before[s.Layer]
	var check func(temp, name string) bool
	check = func(temp, name string) bool {
		want := a.before[key(s.Layer, name)]
		now, err := l.entry(temp)
		if err != nil || want == nil || !now.alike(want) || now.Stamp.Mtime != want.Stamp.Mtime {
			return false
		}
		if now.Kind != workspace.Dir {
			return true
		}
		names, _, err := l.names(temp)
		if err != nil {
			return false
		}
		for _, n := range names {
			if !check(path.Join(temp, n), path.Join(name, n)) {
				return false
			}
		}
		return true
	}
	return check(s.Temp, s.Path)
}
