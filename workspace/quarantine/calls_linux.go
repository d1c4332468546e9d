package quarantine

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// openDirectory opens a directory by its absolute path, following no link.
func openDirectory(path string) (int, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(root)
	return beneath.Open(root, strings.TrimPrefix(path, "/"), unix.O_RDONLY|unix.O_DIRECTORY)
}

// rename is renameat2(2) without replacing.
func rename(from int, name string, to int, as string) error {
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
