package workspace

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A layer needs a directory of the host's to lie on. Of an agent's own that does not stand there
// the launcher makes an empty one, which no tool executes anything of, and takes it away when
// the run is over. The mark says whose it is: one that the user has made stays.
const madeMark = "user.pccrun.made"

// MakeDirs makes directories of a workspace, outer ones first, where nothing stands. What cannot
// be made, or not be marked, is left out: a name that the command makes itself is quarantined.
func MakeDirs(root string, names []string) {
	eachParent(root, names, func(dir int, name string) {
		if unix.Mkdirat(dir, name, 0o755) != nil {
			return
		}
		fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == nil {
			err = unix.Fsetxattr(fd, madeMark, []byte("1"), unix.XATTR_CREATE)
			unix.Close(fd)
		}
		if err != nil {
			_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
	})
}

// RemoveMade removes what [MakeDirs] has made and nothing lies in, inner ones first, unless it is used.
func RemoveMade(root string, names []string, used func() bool) {
	names = slices.Clone(names)
	slices.Reverse(names)
	eachParent(root, names, func(dir int, name string) {
		fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		if _, err := unix.Fgetxattr(fd, madeMark, nil); err == nil && beneath.Empty(fd) == nil && !used() {
			_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) // which fails where something came meanwhile
		}
	})
}

// eachParent opens the directory of each name, through no link.
func eachParent(root string, names []string, do func(dir int, name string)) {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(top)
	for _, name := range names {
		if dir, err := beneath.Open(top, filepath.Dir(name), unix.O_PATH|unix.O_DIRECTORY); err == nil {
			do(dir, filepath.Base(name))
			unix.Close(dir)
		}
	}
}
