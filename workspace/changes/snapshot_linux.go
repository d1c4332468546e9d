package changes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Copy copies what a run left of its overlays into another directory, as a
// snapshot that later runs begin with ([CreateUpper]). [Upper.Begin] must have
// been called.
func (u *Upper) Copy(to *os.Root) error {
	if u.Interrupted() {
		return errors.New("an apply of it was interrupted: finish it first, or discard")
	}
	if !u.Record.Ended {
		if _, _, err := u.Settle(); err != nil {
			return err
		}
	}
	if err := to.Mkdir(UpperName, 0o700); err != nil {
		return err
	}
	for i := range u.Record.Layers {
		dir := path.Join(UpperName, strconv.Itoa(i))
		if err := to.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := copyLayer(u.after[i], to, dir); err != nil {
			return err
		}
	}
	dir, err := to.OpenRoot(UpperName)
	if err != nil {
		return err
	}
	return errors.Join(writeRecord(dir, &u.Record), dir.Close())
}

// beginWith fills the layers of a new run with those of a snapshot.
func beginWith(session, snapshot *os.Root, r *Record) error {
	old, err := ReadRecord(snapshot)
	if err != nil {
		return err
	}
	for i, l := range old.Layers {
		at := slices.IndexFunc(r.Layers, func(have Layer) bool { return have == l })
		if at < 0 {
			return fmt.Errorf("the snapshot has changes of %s, which is not an overlay of this run or was replaced", l.Path)
		}
		tree, err := snapshot.OpenRoot(path.Join(UpperName, strconv.Itoa(i), treeName))
		if err != nil {
			return err
		}
		from := &layer{root: tree, partial: true}
		dir := path.Join(UpperName, strconv.Itoa(at))
		err = session.Remove(path.Join(dir, treeName))
		if err == nil {
			err = copyLayer(from, session, dir)
		}
		if err := errors.Join(err, tree.Close()); err != nil {
			return err
		}
		for _, s := range old.Stood {
			if s.Layer == i {
				s.Layer = at
				r.Stood = append(r.Stood, s)
			}
		}
	}
	if !Stands(snapshot) { // else what had gone by then was missed in silence
		return errors.New("the snapshot was removed while it was copied")
	}
	return nil
}

// copyLayer copies an upper layer as it is, whiteouts and the kernel's marks
// included, to the name of the tree in a directory.
func copyLayer(from *layer, to *os.Root, dir string) error {
	parent, err := to.Open(dir)
	if err != nil {
		return err
	}
	defer parent.Close()
	m := maker{from: from, owner: owner{-1, -1}, attribute: marked, mode: func(mode, _ uint32) uint32 { return mode }}
	return m.copy(".", int(parent.Fd()), treeName)
}

func (m *maker) copy(rel string, dir int, name string) error {
	e, err := m.from.entry(rel)
	if err != nil {
		return err
	}
	if e.Kind == workspace.Special {
		if m.from.whiteout(rel) {
			err = os.NewSyscallError("mknodat", unix.Mknodat(dir, name, unix.S_IFCHR, 0))
		}
		return err
	}
	return m.make(rel, e, dir, name, func(to int) error {
		names, _, err := m.from.names(rel)
		for _, n := range names {
			err = errors.Join(err, m.copy(path.Join(rel, n), to, n))
		}
		return err
	})
}

// marked keeps the names of attributes, those of overlayfs too.
func marked(name string) string {
	if strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_") {
		return name
	}
	return ""
}

// eachUpper calls visit with all that a session keeps of its overlays, however deep the command has made it.
func eachUpper(session *os.Root, shut func(string, error) error, visit beneath.Visit) error {
	dir, err := session.Open(UpperName)
	if err != nil {
		return err
	}
	defer dir.Close()
	return beneath.Walk(int(dir.Fd()), beneath.Limits{Entries: 1 << 26, Depth: 1 << 26, Time: time.Minute, Shut: shut}, visit)
}

// Usage is how many bytes the overlays of a session take on its disk, as far as
// they can be counted: what the command closes to itself is closed to us while
// it runs.
func Usage(session *os.Root) (bytes int64) {
	_ = eachUpper(session, nil, func(_ int, _ string, st *unix.Stat_t, _ func() string) error {
		bytes += st.Blocks << 9
		return nil
	})
	return bytes
}

// HandUpper gives what a session keeps of its overlays to another user.
func HandUpper(session *os.Root, uid, gid int) error {
	closed := func(path string, err error) error {
		return &fs.PathError{Op: "open", Path: beneath.Shorten(path), Err: err}
	}
	err := eachUpper(session, closed, func(dir int, name string, _ *unix.Stat_t, path func() string) error {
		if err := unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil && !beneath.Gone(err) {
			return &fs.PathError{Op: "lchown", Path: beneath.Shorten(path()), Err: err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return session.Lchown(UpperName, uid, gid)
}
