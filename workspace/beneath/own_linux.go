package beneath

import (
	"path/filepath"
	"strconv"
	"strings"

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

// OpenOwnDir opens a directory of the user's own, whatever its mode.
func OpenOwnDir(dir int, name string) (int, error) {
	fd, err := Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && Unlock(dir, name) == nil {
		fd, err = Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
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

func OpenOwn(dir int, name string) (fd int, err error) {
	fd, err = Open(dir, name, unix.O_RDONLY)
	if err == unix.EACCES {
		if path, e := Open(dir, name, unix.O_PATH); e == nil {
			_ = ChmodPath(path, 0o400)
			unix.Close(path)
		}
		fd, err = Open(dir, name, unix.O_RDONLY)
	}
	return fd, err
}

// ParentOf opens the directory that an absolute path lies in, following no link.
func ParentOf(path string) (fd int, name string, err error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", err
	}
	defer unix.Close(root)
	dir, name := filepath.Split(path)
	fd, err = Open(root, strings.Trim(dir, "/"), unix.O_PATH|unix.O_DIRECTORY)
	return fd, name, err
}
