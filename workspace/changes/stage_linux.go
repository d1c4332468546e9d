package changes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// stage makes what a step will put in place, beside that place.
func (a *applying) stage(p *applyPlan, s *step) error {
	dir, err := a.upper.parent(s.Layer, s.Path)
	if err != nil {
		return err
	}
	defer dir.Close()
	i, ok := p.set.find(s.Path)
	if !ok {
		return fmt.Errorf("BUG: no change of %s", s.Path)
	}
	if a.owner, err = ownerOf(dir, p.set.Changes[i].Before); err != nil {
		return err
	}
	if _, err := a.build(p, i, int(dir.Fd()), base(s.Temp)); err != nil {
		return err
	}
	if s.New = inode(int(dir.Fd()), base(s.Temp)); s.New == 0 {
		return errors.New("it was removed while it was made")
	}
	return nil
}

// ownerOf returns who a file must belong to: whom it belonged to, else, where
// that is ours to choose, whom its directory belongs to.
func ownerOf(dir *os.File, before *Entry) (owner, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return owner{}, os.NewSyscallError("fstat", err)
	}
	switch {
	case before != nil && os.Geteuid() != 0 && int(before.Stamp.UID) != os.Geteuid():
		return owner{}, fmt.Errorf("its owner is uid %d, which cannot be kept: %w", before.Stamp.UID, unix.EPERM)
	case before != nil:
		return owner{int(before.Stamp.UID), int(before.Stamp.GID)}, nil
	case os.Geteuid() == 0:
		return owner{int(st.Uid), int(st.Gid)}, nil
	}
	return owner{-1, -1}, nil
}

// build makes what a change says at a name in a directory of the host, with
// what is taken of what lies in it. It returns the index of the first change
// that does not.
func (a *applying) build(p *applyPlan, i, dir int, name string) (next int, err error) {
	c := &p.set.Changes[i]
	next = i + 1
	// Bits that only the host may have given. A file that is written to loses them,
	// on the host as in the overlay: its content is the command's now.
	var kept uint32
	if c.After.Kind == workspace.Dir && c.Before != nil && c.Before.Kind == workspace.Dir {
		kept = c.Before.Mode & 0o7000
	}
	m := maker{from: a.upper.after[p.layer], owner: a.owner, attribute: attribute, mode: func(mode, made uint32) uint32 {
		return mode&0o1777 | kept | made&unix.S_ISGID // as the directory above hands it on
	}}
	return next, m.make(c.Path, c.After, dir, name, func(to int) (err error) {
		for next < len(p.set.Changes) && contains(c.Path, p.set.Changes[next].Path) {
			child := &p.set.Changes[next]
			if !p.take[next] || child.After == nil {
				next++ // what lies in a directory that is not taken is not either
			} else if next, err = a.build(p, next, to, base(child.Path)); err != nil {
				return fmt.Errorf("%s: %w", path.Base(child.Path), err)
			}
		}
		return nil
	})
}

// A maker makes what a layer has somewhere else.
type maker struct {
	from      *layer
	owner     owner
	attribute func(name string) string       // what an extended attribute is called there, "" for one that stays
	mode      func(mode, made uint32) uint32 // what a mode becomes, given that of what was made
}

// make makes one entry at a name in a directory; what lies in one, inside does.
func (m *maker) make(rel string, e *Entry, dir int, name string, inside func(to int) error) error {
	times := []unix.Timespec{{Nsec: unix.UTIME_NOW}, unix.NsecToTimespec(e.Stamp.Mtime)}
	if e.Kind == workspace.Link {
		if err := unix.Symlinkat(e.Target, dir, name); err != nil {
			return os.NewSyscallError("symlinkat", err)
		}
		if err := beneath.ChownMade(dir, name, m.owner.uid, m.owner.gid); err != nil {
			return err
		}
		return os.NewSyscallError("utimensat", unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW))
	}
	from, err := m.from.open(rel)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := create(dir, name, e.Kind)
	if err != nil {
		return err
	}
	defer to.Close()
	fd := int(to.Fd())
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if e.Kind == workspace.Dir {
		err = inside(fd)
	} else {
		err = copyFile(to, from)
	}
	if err != nil {
		return err
	}
	if err := unix.Fchown(fd, m.owner.uid, m.owner.gid); err != nil {
		return os.NewSyscallError("fchown", err)
	}
	if err := copyAttributes(fd, int(from.Fd()), m.attribute); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, m.mode(e.Mode, st.Mode)); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	// By the descriptor: the name could be somebody else's by now.
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH))
}

// create makes a file or directory that was not there, closed to others.
func create(dir int, name string, kind workspace.Kind) (*os.File, error) {
	if kind == workspace.Dir {
		fd, err := beneath.MakeDir(dir, name)
		if err != nil {
			return nil, err
		}
		// Whoever may write beside it could have put one of his own there.
		if err := beneath.Closed(fd); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("make %s: %w", name, err)
		}
		return os.NewFile(uintptr(fd), name), nil
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// copyFile copies a regular file; where the file system can share the blocks,
// it does.
func copyFile(to, from *os.File) error {
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return beneath.ErrNotRegular
	}
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	return copyData(to, from, info.Size())
}

// copyData copies what is written of a file, and leaves its holes: a sparse file
// of a terabyte may hold nothing.
func copyData(to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		data := dataFrom(from, at)
		if data == noData {
			break
		}
		hole, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		for _, f := range [...]*os.File{from, to} {
			if _, err := f.Seek(data, io.SeekStart); err != nil {
				return err
			}
		}
		if _, err := io.CopyN(to, from, hole-data); err != nil {
			return err
		}
		at = hole
	}
	return to.Truncate(size)
}

// copyAttributes copies extended attributes, under the names that rename gives
// them; "" leaves one out.
func copyAttributes(to, from int, rename func(string) string) error {
	size, err := unix.Flistxattr(from, nil)
	if err == unix.EOPNOTSUPP || err == nil && size == 0 {
		return nil
	}
	if err != nil {
		return os.NewSyscallError("flistxattr", err)
	}
	list := make([]byte, size+1<<10)
	if size, err = unix.Flistxattr(from, list); err != nil {
		return os.NewSyscallError("flistxattr", err)
	}
	for name := range bytes.SplitSeq(list[:size], []byte{0}) {
		kept := rename(string(name))
		if kept == "" {
			continue
		}
		value := make([]byte, 64<<10) // XATTR_SIZE_MAX
		n, err := unix.Fgetxattr(from, string(name), value)
		if err != nil {
			return fmt.Errorf("fgetxattr %s: %w", name, err)
		}
		if err := unix.Fsetxattr(to, kept, value[:n], 0); err != nil {
			return fmt.Errorf("fsetxattr %s: %w", kept, err)
		}
	}
	return nil
}

// attribute returns what an attribute in an upper layer is called outside of
// it, "" for one that stays there. overlayfs keeps its own marks as
// user.overlay.*, and what the command called so with a prefix more.
func attribute(name string) string {
	const marks = "user.overlay."
	switch {
	case strings.HasPrefix(name, marks+"overlay."):
		return "user." + strings.TrimPrefix(name, marks)
	case strings.HasPrefix(name, marks):
		return ""
	case strings.HasPrefix(name, "user."), strings.HasPrefix(name, "system.posix_acl_"):
		return name
	}
	return ""
}
