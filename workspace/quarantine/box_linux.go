package quarantine

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// box moves a directory into the stash that nobody has looked into. Where the
// stash lies on another file system it stays, under a name that it returns, and
// is closed to everybody: it is too much to be copied.
func (s *Stash) Box(dir int, name string, c Finding) (_ Finding, left string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil {
		return c, "", err
	}
	c.Mode = st.Mode
	if s.open() == nil {
		c.Stash = strconv.Itoa(s.next)
		s.next++
		if err = s.write(c); err == nil {
			if err = Move(dir, name, s.dir, c.Stash); err == nil {
				return c, "", nil
			}
			s.found = s.found[:len(s.found)-1]
		}
		c.Stash = ""
	}
	left = s.beside(Prefix)
	if err := Move(dir, name, dir, left); err != nil {
		return c, "", err
	}
	c.What += ", renamed to " + left + " and closed"
	if s.write(c) != nil {
		s.found = append(s.found, c)
	}
	return c, left, closeDir(dir, left)
}

// closeDir takes all rights to a directory away.
func closeDir(dir int, name string) error {
	fd, err := beneath.Open(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0)
}

// A Crate is a directory of the stash that takes many.
type Crate struct {
	stash   *Stash
	Finding Finding
	at      int // in the stash's findings
	dir     int // where left is
	Left    string
	FD      int
	Count   int
}

// NewCrate makes one for directories of dir: in dir, and moves it into the stash,
// unless that lies on another file system.
func (s *Stash) NewCrate(dir int, c Finding) (_ *Crate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &Crate{stash: s, Finding: c, dir: dir, FD: -1}
	k.Left = s.beside(Prefix)
	if err := unix.Mkdirat(dir, k.Left, 0o700); err != nil {
		return nil, err
	}
	if k.FD, err = beneath.Open(dir, k.Left, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	if s.open() == nil {
		name := strconv.Itoa(s.next)
		if s.next++; Move(dir, k.Left, s.dir, name) == nil {
			k.Left, k.Finding.Stash = "", name
		}
	}
	k.Finding.Mode = unix.S_IFDIR | 0o700
	k.Finding.What = "directories"
	if k.Left != "" {
		k.Finding.What += ", moved to " + k.Left + ", which is closed"
	}
	k.at = len(s.found)
	if s.write(k.Finding) != nil {
		s.found = append(s.found, k.Finding)
	}
	return k, nil
}

// Close says how much it has taken.
func (k *Crate) Close() error {
	k.stash.mu.Lock()
	defer k.stash.mu.Unlock()
	unix.Close(k.FD)
	k.Finding.What = fmt.Sprintf("%d %s", k.Count, k.Finding.What)
	k.stash.found[k.at] = k.Finding
	if k.Left != "" {
		return closeDir(k.dir, k.Left)
	}
	return nil
}
