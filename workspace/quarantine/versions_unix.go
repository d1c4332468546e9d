//go:build linux || darwin

package quarantine

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// Versions are of one path, which a command makes over and over while a run goes on.
type versions struct {
	late map[string]int // files that were copied, by their name in the stash: the command may still write to them
}

const (
	maxSame = 16 // what is kept of one path: the first and the very last
	maxLate = 64 // files that are held open until the end
)

// Take moves the entry of a directory into the stash.
func (s *Stash) Take(dir int, name string, c Finding) (Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, last := s.kept(c.Path); n >= maxSame {
		return s.replace(last, dir, name, c)
	}
	return s.take(dir, name, c)
}

// kept returns how many versions of a path the stash has, and the index of the last.
func (s *Stash) kept(path string) (n, last int) {
	for i, f := range s.found {
		if f.Path == path && f.Kind == Stashed && f.Stash != "" {
			n, last = n+1, i
		}
	}
	return n, last
}

// replace puts a version in the place of the last one: of many, the first and
// the very last are kept, since the host may have made that.
func (s *Stash) replace(i, dir int, name string, c Finding) (Finding, error) {
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil {
		return c, err
	}
	c.Mode, c.What, c.Stash = uint32(st.Mode), beneath.KindOf(uint32(st.Mode)).String(), s.found[i].Stash
	err := beneath.RemoveTree(s.dir, c.Stash)
	if err == nil || beneath.Gone(err) {
		err = Move(dir, name, s.dir, c.Stash)
	}
	if err != nil {
		if c, err = s.aside(dir, name, c, err); c.Stash == "" || err != nil {
			return c, err
		}
	}
	f := &s.found[i]
	f.Mode, f.What = c.Mode, c.What
	return *f, nil
}

// keep copies an entry into the stash, as what c says that it is there: in the place of one that is gone, or, written
// down first, as another.
func (s *Stash) keep(dir int, name string, c *Finding) error {
	first := c.Stash == ""
	if first {
		c.Stash = strconv.Itoa(s.next)
		s.next++
		if err := s.write(*c); err != nil {
			return err
		}
	}
	copier := copier{room: maxCopy, entries: maxCopied}
	if err := copier.copy(dir, name, s.dir, c.Stash); err != nil {
		_ = beneath.RemoveTree(s.dir, c.Stash)
		if first {
			s.found = s.found[:len(s.found)-1]
		}
		return err
	}
	if old, ok := s.late[c.Stash]; ok {
		unix.Close(old)
		delete(s.late, c.Stash)
	}
	if fd, err := beneath.Open(dir, name, unix.O_RDONLY); err == nil && c.Mode&unix.S_IFMT == unix.S_IFREG && len(s.late) < maxLate {
		if s.late == nil {
			s.late = map[string]int{}
		}
		s.late[c.Stash] = fd
	} else if err == nil {
		unix.Close(fd)
	}
	return nil
}

// settle copies what was written to a file after it was copied: it is the last to know of it.
func (v *versions) settle(stash int) {
	for name, fd := range v.late {
		var st unix.Stat_t // of the copy: to read the other, its mode may have been changed
		err := beneath.Stat(stash, name, &st)
		if b, e := beneath.ReadFile(fd, maxCopy); err == nil && e == nil && len(b) > 0 {
			_ = unix.Unlinkat(stash, name, 0)
			_ = WriteNew(stash, name, b, uint32(st.Mode)&0o777)
		}
	}
	v.late = nil
}
