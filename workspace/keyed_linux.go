package workspace

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A Copied is a [Keyed] whose copy the launcher can reach, when the run is dead.
type Copied struct {
	Keyed
	Dir  int    // holds the copy under Name, and is closed by who sorts it
	Name string // in there

	// At opens the directory that an absolute path lies in; nil for a launcher that
	// may open it by its path.
	At func(path string) (fd int, err error)

	// Recall calls change with what earlier runs remembered, and remembers what that
	// returns.
	Recall func(change func(old []byte) ([]byte, error)) error
}

// ReadKeyed reads the file at a path, nil if nothing stands there. Real is where it
// lies, or would. A link to nothing is an error: what is made at its end would not be
// looked at.
func ReadKeyed(path string) (real string, b []byte, err error) {
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != unix.ENOENT {
			return "", nil, err
		}
		dir, name := filepath.Split(path)
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return path, nil, nil
		}
		return filepath.Join(dir, name), nil, nil
	}
	dir, name, err := parentOf(real)
	if err != nil {
		return "", nil, err
	}
	defer unix.Close(dir)
	fd, err := beneath.Open(dir, name, unix.O_RDONLY)
	if err != nil {
		return "", nil, err
	}
	b, err = beneath.ReadFile(fd, MaxKeyed)
	return real, b, err
}

// settleKeys sorts what the command has made of a copy. Nothing of the run lives
// any more.
func (g *Guard) settleKeys(k *Copied) error {
	fd, err := beneath.Open(k.Dir, k.Name, unix.O_RDONLY)
	if gone(err) {
		return nil // whoever removes his copy has changed nothing
	}
	var now []byte
	if err == nil {
		now, err = beneath.ReadFile(fd, MaxKeyed)
	}
	var changes keyChanges
	if err == nil && string(now) == string(k.Given) {
		return nil
	}
	if err == nil {
		changes, err = k.sort(now)
	}
	if err != nil {
		found, err := g.stash.take(k.Dir, k.Name, Finding{Kind: Stashed, Path: k.Path, Why: NotCarried + err.Error()})
		if err == nil {
			g.told(found)
		}
		return err
	}
	if err := k.remember(changes.inside); err != nil {
		changes.back = append(changes.back, changes.inside...)
	}
	if len(changes.keep) > 0 {
		left, err := k.change(changes.keep, g.stash)
		if err != nil { // the command has its answers, and somebody should hear why the host has not
			left = changes.keep
		} else if k.Host == nil {
			g.carried = append(g.carried, k.Path)
		}
		changes.back = append(changes.back, left...)
	}
	if len(changes.back) == 0 {
		return nil
	}
	before, after := extract(changes.back, func(c *keyChange) *node { return c.before }), extract(changes.back, func(c *keyChange) *node { return c.after })
	g.told(g.stash.keys(Finding{Kind: Keys, Path: k.Path, Why: tell(changes.back), Mode: unix.S_IFREG | 0o600}, after, before))
	return nil
}

// remember keeps what later runs in the same workspace will find.
func (k *Copied) remember(changes []keyChange) error {
	if len(changes) == 0 {
		return nil
	}
	return k.Recall(func(old []byte) ([]byte, error) {
		tree, err := parseTree(old)
		if err != nil {
			tree = newObject() // nobody but us writes it: it is worth nothing damaged
		}
		merge(tree, changes)
		b := tree.bytes()
		if len(b) > maxRemembered {
			return nil, fmt.Errorf("%d bytes: %w", len(b), ErrTooMuch)
		}
		return b, nil
	})
}

