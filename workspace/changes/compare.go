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

	beforeNear, afterNear near
}

// near is the directory of a layer in which names were looked at last: to reach it anew for each of
// its names would take most of the time of a walk.
type near struct {
	dir  string
	root *os.Root
}

func (n *near) close() {
	if n.root != nil {
		n.root.Close()
	}
}

// entry is [layer.entry].
func (n *near) entry(l *layer, name string) (*Entry, error) {
	dir, base := path.Split(name)
	if dir == "" {
		return l.entry(name)
	}
	if n.root == nil || n.dir != dir {
		root, err := l.root.OpenRoot(dir)
		if err != nil { // one may be searched and not read
			return l.entry(name)
		}
		n.close()
		n.dir, n.root = dir, root
	}
	return (&layer{root: n.root}).entry(base)
}

func (d *differ) root() error {
	defer func() { d.beforeNear.close(); d.afterNear.close() }()
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
	return d.directory(".", d.before, d.after, false)
}

func (d *differ) add(name string, before, after *Entry) {
	d.set.Changes = append(d.set.Changes, Change{Path: name, Before: before, After: after})
}

// directory compares what two directories of a name hold, of which one may not be there (nil). Names are met in the
// order of [ComparePaths], since '/' is the least of bytes there. In an opaque directory of an upper layer
// everything is whole.
func (d *differ) directory(dir string, before, after *layer, whole bool) (err error) {
	var old, now []string
	opaque := after == nil
	if after != nil {
		if now, opaque, err = after.names(dir); err != nil {
			return err
		}
	}
	if whole = whole || opaque; whole && before != nil {
		if old, _, err = before.names(dir); err != nil {
			return err
		}
	}
	for _, name := range slices.Compact(sorted(slices.Concat(old, now))) {
		after := after
		if _, found := slices.BinarySearch(now, name); !found {
			after = nil
		}
		if err := d.name(path.Join(dir, name), before, after, whole); err != nil {
			return err
		}
	}
	return nil
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// name compares one path, which a layer that is nil does not have.
func (d *differ) name(name string, before, after *layer, whole bool) (err error) {
	var old, now *Entry
	if before != nil {
		// What lies in a directory that is closed to us, by the command perhaps and
		// an apply of its mode, cannot be told from what is not there.
		if old, err = d.beforeNear.entry(before, name); err != nil && !isAbsent(err) && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	if after != nil {
		// What went while we looked is not there: the run still goes on.
		if now, err = d.afterNear.entry(after, name); err != nil && !isAbsent(err) {
			return err
		}
	}
	if now != nil && now.Kind == workspace.Special {
		if !after.whiteout(name) {
			d.set.Lost = append(d.set.Lost, name)
			if old == nil || old.Kind == workspace.Special {
				return nil
			}
		}
		now = nil // what stood there is gone all the same
	}
	if old != nil && now != nil && old.Kind == now.Kind {
		same, err := d.same(name, old, now)
		if err == nil && !same {
			d.add(name, old, now)
		}
		if err != nil || now.Kind != workspace.Dir {
			return err
		}
		return d.directory(name, before, after, whole)
	}
	if old != nil || now != nil {
		d.add(name, old, now)
	}
	if old != nil && old.Kind == workspace.Dir {
		err = d.directory(name, before, nil, true)
	}
	if now != nil && now.Kind == workspace.Dir {
		err = errors.Join(err, d.directory(name, nil, after, true))
	}
	return err
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
