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
	Open func() (*os.Root, error) // the session's directory, made when something is to be kept

	mu      sync.Mutex
	dir     int // the stash, 0 while there is none
	journal *os.File
	size    int64 // of the journal
	found   []Finding
	next    int
	names   map[string]int // how often a path was quarantined
	late    map[string]int // files that were copied, by their name in the stash: the command may still write to them
	err     error          // why nothing can be kept
}

// maxLate bounds the files that are held open until the end.
const maxLate = 64

// What is kept of one path, and of all, if a command makes the same thing over
// and over: of one path the first and the very last, and of all what comes
// first; what is beyond stays where it is, renamed.
const (
	maxSame  = 16
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
	s.names, s.late = map[string]int{}, map[string]int{}
	return s.err
}

func (s *Stash) make() (int, *os.File, error) {
	root, err := s.Open()
	if err != nil {
		return 0, nil, err
	}
	if err := root.Mkdir(StashName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, nil, err
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

// note keeps a finding that moves nothing, with what the file held before if
// that is known.
func (s *Stash) Note(c Finding, before []byte, known bool) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.open()
	if err == nil && known {
		c.Stash = strconv.Itoa(s.next)
		s.next++
		if WriteNew(s.dir, c.Stash, before, 0o600) != nil {
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

// beside returns a name that nothing has.
func (s *Stash) beside(prefix string) string {
	s.next++
	return prefix + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(s.next-1)
}

// take moves the entry of a directory into the stash. Where the stash lies on
// another file system or cannot be made, it is given a name that nothing looks
// for, and then copied as far as that is possible.
func (s *Stash) Take(dir int, name string, c Finding) (Finding, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	if err := beneath.Stat(dir, name, &st); err != nil {
		return c, err
	}
	c.Mode, c.What = st.Mode, beneath.KindOf(st.Mode).String()
	err := s.open()
	if err == nil {
		if s.names[c.Path]++; s.names[c.Path] > maxSame {
			if i := s.last(c.Path); i >= 0 {
				return s.replace(i, dir, name, c)
			}
		}
		if s.next >= maxStash {
			return s.away(dir, name, c, errors.New("the stash is full"))
		}
		c.Stash = strconv.Itoa(s.next)
		s.next++
		if err = s.write(c); err == nil {
			err = Move(dir, name, s.dir, c.Stash)
			if err == nil {
				return c, nil
			}
			s.found = s.found[:len(s.found)-1]
			if beneath.Gone(err) && beneath.Gone(beneath.Stat(dir, name, &st)) { // else it is the stash that is gone
				return c, err
			}
		}
		c.Stash = ""
	}
	return s.aside(dir, name, c, err)
}

// last returns the last version that is kept of a path, -1 if none is.
func (s *Stash) last(path string) int {
	for i, f := range slices.Backward(s.found) {
		if f.Path == path && f.Kind == Stashed && f.Stash != "" {
			return i
		}
	}
	return -1
}

// replace puts a version in the place of the last one: of many, the first and
// the very last are kept, since the host may have made that.
func (s *Stash) replace(i, dir int, name string, c Finding) (Finding, error) {
	c.Stash = s.found[i].Stash
	err := RemoveTree(s.dir, c.Stash)
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
	copier := copier{room: maxCopy, entries: maxCopied, modes: true}
	if err := copier.copy(dir, name, s.dir, c.Stash); err != nil {
		_ = RemoveTree(s.dir, c.Stash)
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
		s.late[c.Stash] = fd
	} else if err == nil {
		unix.Close(fd)
	}
	return nil
}

// away renames within the directory, for what cannot be kept elsewhere: it stays
// where it is, inert.
func (s *Stash) away(dir int, name string, c Finding, why error) (Finding, error) {
	away := s.beside(Prefix)
	if err := Move(dir, name, dir, away); beneath.Gone(err) {
		return c, err
	} else if err != nil {
		return c, errors.Join(why, err)
	}
	c.What += fmt.Sprintf(", renamed to %s: %v", away, why)
	return c, nil
}

// Settle ends the stash, and returns all that was found.
func (s *Stash) Settle() []Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir > 0 {
		for name, fd := range s.late {
			// What was written after it was copied; it is the last to know of it.
			var st unix.Stat_t // of the copy: to read the other, its mode may have been changed
			err := beneath.Stat(s.dir, name, &st)
			if b, e := beneath.ReadFile(fd, maxCopy); err == nil && e == nil && len(b) > 0 {
				_ = unix.Unlinkat(s.dir, name, 0)
				_ = WriteNew(s.dir, name, b, st.Mode&0o777)
			}
		}
		s.late = nil
		unix.Close(s.dir)
		s.journal.Close()
		s.dir = 0
		s.err = os.ErrClosed
	}
	return Merge(s.found)
}

// Pair keeps what was not taken over of a configuration, and what stood in its place.
func (s *Stash) Pair(c Finding, after, before []byte) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.open()
	if err == nil && s.next < maxStash {
		c.Stash = strconv.Itoa(s.next)
		s.next++
		if err = errors.Join(WriteNew(s.dir, c.Stash+LeftOver, before, 0o600), WriteNew(s.dir, c.Stash, after, 0o600)); err != nil {
			c.Stash = ""
		}
	}
	s.keepLine(c)
	return c
}

// Left keeps what was left of a configuration that was taken.
func (s *Stash) Left(c Finding, left []byte) error {
	return WriteNew(s.dir, c.Stash+LeftOver, left, 0o600)
}

// Move is renameat2(2) without replacing, and with what its owner needs: a
// directory can be moved only by who may write in it, and out of one that he
// may write in.
func Move(from int, name string, to int, as string) error {
	err := rename(from, name, to, as)
	if err != unix.EACCES {
		return err
	}
	_ = beneath.ChmodPath(from, 0o700)
	if fd, e := beneath.Open(from, name, unix.O_PATH); e == nil {
		_ = beneath.ChmodPath(fd, 0o700)
		unix.Close(fd)
	}
	return rename(from, name, to, as)
}

// RemoveTree removes an entry with all below it, following nothing.
func RemoveTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EACCES {
		_ = beneath.ChmodPath(dir, 0o700)
		err = unix.Unlinkat(dir, name, 0)
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	fd, err := beneath.OpenOwnDir(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, err := beneath.Entries(fd)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := RemoveTree(fd, e); err != nil && !beneath.Gone(err) {
			return err
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// What is copied of one entry where it cannot be moved.
const (
	maxCopy   = 64 << 20
	maxCopied = 100_000
)

// A copier copies trees within bounds.
type copier struct {
	room    int64
	entries int
	modes   bool         // keep those of directories: nothing is written there any more
	plain   bool         // leave out what is neither file, link nor directory
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
	if k.plain && !slices.Contains([]uint32{unix.S_IFREG, unix.S_IFLNK, unix.S_IFDIR}, st.Mode&unix.S_IFMT) {
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return k.file(from, name, to, as, &st)
	case unix.S_IFDIR:
		return k.dir(from, name, to, as, &st)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, buf)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(buf[:n]), to, as); err != nil {
			return err
		}
	default: // a socket or FIFO: that there was one
		if err := unix.Mknodat(to, as, unix.S_IFIFO|0o600, 0); err != nil {
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
	if err := k.chown(dst); err != nil || !k.modes {
		return err
	}
	return unix.Fchmod(dst, st.Mode&0o777)
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
	return WriteNewFor(k.chown, to, as, b, st.Mode&0o777)
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
