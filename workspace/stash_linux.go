package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The names within a session's directory.
const (
	StashName   = "stash"   // a directory: what was set aside, by number
	JournalName = "changes" // a line for each change, written before what it tells of is done
)

// A Stash holds what was set aside during one run, outside its workspace.
type Stash struct {
	Open func() (*os.Root, error) // the session's directory, made when something is to be kept

	mu      sync.Mutex
	dir     int // the stash, 0 while there is none
	journal *os.File
	changes []Change
	next    int
	names   map[string]int // how often a path was set aside
	err     error          // why nothing can be kept
}

// What is kept of one path, and of all, if a command makes the same thing over
// and over: what is beyond is removed.
const (
	maxSame  = 16
	maxStash = 4096
	maxLines = 16 << 10
)

// open makes the stash.
func (s *Stash) open() error {
	if s.dir > 0 || s.err != nil {
		return s.err
	}
	s.dir, s.journal, s.err = s.make()
	s.names = map[string]int{}
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
	old, err := readJournal(root)
	if err != nil {
		return 0, nil, err
	}
	journal, err := root.OpenFile(JournalName, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, nil, err
	}
	s.changes = old
	for _, c := range old {
		if n, err := strconv.Atoi(c.Stash); err == nil {
			s.next = max(s.next, n+1)
		}
	}
	if len(old) == 0 {
		if _, err := journal.WriteString(journalMagic); err != nil {
			journal.Close()
			return 0, nil, err
		}
	}
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		journal.Close()
		return 0, nil, err
	}
	return fd, journal, nil
}

func (s *Stash) write(c Change) error {
	if s.journal == nil {
		return s.err
	}
	if len(s.changes) >= maxLines {
		return nil
	}
	s.changes = append(s.changes, c)
	_, err := s.journal.Write(c.append(nil))
	return err
}

// note keeps a change that moves nothing.
func (s *Stash) note(c Change) Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open() != nil || s.write(c) != nil {
		s.changes = append(s.changes, c) // it is told all the same
	}
	return c
}

// inert begins the names that something gets where it stands, when it cannot
// be moved out of the workspace at once. No tool knows such a name.
const inert = ".pccrun-set-aside-"

// take moves the entry of a directory into the stash. Where the stash lies on
// another file system or cannot be made, it is given a name that nothing looks
// for, and then copied as far as that is possible.
func (s *Stash) take(dir int, name string, c Change) (Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	if err := statBeneath(dir, name, &st); err != nil {
		return c, err
	}
	c.Mode, c.What = st.Mode, kindOfMode(st.Mode).String()
	err := s.open()
	if err == nil {
		if s.names[c.Path]++; s.names[c.Path] > maxSame || s.next >= maxStash {
			c.What += ", removed: there were too many"
			return c, removeTree(dir, name)
		}
		c.Stash = strconv.Itoa(s.next)
		if err = s.write(c); err == nil {
			s.next++
			err = move(dir, name, s.dir, c.Stash)
			if err == nil || gone(err) {
				return c, err
			}
		}
		c.Stash = ""
	}
	return s.aside(dir, name, c, err)
}

// aside renames within the directory, and then copies into the stash.
func (s *Stash) aside(dir int, name string, c Change, why error) (Change, error) {
	away := inert + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(s.next)
	s.next++
	if err := move(dir, name, dir, away); err != nil {
		if gone(err) {
			return c, err
		}
		return c, errors.Join(why, err)
	}
	if s.dir > 0 {
		c.Stash = strconv.Itoa(s.next)
		s.next++
		copier := copier{room: maxCopy, entries: maxCopied}
		err := s.write(c)
		if err == nil {
			err = copier.copy(dir, away, s.dir, c.Stash)
		}
		if err == nil {
			return c, removeTree(dir, away)
		}
		_ = removeTree(s.dir, c.Stash)
		c.Stash, why = "", err
	}
	// What cannot be kept elsewhere stays where it is, inert.
	c.What += fmt.Sprintf(", renamed to %s: %v", away, why)
	return c, s.write(c)
}

// settle ends the stash: what is in it is no longer any other file's second
// name, which a later run could write through. It returns all changes.
func (s *Stash) settle() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir > 0 {
		for _, c := range s.changes {
			if c.Stash != "" {
				detach(s.dir, c.Stash)
			}
		}
		unix.Close(s.dir)
		s.journal.Close()
		s.dir = 0
		s.err = os.ErrClosed
	}
	return s.changes
}

