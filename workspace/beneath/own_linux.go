package beneath

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Unlock makes a directory of the user's own readable, writable and searchable
// for him.
func Unlock(root int, rel string) error {
	if rel == "" { // even "." is looked up in what cannot be searched
		return ChmodPath(root, 0o700)
	}
	fd, err := Open(root, rel, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return ChmodPath(fd, 0o700)
}

// ChmodPath adds bits to the mode of what an O_PATH descriptor names.
func ChmodPath(fd int, bits uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), st.Mode&0o7777|bits, 0)
}

// Allow adds bits to the mode of a file.
func Allow(dir int, name string, bits uint32) error {
	fd, err := Open(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return ChmodPath(fd, bits)
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
