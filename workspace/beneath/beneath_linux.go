package beneath

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// Getdents is getdents64(2), again if a signal came in between.
func Getdents(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(fd, buf)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// Each calls look with the name of each entry of a directory, opened for reading. The name
// is gone when look returns, and a NUL stands behind it. buf takes what the kernel says at
// once. The errors are those of getdents64(2).
func Each(fd int, buf []byte, look func(name []byte)) error {
	for {
		n, err := Getdents(fd, buf)
		if err != nil || n == 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			// struct linux_dirent64, see getdents64(2)
			size := binary.NativeEndian.Uint16(b[16:])
			name := b[19:size]
			b = b[size:]
			if name = name[:bytes.IndexByte(name, 0)]; string(name) != "." && string(name) != ".." {
				look(name)
			}
		}
	}
}

// Open opens a path below a directory without following any link.
func Open(dirfd int, rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK // a FIFO must not hold the launch up
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(dirfd, rel, &how)
		switch err {
		case unix.EINTR:
			continue
		case unix.ENOSYS:
			return OpenStepwise(dirfd, rel, flags)
		case unix.ENAMETOOLONG:
			// Longer than the kernel takes at once: as much as it does first.
			i := strings.LastIndexByte(rel[:min(len(rel), unix.PathMax-1)], '/')
			if i < 0 {
				return fd, err
			}
			at, err := Open(dirfd, rel[:i], unix.O_PATH|unix.O_DIRECTORY)
			if err != nil {
				return at, err
			}
			defer unix.Close(at)
			return Open(at, rel[i+1:], flags)
		}
		return fd, err
	}
}

// OpenStepwise does what Open does, name by name, where an outer sandbox
// has no openat2(2).
func OpenStepwise(dirfd int, rel string, flags int) (int, error) {
	at := dirfd
	for {
		name, rest, more := strings.Cut(rel, "/")
		f := flags
		if more {
			f = unix.O_PATH | unix.O_DIRECTORY
		}
		fd, err := unix.Openat(at, name, f|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if at != dirfd {
			unix.Close(at)
		}
		if err != nil || !more {
			return fd, err
		}
		at, rel = fd, rest
	}
}

// Stat returns the status of a path below a directory, of a link itself
// if it is one. A directory on the way may have become a link in between: what
// comes out then is a status of something else, whose inode the caller finds
// to be another.
func Stat(dirfd int, rel string, st *unix.Stat_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	if rel == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	for {
		err := unix.Fstatat(dirfd, rel, st, flags)
		switch err {
		case unix.EINTR:
			continue
		case unix.ENAMETOOLONG:
			fd, err := Open(dirfd, rel, unix.O_PATH)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Fstat(fd, st)
		}
		return err
	}
}

// DirentType asks for the kind of an entry where readdir does not say it.
func DirentType(dirfd int, name string) byte {
	var st unix.Stat_t
	if Stat(dirfd, name, &st) != nil {
		return unix.DT_UNKNOWN
	}
	return byte(st.Mode & unix.S_IFMT >> 12)
}

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