// readJournal returns what the journal of a session's directory tells of.
func readJournal(root *os.Root) ([]Change, error) {
	f, err := root.Open(JournalName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxJournal {
		return nil, fmt.Errorf("read %s: %d bytes: %w", JournalName, info.Size(), ErrTooMuch)
	}
	b := make([]byte, info.Size())
	n, err := f.ReadAt(b, 0)
	if n < len(b) {
		return nil, err
	}
	return ParseJournal(string(b))
}

// maxJournal bounds the journal: the longest lines that a path allows.
const maxJournal = 256 << 20

// move is renameat2(2) without replacing, and with what its owner needs: a
// directory can be moved only by who may write in it, and out of one that he
// may write in.
func move(from int, name string, to int, as string) error {
	err := rename(from, name, to, as)
	if err != unix.EACCES {
		return err
	}
	_ = chmodPath(from, 0o700)
	if fd, e := openBeneath(from, name, unix.O_PATH); e == nil {
		_ = chmodPath(fd, 0o700)
		unix.Close(fd)
	}
	return rename(from, name, to, as)
}

func rename(from int, name string, to int, as string) error {
	for {
		err := unix.Renameat2(from, name, to, as, unix.RENAME_NOREPLACE)
		switch err {
		case unix.EINTR:
			continue
		case unix.EINVAL: // a file system without the flag; the names are ours
			return unix.Renameat(from, name, to, as)
		}
		return err
	}
}

// entries lists a directory, opened for reading.
func entries(fd int) ([]string, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "directory")
	defer f.Close()
	if _, err := f.Seek(0, 0); err != nil {
		return nil, err
	}
	return f.Readdirnames(-1)
}

// removeTree removes an entry with all below it, following nothing.
func removeTree(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EACCES {
		_ = chmodPath(dir, 0o700)
		err = unix.Unlinkat(dir, name, 0)
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	fd, err := openDirOf(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	list, err := entries(fd)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := removeTree(fd, e); err != nil && !gone(err) {
			return err
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// openDirOf opens a directory of the user's own, whatever its mode.
func openDirOf(dir int, name string) (int, error) {
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && unlock(dir, name) == nil {
		fd, err = openBeneath(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return fd, err
}

// What is copied of one entry where it cannot be moved.
const (
	maxCopy   = 256 << 20
	maxCopied = 100_000
)

// A copier copies trees within bounds.
type copier struct {
	room    int64
	entries int
}

func (k *copier) copy(from int, name string, to int, as string) error {
	var st unix.Stat_t
	if err := statBeneath(from, name, &st); err != nil {
		return err
	}
	if k.entries--; k.entries < 0 {
		return ErrTooMuch
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return k.file(from, name, to, as, &st)
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, buf)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(buf[:n]), to, as)
	case unix.S_IFDIR:
		return k.dir(from, name, to, as)
	}
	return unix.Mknodat(to, as, unix.S_IFIFO|0o600, 0) // a socket or FIFO: that there was one
}

func (k *copier) dir(from int, name string, to int, as string) error {
	src, err := openDirOf(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	if err := unix.Mkdirat(to, as, 0o700); err != nil {
		return err
	}
	dst, err := openBeneath(to, as, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dst)
	list, err := entries(src)
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := k.copy(src, e, dst, e); err != nil {
			return err
		}
	}
	return nil
}

func (k *copier) file(from int, name string, to int, as string, st *unix.Stat_t) error {
	if k.room -= st.Size; k.room < 0 {
		return ErrTooMuch
	}
	src, err := openBeneath(from, name, unix.O_RDONLY)
	if err == unix.EACCES {
		if fd, e := openBeneath(from, name, unix.O_PATH); e == nil {
			_ = chmodPath(fd, 0o400)
			unix.Close(fd)
		}
		src, err = openBeneath(from, name, unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	b, err := readFile(src, st.Size)
	if err != nil {
		return err
	}
	return writeNew(to, as, b, st.Mode&0o777|0o600)
}

// writeNew makes a file that must not exist.
func writeNew(dir int, name string, b []byte, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(b)
	if e := unix.Fchmod(fd, mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// detach gives each file of an entry that has other names a body of its own.
func detach(dir int, name string) {
	var st unix.Stat_t
	if statBeneath(dir, name, &st) != nil {
		return
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err := openDirOf(dir, name)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		list, _ := entries(fd)
		for _, e := range list {
			detach(fd, e)
		}
	case unix.S_IFREG:
		if st.Nlink < 2 {
			return
		}
		k := copier{room: maxCopy, entries: 1}
		temp := name + ".new"
		if strings.HasSuffix(name, ".new") {
			temp = name + ".own"
		}
		if k.copy(dir, name, dir, temp) != nil || unix.Renameat(dir, temp, dir, name) != nil {
			_ = unix.Unlinkat(dir, temp, 0)
		}
	}
}
