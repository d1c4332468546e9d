//go:build linux || darwin

package quarantine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// What stands here needs no call that Linux alone has. It is for a run that has ended.

// Restore puts back what was quarantined, where it stood: never through a link,
// never over what the host has made since. Of a git directory all is put back, or nothing
// where something has one of the names; of several versions of a name the last.
func (c Finding) Restore(session *os.Root) error {
	parts := map[string]Finding{}
	for _, p := range c.Parts {
		if p.Stash == "" {
			continue
		}
		parts[p.Path] = p
		var st unix.Stat_t
		if unix.Lstat(p.Path, &st) == nil {
			return fmt.Errorf("restore %s: %w", beneath.Shorten(p.Path), ErrInTheWay)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(parts)) {
		if err := parts[path].Restore(session); err != nil {
			return err
		}
	}
	if len(parts) > 0 {
		return nil
	}
	if c.Kind != Stashed && c.Kind != Inert && c.Kind != Setting || c.Stash == "" {
		return fmt.Errorf("restore %s: it is not in quarantine", beneath.Shorten(c.Path))
	}
	if err := c.restore(session, true); err != nil {
		return fmt.Errorf("restore %s: %w", beneath.Shorten(c.Path), err)
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
		var b []byte
		err := ErrUnseen
		if info.Size() <= vcs.MaxOriginal {
			b, err = dir.ReadFile(name)
		}
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
