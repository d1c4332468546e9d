//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// What is put back is often made where somebody else may write: root accepts in
// a user's workspace. Between a call that makes a name and one that uses it,
// that user can put another file there, by a rename or a link, and what was
// meant for the copy would be done to it. So a tree is made in a cell, which
// nobody else enters, and ownership is given by descriptor.

// A cell is a directory of this process's own, beside the place for which
// something is made.
type cell struct {
	dir  int    // that holds it
	name string // in there
	fd   int
	keep bool // something in it belongs to somebody
}

// held is the one name in a cell.
const held = "held"

// openCell makes the cell of a name, or empties the one that was left when an attempt was killed.
func openCell(dir int, name string) (*cell, error) {
	c := &cell{dir: dir, name: name}
	var err error
	c.fd, err = beneath.MakeDir(dir, c.name)
	left := errors.Is(err, unix.EEXIST)
	if left {
		c.fd, err = beneath.Open(dir, c.name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", c.name, err)
	}
	err = beneath.Closed(c.fd)
	if err == nil && left {
		if err = beneath.RemoveTree(c.fd, held); err == nil || err == unix.ENOENT {
			err = beneath.Empty(c.fd)
		}
	}
	if err != nil {
		unix.Close(c.fd)
		return nil, fmt.Errorf("%s: %w: %w", c.name, ErrInTheWay, err)
	}
	return c, nil
}

// fill copies an entry of the stash into the cell. As root the copy is given to
// whom the directory around the cell belongs to.
func (c *cell) fill(k *copier, stash int, entry string) error {
	k.room, k.entries = maxCopy, maxCopied
	if os.Getuid() == 0 {
		k.owner = new(unix.Stat_t)
		if err := unix.Fstat(c.dir, k.owner); err != nil {
			return os.NewSyscallError("fstat", err)
		}
	}
	return k.copy(stash, entry, c.fd, held)
}

// release moves what is held out of the cell, never over anything.
func (c *cell) release(name string) error {
	err := Move(c.fd, held, c.dir, name)
	if err == unix.EEXIST {
		return ErrInTheWay
	}
	return err
}

// close takes the cell away with what is still held.
func (c *cell) close() error {
	defer unix.Close(c.fd)
	if c.keep {
		return nil
	}
	if err := beneath.RemoveTree(c.fd, held); err != nil && err != unix.ENOENT {
		return fmt.Errorf("remove %s/%s: %w", c.name, held, err)
	}
	// By name: an empty directory is all that this removes, whoever's it is.
	if err := unix.Unlinkat(c.dir, c.name, unix.AT_REMOVEDIR); err != nil {
		return fmt.Errorf("remove %s: %w", c.name, err)
	}
	return nil
}

// takeByCopy copies into the stash what cannot be moved there, and removes it: held in a cell from its one rename on. By its
// name, another could be removed that nobody has copied, a directory of root's among them, who looks after a killed run
// in a directory that somebody else may write.
func (s *Stash) takeByCopy(dir int, name string, c Finding, why error) (Finding, error) {
	cell, err := openCell(dir, s.freeName(Moving))
	if errors.Is(err, unix.EACCES) { // the command may have closed it
		_ = beneath.Unlock(dir, "")
		cell, err = openCell(dir, s.freeName(Moving))
	}
	if err != nil { // a command can fill the disk: then nothing can be made, and a name still be changed
		if c, err = s.renameInPlace(dir, name, c, why); err == nil {
			s.keepLine(c)
		}
		return c, err
	}
	if err := Move(dir, name, cell.fd, held); err != nil {
		if e := cell.close(); !beneath.Gone(err) || e != nil {
			return c, errors.Join(why, err, e)
		}
		return c, err
	}
	if s.dir > 0 {
		err := s.keep(cell.fd, held, &c)
		if err == nil {
			return c, cell.close()
		}
		c.Stash, why = "", err
	}
	// What cannot be kept elsewhere stays where it is, inert.
	away := s.freeName(Prefix)
	if err := beneath.Rename(cell.fd, held, dir, away); err != nil {
		cell.keep, away = true, cell.name+"/"+held
	}
	c.What += fmt.Sprintf(", renamed to %s: %v", away, why)
	s.keepLine(c)
	return c, cell.close()
}
