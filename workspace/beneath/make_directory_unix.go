//go:build linux || darwin

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
