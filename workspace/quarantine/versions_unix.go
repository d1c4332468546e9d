//go:build linux || darwin

package quarantine

import (
	"errors"
	"slices"
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

// Take moves the entry of a directory into the stash. Of many versions of a path the first and the very last are kept,
// since the host may have made that. Where the stash lies on another file system the entry is copied; where it cannot be
// made, or is full, it stays where it is under a name that nothing looks for.
func (s *Stash) Take(dir int, name string, c Finding) (Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil {
		return c, err
	}
	c.Mode, c.What = uint32(st.Mode), beneath.KindOf(uint32(st.Mode)).String()
	err := s.open()
	if n, last := s.kept(c.Path); err == nil && n >= maxSame {
		err = s.reuse(last, &c)
	} else if err == nil && s.next >= maxStash {
		return s.renameInPlace(dir, name, c, errors.New("the stash is full"))
	} else if err == nil {
		err = s.reserve(&c)
	}
	if err == nil {
		if err = Move(dir, name, s.dir, c.Stash); err == nil {
			return c, nil
		}
		s.found = s.found[:len(s.found)-1]
		if beneath.Gone(err) && beneath.Gone(beneath.Stat(dir, name, &st)) { // else it is the stash that is gone
			return c, err
		}
	}
	return s.takeByCopy(dir, name, c, err)
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

// reserve gives a finding a name in the stash, and writes that down before anything is moved there.
func (s *Stash) reserve(c *Finding) error {
	c.Stash = strconv.Itoa(s.next)
	s.next++
	err := s.write(*c)
	if err != nil {
		c.Stash = ""
	}
	return err
}

// reuse gives a finding the name in the stash of one that goes.
func (s *Stash) reuse(i int, c *Finding) error {
	name := s.found[i].Stash
	if err := beneath.RemoveTree(s.dir, name); err != nil && !beneath.Gone(err) {
		return err
	}
	if old, ok := s.late[name]; ok {
		unix.Close(old)
		delete(s.late, name)
	}
	c.Stash = name
	s.found = append(slices.Delete(s.found, i, i+1), *c)
	return nil
}

// keep copies an entry into the stash, by the name there that it has or is given.
func (s *Stash) keep(dir int, name string, c *Finding) error {
	if c.Stash != "" {
		s.found = append(s.found, *c)
	} else if err := s.reserve(c); err != nil {
		return err
	}
	copier := copier{room: maxCopy, entries: maxCopied}
	if err := copier.copy(dir, name, s.dir, c.Stash); err != nil {
		_ = beneath.RemoveTree(s.dir, c.Stash)
		s.found = s.found[:len(s.found)-1]
		return err
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
