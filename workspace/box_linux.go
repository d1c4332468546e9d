package workspace

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// box moves a directory into the stash that nobody has looked into. Where the
// stash lies on another file system it stays, under a name that it returns, and
// is closed to everybody: it is too much to be copied.
func (s *Stash) box(dir int, name string, c Finding) (_ Finding, left string, err error) {
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
			if err = move(dir, name, s.dir, c.Stash); err == nil {
				return c, "", nil
			}
			s.found = s.found[:len(s.found)-1]
		}
		c.Stash = ""
	}
	left = s.beside(inert)
	if err := move(dir, name, dir, left); err != nil {
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

// A crate is a directory of the stash that takes many.
type crate struct {
	stash   *Stash
	finding Finding
	at      int // in the stash's findings
	dir     int // where left is
	left    string
	fd      int
	count   int
}

// crate makes one for directories of dir: in dir, and moves it into the stash,
// unless that lies on another file system.
func (s *Stash) crate(dir int, c Finding) (_ *crate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &crate{stash: s, finding: c, dir: dir, fd: -1}
	k.left = s.beside(inert)
	if err := unix.Mkdirat(dir, k.left, 0o700); err != nil {
		return nil, err
	}
	if k.fd, err = beneath.Open(dir, k.left, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return nil, err
	}
	if s.open() == nil {
		name := strconv.Itoa(s.next)
		if s.next++; move(dir, k.left, s.dir, name) == nil {
			k.left, k.finding.Stash = "", name
		}
	}
	k.finding.Mode = unix.S_IFDIR | 0o700
	k.finding.What = "directories"
	if k.left != "" {
		k.finding.What += ", moved to " + k.left + ", which is closed"
	}
	k.at = len(s.found)
	if s.write(k.finding) != nil {
		s.found = append(s.found, k.finding)
	}
	return k, nil
}

// close says how much it has taken.
func (k *crate) close() error {
	k.stash.mu.Lock()
	defer k.stash.mu.Unlock()
	unix.Close(k.fd)
	k.finding.What = fmt.Sprintf("%d %s", k.count, k.finding.What)
	k.stash.found[k.at] = k.finding
	if k.left != "" {
		return closeDir(k.dir, k.left)
	}
	return nil
}
