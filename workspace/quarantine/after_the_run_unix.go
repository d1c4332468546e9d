//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// What stands here needs no call that Linux alone has. It is for a run that has ended: nobody
// makes the same name again, and an entry is moved once.

// maxAfter bounds what is moved into the stash after a run.
const maxAfter = 4096

// MoveOut moves an entry of a directory into the stash of a session, and writes down what c says of
// it first. Where the stash lies on another file system, or has too much, the entry stays, under a
// name that no tool knows.
func MoveOut(session *os.Root, dir int, name string, c Finding) (Finding, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return c, err
	}
	c.Mode = uint32(st.Mode)
	if err := session.Mkdir(StashName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return c, err
	}
	stash, err := session.Open(StashName)
	if err != nil {
		return c, err
	}
	defer stash.Close()
	old, _, err := readJournal(session)
	if err != nil {
		return c, err
	}
	number := strconv.Itoa(len(old)) // a line stays when its file is gone
	if len(old) < maxAfter {
		c.Stash = number
		if err := Note(session, c); err != nil {
			return c, err
		}
		if err = moveAny(dir, name, int(stash.Fd()), c.Stash); err == nil {
			return c, nil
		}
		c.Stash = ""
	} else {
		err = errors.New("the stash is full")
	}
	away := Prefix + strconv.Itoa(os.Getpid()) + "-" + number
	if e := moveAny(dir, name, dir, away); e != nil {
		return c, errors.Join(err, e)
	}
	c.What += fmt.Sprintf(", renamed to %s: %v", away, err)
	return c, Note(session, c)
}

// moveAny moves what its maker has closed to its owner too.
func moveAny(from int, name string, to int, as string) error {
	err := rename(from, name, to, as)
	var st unix.Stat_t
	if err != unix.EACCES || unix.Fstat(from, &st) != nil {
		return err
	}
	_ = unix.Fchmod(from, uint32(st.Mode)&0o7777|0o700)
	if unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		_ = unix.Fchmodat(from, name, uint32(st.Mode)&0o7777|0o700, 0)
	}
	return rename(from, name, to, as)
}

// Note writes a finding down that moves nothing.
func Note(session *os.Root, c Finding) error {
	f, err := session.OpenFile(JournalName, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	line := c.append(nil)
	if info.Size() == 0 {
		line = append([]byte(journalMagic), line...)
	}
	if _, err = f.Write(line); err != nil { // the next would become part of what there was room for
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return nil
}

// PutBack moves a finding back to where it stood, or its parts: through no link, and over nothing.
func (c Finding) PutBack(session *os.Root) error {
	var errs []error
	for _, p := range c.Parts {
		if p.Stash != "" {
			errs = append(errs, p.PutBack(session))
		}
	}
	if len(c.Parts) > 0 {
		return errors.Join(errs...)
	}
	err := func() error {
		if c.Stash == "" {
			return errors.New("it is not in quarantine")
		}
		stash, err := session.Open(StashName)
		if err != nil {
			return err
		}
		defer stash.Close()
		dir, err := OpenDirectory(filepath.Dir(c.Path))
		if err != nil {
			return err
		}
		defer dir.Close()
		err = rename(int(stash.Fd()), c.Stash, int(dir.Fd()), filepath.Base(c.Path))
		if errors.Is(err, unix.EEXIST) {
			return ErrInTheWay
		}
		return err
	}()
	if err != nil {
		return fmt.Errorf("restore %s: %w", c.Path, err)
	}
	return nil
}

// OpenDirectory opens a directory by its absolute path, following no link.
func OpenDirectory(path string) (*os.File, error) {
	fd, err := openDirectory(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// OpenIn opens a directory in another one, not through a link.
func OpenIn(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
