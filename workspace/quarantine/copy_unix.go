//go:build linux || darwin

package quarantine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// What is copied of one entry where it cannot be moved.
const (
	maxCopy   = 64 << 20
	maxCopied = 100_000
)

// A copier copies trees within bounds.
type copier struct {
	room    int64
	entries int
	levels  int          // of directories that it is in
	plain   bool         // leave out what is neither file, link nor directory, and the modes of these: somebody will write there
	owner   *unix.Stat_t // who gets the copies; nil for this process
}

func (k *copier) copy(from int, name string, to int, as string) error {
	var st unix.Stat_t
	if err := beneath.Stat(from, name, &st); err != nil {
		return err
	}
	if k.entries--; k.entries < 0 {
		return beneath.ErrTooMuch
	}
	switch beneath.KindOf(uint32(st.Mode)) {
	case beneath.File:
		return k.file(from, name, to, as, &st)
	case beneath.Dir:
		return k.dir(from, name, to, as, &st)
	case beneath.Link:
		target, err := beneath.ReadLink(from, name)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, to, as); err != nil {
			return err
		}
	default: // a socket or FIFO: that there was one
		if k.plain {
			return nil
		}
		if err := makeFIFO(to, as); err != nil {
			return err
		}
	}
	if k.owner == nil {
		return nil
	}
	return beneath.ChownMade(to, as, int(k.owner.Uid), int(k.owner.Gid))
}

// chown gives what a descriptor names to the owner of the copies.
func (k *copier) chown(fd int) error {
	if k.owner == nil {
		return nil
	}
	return unix.Fchown(fd, int(k.owner.Uid), int(k.owner.Gid))
}

func (k *copier) dir(from int, name string, to int, as string, st *unix.Stat_t) error {
	if k.levels++; k.levels > maxLevels {
		return fmt.Errorf("more than %d levels of directories: %w", maxLevels, beneath.ErrTooMuch)
	}
	defer func() { k.levels-- }()
	src, err := beneath.OpenOwnDir(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	dst, err := beneath.MakeDir(to, as)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	list, err := beneath.Entries(src)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := k.copy(src, e, dst, e); err != nil {
			return err
		}
	}
	if err := k.chown(dst); err != nil || k.plain {
		return err
	}
	return unix.Fchmod(dst, uint32(st.Mode)&0o777)
}

func (k *copier) file(from int, name string, to int, as string, st *unix.Stat_t) error {
	if k.room -= st.Size; k.room < 0 {
		return beneath.ErrTooMuch
	}
	b, err := beneath.ReadOwn(from, name, st.Size+k.room) // it may have grown since
	if err != nil {
		return err
	}
	k.room -= max(0, int64(len(b))-st.Size)
	return WriteNewFor(k.chown, to, as, b, uint32(st.Mode)&0o777)
}
