package beneath

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotMade is for a name under which something else stands than what was just
// made there.
var ErrNotMade = errors.New("somebody else has put something there")

// MakeDir makes a directory that nobody else may enter, and opens it.
func MakeDir(dir int, name string) (fd int, err error) {
	if err := unix.Mkdirat(dir, name, 0o700); err != nil {
		return -1, os.NewSyscallError("mkdirat", err)
	}
	fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("openat", err)
	}
	if err = Empty(fd); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", name, err)
	}
	return fd, nil
}

// Closed refuses, as root, a directory that others may enter. Anybody else has
// nothing to fear in a directory that he may write, and file systems that keep
// no modes to reckon with.
func Closed(fd int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Uid != 0 || st.Mode&0o777 != 0o700 {
		return ErrNotMade
	}
	return nil
}

// Empty refuses a directory that has entries.
func Empty(fd int) error {
	list, err := Entries(fd)
	if err == nil && len(list) > 0 {
		err = ErrNotMade
	}
	return err
}

// ChownMade gives the link or FIFO that was just made at a name to an owner; -1
// leaves one as it is. What has other names is not what was made, nor is what
// belongs to somebody else. A file is not either: one of ours that stands in a
// directory of somebody else's can be moved to that name.
func ChownMade(dir int, name string, uid, gid int) error {
	if uid < 0 && gid < 0 {
		return nil
	}
	fd, err := Open(dir, name, unix.O_PATH)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	kind := st.Mode & unix.S_IFMT
	if st.Nlink != 1 || int(st.Uid) != os.Geteuid() || kind != unix.S_IFLNK && kind != unix.S_IFIFO {
		return fmt.Errorf("%s: %w", name, ErrNotMade)
	}
	return os.NewSyscallError("fchownat", unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH))
}

// Entries lists a directory, opened for reading.
func Entries(fd int) ([]string, error) {
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
