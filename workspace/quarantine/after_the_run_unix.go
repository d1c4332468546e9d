//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/vcs"
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

// KeepText keeps what a file held, and returns its name in the stash.
func KeepText(session *os.Root, text []byte) (string, error) {
	if err := session.Mkdir(StashName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	old, _, err := readJournal(session)
	if err != nil {
		return "", err
	}
	name := strconv.Itoa(len(old))
	f, err := session.OpenFile(StashName+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	return name, errors.Join(err, f.Close())
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

// Show calls yield with the files of what is in the stash: their path below the finding's, and
// what they hold, nil if that is not to be shown and then why not.
func (c Finding) Show(session *os.Root, yield func(path string, content []byte, why string)) (err error) {
	stash, err := session.OpenRoot(StashName)
	if err != nil {
		return err
	}
	defer stash.Close()
	left := maxShown
	parts := c.Parts
	if parts == nil {
		parts = []Finding{c}
	}
	for _, p := range parts {
		if p.Stash != "" {
			err = errors.Join(err, show(stash, p.Stash, strings.TrimPrefix(p.Path, c.Path), &left, yield))
		}
	}
	return err
}

// maxShown bounds the files of a finding that are shown.
const maxShown = 100

func show(dir *os.Root, name, path string, left *int, yield func(string, []byte, string)) error {
	info, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	if *left--; *left <= 0 {
		if *left == 0 {
			yield(path, nil, "and more")
		}
		return nil
	}
	switch {
	case info.IsDir():
		if info.Mode()&0o700 != 0o700 { // its maker has closed it
			if err := dir.Chmod(name, 0o700); err != nil {
				return err
			}
		}
		in, err := dir.OpenRoot(name)
		if err != nil {
			return err
		}
		defer in.Close()
		list, err := fs.ReadDir(in.FS(), ".")
		for _, e := range list {
			err = errors.Join(err, show(in, e.Name(), path+"/"+e.Name(), left, yield))
		}
		return err
	case info.Mode().IsRegular():
		b, err := ownBody(dir, name, info)
		if err != nil {
			yield(path, nil, fmt.Sprintf("%d bytes, not shown", info.Size()))
			return nil
		}
		yield(path, b, "")
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := dir.Readlink(name)
		if err != nil {
			return err
		}
		yield(path, nil, "a link to "+to)
	default:
		yield(path, nil, "a special file")
	}
	return nil
}

// ownBody reads a file of the stash. One that has another name, through which a later run could change
// it between a look and an acceptance, gets a body of its own first.
func ownBody(dir *os.Root, name string, info fs.FileInfo) ([]byte, error) {
	if info.Size() > vcs.MaxOriginal {
		return nil, fmt.Errorf("limit %d", vcs.MaxOriginal)
	}
	if info.Mode()&0o400 == 0 {
		if err := dir.Chmod(name, info.Mode().Perm()|0o400); err != nil {
			return nil, err
		}
	}
	b, err := dir.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		temp := name + ".new"
		if err := dir.WriteFile(temp, b, info.Mode().Perm()); err != nil {
			return nil, err
		}
		err = dir.Rename(temp, name)
	}
	return b, err
}

// ReadNow returns what stands at a path: a regular file that is not too large, found without
// following a link.
func ReadNow(path string) ([]byte, error) {
	dir, err := OpenDirectory(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return ReadIn(dir, filepath.Base(path), vcs.MaxOriginal)
}

// ReadIn reads a regular file in a directory, not through a link.
func ReadIn(dir *os.File, name string, limit int64) ([]byte, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%d bytes, limit %d", info.Size(), limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}
