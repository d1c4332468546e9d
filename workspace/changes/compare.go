package changes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace"
)

// A layer is a tree that is compared with another.
type layer struct {
	root *os.Root
	// partial: it holds only what differs, as the upper directory of an
	// overlay: what it does not name is as before, a whiteout takes a name
	// away, and only an opaque directory is the whole of it.
	partial bool
}

// Compare says how the tree at before became the one at after. It reads both
// as a whole.
func Compare(before, after *os.Root) (*Set, error) {
	s := &Set{Root: before.Name()}
	d := differ{before: &layer{root: before}, after: &layer{root: after}, set: s}
	return s, d.root()
}

// differ walks two layers side by side.
type differ struct {
	before, after *layer
	set           *Set
}

func (d *differ) root() error {
	old, err := d.before.entry(".")
	if err != nil {
		return err
	}
	now, err := d.after.entry(".")
	if err != nil {
		return err
	}
	if old.Mode != now.Mode {
		d.add(".", old, now)
	}
	return d.directory(".", false)
}

func (d *differ) add(name string, before, after *Entry) {
	d.set.Changes = append(d.set.Changes, Change{Path: name, Before: before, After: after})
}

// directory compares what two directories of a name hold. Names are met in the
// order of [ComparePaths], since '/' is the least of bytes there. In an opaque
// directory of an upper layer everything is whole.
func (d *differ) directory(dir string, whole bool) error {
	now, opaque, err := d.after.names(dir)
	if err != nil {
		return err
	}
	names := now
	if whole = whole || opaque; whole {
		old, _, err := d.before.names(dir)
		if err != nil {
			return err
		}
		names = slices.Compact(sorted(append(slices.Clone(old), now...)))
	}
	for _, name := range names {
		_, found := slices.BinarySearch(now, name)
		after := d.after
		if !found {
			after = nil
		}
		if err := d.name(path.Join(dir, name), after, whole); err != nil {
			return err
		}
	}
	return nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// name compares one path; after is nil if it is not there any more.
func (d *differ) name(name string, after *layer, whole bool) error {
	old, err := d.before.entry(name)
	// What lies in a directory that is closed to us, by the command perhaps and
	// an apply of its mode, cannot be told from what is not there.
	if err != nil && !isAbsent(err) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	var now *Entry
	if after != nil {
		now, err = after.entry(name)
		if isAbsent(err) {
			now = nil // it went while we looked: the run still goes on
		} else if err != nil {
			return err
		}
	}
	if now != nil && now.Kind == workspace.Special {
		if d.after.whiteout(name) {
			now = nil
		} else {
			d.set.Lost = append(d.set.Lost, name)
			if old == nil || old.Kind == workspace.Special {
				return nil
			}
			now = nil // what stood there is gone all the same
		}
	}
	switch {
	case old == nil && now == nil:
		return nil
	case old != nil && now != nil && old.Kind == now.Kind:
		same, err := d.same(name, old, now)
		if err != nil {
			return err
		}
		if !same {
			d.add(name, old, now)
		}
		if now.Kind == workspace.Dir {
			return d.directory(name, whole)
		}
		return nil
	}
	d.add(name, old, now)
	if old != nil && old.Kind == workspace.Dir {
		if err := d.all(name, d.before, func(path string, e *Entry) { d.add(path, e, nil) }); err != nil {
			return err
		}
	}
	if now != nil && now.Kind == workspace.Dir {
		return d.all(name, d.after, func(path string, e *Entry) { d.add(path, nil, e) })
	}
	return nil
}

// all calls f for what is in a directory that only one side has.
func (d *differ) all(dir string, l *layer, f func(string, *Entry)) error {
	names, _, err := l.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		name = path.Join(dir, name)
		e, err := l.entry(name)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return err
		}
		if e.Kind == workspace.Special {
			if !l.whiteout(name) {
				d.set.Lost = append(d.set.Lost, name)
			}
			continue
		}
		f(name, e)
		if e.Kind == workspace.Dir {
			if err := d.all(name, l, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// same reports whether two entries of one kind are alike. Times and owners are
// no difference.
func (d *differ) same(name string, old, now *Entry) (bool, error) {
	switch {
	case old.Kind == workspace.Link:
		return old.Target == now.Target, nil
	case old.Mode != now.Mode || old.Size != now.Size:
		return false, nil
	case old.Kind == workspace.Dir:
		return true, nil
	}
	a, err := d.before.open(name)
	if errors.Is(err, fs.ErrPermission) {
		// A file of the host's that is closed to us, since an apply perhaps, which
		// gave it this time.
		return old.Stamp.Mtime == now.Stamp.Mtime, nil
	}
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := d.after.open(name)
	if err != nil {
		return false, err
	}
	defer b.Close()
	return Equal(a, b)
}

// Equal compares two files of one size to their ends. Where both have a hole there
// is nothing to read: a sparse file of a terabyte may hold nothing.
func Equal(a, b *os.File) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; at += int64(len(x)) {
		if at > 0 { // most files are small
			at = min(dataFrom(a, at), dataFrom(b, at))
		}
		if at == noData {
			return true, nil
		}
		n, err := a.ReadAt(x, at)
		m, err2 := b.ReadAt(y, at)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		for _, err := range [...]error{err, err2} {
			if err != nil && err != io.EOF {
				return false, err
			}
		}
		if err != nil || err2 != nil {
			return true, nil
		}
	}
}

// noData says that nothing but a hole is left of a file.
const noData = math.MaxInt64

func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) || isNotDir(err) }

// entry returns what stands at a path, a link itself.
func (l *layer) entry(name string) (*Entry, error) {
	info, err := l.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	e := EntryOf(info)
	if e.Kind == workspace.Link {
		if e.Target, err = l.root.Readlink(name); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// maxDepth bounds how deep directories may lie in each other: each step down
// costs a look at all above it.
const maxDepth = 400

// enter opens a directory to be listed, if it does not lie too deep; one of an upper
// layer that the command has closed too.
func (l *layer) enter(dir string) (*os.File, error) {
	if strings.Count(dir, "/") > maxDepth {
		return nil, fmt.Errorf("%.100s…: more than %d directories deep: %w", dir, maxDepth, workspace.ErrTooMuch)
	}
	if l.partial {
		if err := l.unlock(dir); err != nil {
			return nil, err
		}
	}
	return l.open(dir)
}

// names returns the names in a directory, sorted, and whether they are all
// that is there.
func (l *layer) names(dir string) (names []string, whole bool, err error) {
	f, err := l.enter(dir)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	if names, err = f.Readdirnames(-1); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return sorted(names), !l.partial || opaque(f), nil
}

// open opens a file or directory for reading. What the command closed to itself, and so to us, is opened: it must
// not hide what it made.
func (l *layer) open(name string) (*os.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if !l.partial || !errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	if err := l.unlock(name); err != nil {
		return nil, err
	}
	return l.root.OpenFile(name, os.O_RDONLY|nonblock, 0)
}

// unlock lets us read a file, or search a directory, of our own.
func (l *layer) unlock(name string) error {
	info, err := l.root.Lstat(name)
	if err != nil {
		return err
	}
	open := fs.FileMode(0o400)
	if info.IsDir() {
		open = 0o500
	}
	if info.Mode()&open == open || !info.IsDir() && !info.Mode().IsRegular() {
		return nil
	}
	return l.root.Chmod(name, info.Mode()|open)
}
