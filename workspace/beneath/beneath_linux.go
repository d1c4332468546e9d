package beneath

import (
	"strings"

	"golang.org/x/sys/unix"
)

// handle opens what is only a place to start from, whether it can be read or not.
const handle = unix.O_PATH

// Getdents is getdents64(2), again if a signal came in between.
func Getdents(fd int, buf []byte) (int, error) {
	for {
		n, err := unix.Getdents(fd, buf)
		if err != unix.EINTR {
			return n, err
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

// ReadLinkBelow returns what the link at a path below a directory says, and follows none on the way.
func ReadLinkBelow(dirfd int, rel string) (string, error) {
	fd, err := Open(dirfd, rel, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return ReadLink(fd, "")
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

// Rename is renameat2(2) without replacing.
func Rename(from int, name string, to int, as string) error {
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
