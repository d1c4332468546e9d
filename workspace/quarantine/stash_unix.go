//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A Stash holds what was quarantined during one run, outside its workspace.
type Stash struct {
	Open   func() (*os.Root, error) // the session's directory, made when something is to be kept
	Staged string                   // a directory that becomes the stash, so that [Stash.Swap] can be used; "" for none

	staged  bool     // it is the stash
	swapped []string // the names in it of what the command went on with, see [Stash.Swap]
	mu      sync.Mutex
	dir     int // the stash, 0 while there is none
	journal *os.File
	size    int64 // of the journal
	found   []Finding
	next    int
	err     error // why nothing can be kept
	versions
}

// What is kept of all, if a command makes the same thing over and over, is what comes
// first; what is beyond stays where it is, renamed.
const (
	maxStash = 4096
	maxLines = 16 << 10
)

var errTooMany = errors.New("too many changes to be kept")

// open makes the stash.
func (s *Stash) open() error {
	if s.dir > 0 || s.err != nil {
		return s.err
	}
	s.dir, s.journal, s.err = s.make()
	return s.err
}

func (s *Stash) make() (int, *os.File, error) {
	root, err := s.Open()
	if err != nil {
		return 0, nil, err
	}
	if !s.adopt(root) {
		if err := root.Mkdir(StashName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return 0, nil, err
		}
	}
	dir, err := root.Open(StashName)
	if err != nil {
		return 0, nil, err
	}
	defer dir.Close()
	old, size, err := readJournal(root)
	if err != nil {
		return 0, nil, err
	}
	journal, err := root.OpenFile(JournalName, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, nil, err
	}
	s.found = kept(root, old)
	for _, c := range old { // a number whose file is gone, or was never moved, is told of all the same
		if n, err := strconv.Atoi(c.Stash); err == nil {
			s.next = max(s.next, n+1)
		}
	}
	err = journal.Truncate(size) // a full disk cut the last line short: the next would become part of it
	if err == nil && size == 0 {
		_, err = journal.WriteString(journalMagic)
		size = int64(len(journalMagic))
	}
	s.size = size
	if err != nil {
		journal.Close()
		return 0, nil, err
	}
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		journal.Close()
		return 0, nil, err
	}
	return fd, journal, nil
}

func (s *Stash) write(c Finding) error {
	if s.journal == nil {
		return s.err
	}
	if len(s.found) >= maxLines {
		return errTooMany
	}
	n, err := s.journal.Write(c.append(nil))
	if err != nil { // the next would become part of what there was room for
		return errors.Join(err, s.journal.Truncate(s.size))
	}
	s.size += int64(n)
	s.found = append(s.found, c)
	return nil
}

// Note keeps a finding that moves nothing, with what the file held before if
// that is known.
func (s *Stash) Note(c Finding, before []byte, known bool) Finding {
	texts := map[string][]byte{}
	if known {
		texts[""] = before
	}
	return s.store(c, texts)
}

// Pair keeps what was not taken over of a configuration, and what stood in its place.
func (s *Stash) Pair(c Finding, after, before []byte) Finding {
	return s.store(c, map[string][]byte{"": after, LeftOver: before})
}

// store keeps a finding, and texts by what ends their names in the stash.
func (s *Stash) store(c Finding, texts map[string][]byte) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := c.Kind == Inert && s.next >= maxStash // a command may write such a file over and over
	if err := s.open(); err == nil && len(texts) > 0 && !full {
		c.Stash = strconv.Itoa(s.next)
		s.next++
		for end, text := range texts {
			err = errors.Join(err, WriteNew(s.dir, c.Stash+end, text, 0o600))
		}
		if err != nil {
			c.Stash = ""
		}
	}
	s.keepLine(c)
	return c
}

// keepLine writes a finding down; one that cannot be written is reported all the same.
func (s *Stash) keepLine(c Finding) {
	if s.write(c) != nil {
		s.found = append(s.found, c)
	}
}

// Moving begins those that it has only until it is copied, or removed. What a launcher
// that was killed has left so, the next one quarantines: what another run is moving just
// then as well, since a number of a process says nothing of who chose the name.
const Moving = Prefix + "moving-"

// freeName returns a name that nothing has.
func (s *Stash) freeName(prefix string) string {
	s.next++
	return prefix + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(s.next-1)
}

// renameInPlace renames within the directory, for what cannot be kept elsewhere: it stays
// where it is, inert.
func (s *Stash) renameInPlace(dir int, name string, c Finding, why error) (Finding, error) {
	c.Stash = ""
	away := s.freeName(Prefix)
	if err := Move(dir, name, dir, away); beneath.Gone(err) {
		return c, err
	} else if err != nil {
		return c, errors.Join(why, err)
	}
	c.What += fmt.Sprintf(", renamed to %s: %v", away, why)
	return c, nil
}

// Move moves an entry, never over another, and with what its owner needs: a directory can be moved only by who may write
// in it, and out of one that he may write in.
func Move(from int, name string, to int, as string) error {
	err := beneath.Rename(from, name, to, as)
	if err != unix.EACCES {
		return err
	}
	_ = beneath.Unlock(from, "")
	_ = beneath.Unlock(from, name)
	return beneath.Rename(from, name, to, as)
}

// Settle ends the stash, and returns all that was found.
func (s *Stash) Settle() []Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir > 0 {
		s.versions.settle(s.dir)
		s.found = slices.DeleteFunc(s.found, func(c Finding) bool { // one that the command left empty is nothing to decide about
			return slices.Contains(s.swapped, c.Stash) && unix.Unlinkat(s.dir, c.Stash, unix.AT_REMOVEDIR) == nil
		})
		unix.Close(s.dir)
		s.journal.Close()
		s.dir = 0
		s.err = os.ErrClosed
	}
	if s.Staged != "" && !s.staged {
		_ = unix.Rmdir(s.Staged) // empty: nobody but [Stash.Swap] puts anything there
	}
	return Merge(s.found)
}

// WriteNew makes a file that must not exist.
func WriteNew(dir int, name string, b []byte, mode uint32) error {
	return WriteNewFor(func(int) error { return nil }, dir, name, b, mode)
}

// WriteNewFor gives the file to somebody before it has its mode.
func WriteNewFor(chown func(fd int) error, dir int, name string, b []byte, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(b); err == nil {
		err = chown(fd)
	}
	if e := unix.Fchmod(fd, mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
