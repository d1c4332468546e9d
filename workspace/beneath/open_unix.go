//go:build linux || darwin

package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenPath opens an absolute path, following no link.
func OpenPath(path string, flags int) (int, error) {
	root, err := unix.Open("/", handle|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return Open(root, strings.Trim(path, "/"), flags)
}

// OpenDirectory opens a directory by its absolute path, following no link.
func OpenDirectory(path string) (*os.File, error) {
	fd, err := OpenPath(path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// ParentOf opens the directory that an absolute path lies in, following no link.
func ParentOf(path string) (fd int, name string, err error) {
	dir, name := filepath.Split(path)
	fd, err = OpenPath(dir, handle|unix.O_DIRECTORY)
	return fd, name, err
}

// OpenOwnDir opens a directory of the user's own, whatever its mode.
func OpenOwnDir(dir int, name string) (int, error) {
	fd, err := Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && Unlock(dir, name) == nil {
		fd, err = Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	}
	return fd, err
}

// OpenOwn opens a file of the user's own for reading, whatever its mode.
func OpenOwn(dir int, name string) (int, error) {
	fd, err := Open(dir, name, unix.O_RDONLY)
	if err == unix.EACCES && Allow(dir, name, 0o400) == nil {
		fd, err = Open(dir, name, unix.O_RDONLY)
	}
	return fd, err
}

// ReadOwn reads a file of the user's own, whatever its mode.
func ReadOwn(dir int, name string, limit int64) ([]byte, error) {
	fd, err := OpenOwn(dir, name)
	if err != nil {
		return nil, err
	}
	return ReadFile(fd, limit)
}

// ReadPath reads a regular file of at most limit bytes by its absolute path, following no link.
func ReadPath(path string, limit int64) ([]byte, error) {
	dir, name, err := ParentOf(path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	return ReadIn(dir, name, limit)
}

// ReadIn reads a regular file of at most limit bytes below a directory, following no link.
func ReadIn(dir int, rel string, limit int64) ([]byte, error) {
	fd, err := Open(dir, rel, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	return ReadFile(fd, limit)
}

// StandsAs reports whether what was opened still stands under its name.
func StandsAs(fd, dir int, name string) bool {
	var opened, named unix.Stat_t
	return unix.Fstat(fd, &opened) == nil && Stat(dir, name, &named) == nil && opened.Dev == named.Dev && opened.Ino == named.Ino
}

// ReadLink returns what the link at a name in a directory says.
func ReadLink(dir int, name string) (string, error) {
	text := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, text)
	return string(text[:max(n, 0)]), err
}

// ErrNotRegular is returned for what was to be read and is no file.
var ErrNotRegular = errors.New("not a regular file")

// ReadFile reads a regular file of at most limit bytes through fd, and closes it.
func ReadFile(fd int, limit int64) ([]byte, error) {
	defer unix.Close(fd)
	return ReadOpen(fd, limit)
}

// ReadOpen reads a regular file of at most limit bytes from its beginning, and leaves it open.
func ReadOpen(fd int, limit int64) ([]byte, error) {
	for range grows {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return nil, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil, ErrNotRegular
		}
		if st.Size > limit {
			return nil, fmt.Errorf("%d bytes, limit %d: %w", st.Size, limit, ErrTooMuch)
		}
		// One byte more than it should have tells whether it grew meanwhile.
		buf := make([]byte, st.Size+1)
		n, err := pread(fd, buf)
		if err != nil {
			return nil, err
		}
		if n < len(buf) {
			return buf[:n], nil
		}
	}
	return nil, fmt.Errorf("grew while it was read: %w", ErrTooMuch)
}

// grows is how often a file is read that grows meanwhile.
const grows = 8

// pread fills a buffer from the beginning of a file, without the runtime's poller; fewer bytes are all that there is.
func pread(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pread(fd, b[n:], int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil || m == 0:
			return n, err
		}
		n += m
	}
	return n, nil
}
