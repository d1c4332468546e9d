//go:build linux || darwin

package beneath

import (
	"errors"
	"fmt"
	"io"
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
	if err == unix.EACCES && allow(dir, name, 0o400) == nil {
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
		n, err := io.ReadFull(io.NewSectionReader(Reader(fd), 0, st.Size+1), buf)
		if err == nil {
			continue
		}
		if err != io.EOF && err != io.ErrUnexpectedEOF {
			return nil, err
		}
		return buf[:n], nil
	}
	return nil, fmt.Errorf("grew while it was read: %w", ErrTooMuch)
}

// grows is how often a file is read that grows meanwhile.
const grows = 8

// Reader reads from a descriptor without the runtime's poller.
type Reader int

func (fd Reader) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(int(fd), b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(b) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// ReadAt is that of [io.ReaderAt].
func (fd Reader) ReadAt(b []byte, at int64) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pread(int(fd), b[n:], at+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return n, err
		case m == 0:
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}
