package quarantine

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// TakeUnseen moves the names of a directory that take accepts into one directory of the stash; nobody has looked into
// them. Where the stash lies on another file system that one stays here, under a name that it returns, and is closed to
// everybody: it is too much to be copied.
func (s *Stash) TakeUnseen(dir int, c Finding, take func(name string) bool) (_ Finding, left string, moved int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left = s.freeName(Prefix)
	to, err := beneath.MakeDir(dir, left)
	if err != nil {
		return c, "", 0, err
	}
	defer unix.Close(to)
	c.Mode, c.What = unix.S_IFDIR|0o700, "directories"
	if s.open() == nil {
		number := strconv.Itoa(s.next)
		if s.next++; Move(dir, left, s.dir, number) == nil {
			c.Stash, left = number, ""
		}
	}
	if left != "" {
		c.What += ", moved to " + left + ", which is closed"
	}
	at := len(s.found)
	s.keepLine(c)
	names, err := beneath.Entries(dir)
	for _, name := range names {
		if name == left || !take(name) {
			continue
		}
		if e := Move(dir, name, to, name); e == nil {
			moved++
		} else if !beneath.Gone(e) {
			err = fmt.Errorf("move %s: %w", name, e)
			break
		}
	}
	c.What = fmt.Sprintf("%d %s", moved, c.What)
	s.found[at].What = c.What
	if left != "" {
		err = errors.Join(err, unix.Fchmod(to, 0))
	}
	return c, left, moved, err
}