// change does changes to the host's file as it is now. It returns those that have
// nowhere to go any more.
func (k *Copied) change(changes []keyChange, stash *Stash) (left []keyChange, err error) {
	at := func(path string) (int, error) {
		if k.At != nil {
			return k.At(path)
		}
		fd, _, err := parentOf(path)
		if err == unix.ENOENT && k.Host == nil { // its directory was not there either
			fd, err = makePath(filepath.Dir(path))
		}
		return fd, err
	}
	beside, err := at(k.Path)
	if err != nil && filepath.Base(k.Path) == filepath.Base(k.Real) { // a link leads to the directory
		beside, err = at(k.Real)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(beside)
	dir, err := at(k.Real)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	root, err := stash.Open()
	if err != nil {
		return nil, err
	}
	stage, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer stage.Close()
	err = edit(editing{beside, filepath.Base(k.Path) + ".lock", dir, filepath.Base(k.Real), int(stage.Fd())}, func(now []byte) ([]byte, error) {
		if now == nil && k.Host != nil {
			return nil, unix.ENOENT // the host has removed it
		}
		tree, err := k.base(now)
		if err != nil {
			return nil, err
		}
		left = merge(tree, changes)
		b := tree.bytes()
		if len(b) > maxGiven && len(b) > len(now) {
			return nil, fmt.Errorf("%d bytes: %w", len(b), ErrTooMuch)
		}
		return b, nil
	})
	return left, err
}

// An editing is a file that somebody else may change at the same moment, who takes
// the same lock: a directory beside it (proper-lockfile of npm, which Claude Code
// uses).
type editing struct {
	beside int    // directory of the lock
	lock   string // its name
	dir    int    // directory of the file
	name   string
	stage  int // where a new one is written, if it can be moved from there
}

// A lock is touched every five seconds by who holds it, and nobody's after ten.
const lockStale = 10 * time.Second

// lockWait is longer, so that one of a program that was killed is met; tests have
// less patience.
var lockWait = lockStale + 2*time.Second

var errLocked = errors.New("it is locked by a program that goes on")

// edit puts a new file in the place of one. Whoever reads it sees the one or the
// other.
func edit(e editing, change func(now []byte) ([]byte, error)) error {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Mkdirat(e.beside, e.lock, 0o755)
		if err == nil {
			break
		}
		if err != unix.EEXIST {
			return err
		}
		var st unix.Stat_t
		if beneath.Stat(e.beside, e.lock, &st) == nil && time.Since(time.Unix(0, st.Mtim.Nano())) > lockStale && unix.Unlinkat(e.beside, e.lock, unix.AT_REMOVEDIR) == nil {
			continue // what is no empty directory is nobody's lock that we know of, and stays
		}
		if time.Since(began) > lockWait {
			return errLocked
		}
	}
	defer unix.Unlinkat(e.beside, e.lock, unix.AT_REMOVEDIR)
	var st unix.Stat_t
	var now []byte
	fd, err := beneath.Open(e.dir, e.name, unix.O_RDONLY)
	switch {
	case gone(err):
		st.Mode = 0o600
	case err != nil:
		return err
	default:
		if err := unix.Fstat(fd, &st); err != nil {
			unix.Close(fd)
			return err
		}
		if now, err = beneath.ReadFile(fd, MaxKeyed); err != nil {
			return err
		}
		if now == nil {
			now = []byte{}
		}
	}
	b, err := change(now)
	if err != nil || string(b) == string(now) {
		return err
	}
	if len(b) > MaxKeyed {
		return ErrTooMuch
	}
	if st.Ino == 0 {
		if err := unix.Fstat(e.dir, &st); err != nil { // as root it belongs to whom its directory does
			return err
		}
		st.Ino, st.Mode = 0, 0o600
	}
	place := func(dir int, name string) error {
		err := writeNewFor(ownedAs(&st), dir, name, b, st.Mode&0o777)
		if err == nil && st.Ino == 0 {
			err = unix.Renameat2(dir, name, e.dir, e.name, unix.RENAME_NOREPLACE)
		} else if err == nil {
			err = unix.Renameat(dir, name, e.dir, e.name)
		}
		if err != nil {
			err = errors.Join(err, missing(unix.Unlinkat(dir, name, 0)))
		}
		return err
	}
	if err = place(e.stage, "keys"); errors.Is(err, unix.EXDEV) {
		err = place(e.dir, ".pccrun-new-"+rand.Text())
	}
	return err
}

// keys keeps what was taken back of a file: what it would have been, and what it was.
func (s *Stash) keys(c Finding, after, before []byte) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.open()
	if err == nil && s.next < maxStash {
		c.Stash = fmt.Sprint(s.next)
		s.next++
		if err = errors.Join(writeNew(s.dir, c.Stash+leftOver, before, 0o600), writeNew(s.dir, c.Stash, after, 0o600)); err != nil {
			c.Stash = ""
		}
	}
	if err != nil || s.write(c) != nil {
		s.found = append(s.found, c) // it is told all the same
	}
	return c
}

// restoreKeys does to the host's file what was taken back, if it is still as it was
// in these keys.
func (c Finding) restoreKeys(stash, dir int, name string) error {
	after, err := readOwn(stash, c.Stash, MaxKeyed)
	if err != nil {
		return err
	}
	before, err := readOwn(stash, c.Stash+leftOver, MaxKeyed)
	if err != nil {
		return err
	}
	was, err := parseTree(before)
	if err != nil {
		return err
	}
	is, err := parseTree(after)
	if err != nil {
		return err
	}
	changes := difference(was, is)
	beside, at, file := dir, dir, name
	if real, e := filepath.EvalSymlinks(c.Path); e == nil && real != c.Path {
		if at, file, err = parentOf(real); err != nil {
			return err
		}
		defer unix.Close(at)
	}
	err = edit(editing{beside, name + ".lock", at, file, at}, func(now []byte) ([]byte, error) {
		tree, err := new(Keyed).base(now)
		if err != nil {
			return nil, err
		}
		moved := slices.ContainsFunc(changes, func(k keyChange) bool {
			have := tree.at(k.names)
			if k.before.isObject() && have.isObject() {
				return false // what is in it has changes of its own, and what else is keeps it there
			}
			return !have.same(k.before) && !(k.before == nil && have.empty())
		})
		if moved || len(merge(tree, changes)) > 0 {
			return nil, ErrInTheWay
		}
		return tree.bytes(), nil
	})
	if err != nil {
		return err
	}
	_ = unix.Unlinkat(stash, c.Stash+leftOver, 0)
	return removeTree(stash, c.Stash)
}
