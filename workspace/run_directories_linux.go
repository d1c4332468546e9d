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

// MadeDirs are directories that a run uses: while one is open, no other run removes it, or what is in it.
type MadeDirs []int

// MakeDirs makes directories of a workspace, outer ones first, where nothing stands. What cannot
// be made, or not be marked, is left out: a name that the command makes itself is quarantined.
// Each is opened, and locked, shared (flock(2)): another run may remove it before that,
// and then it is made again.
func MakeDirs(root string, names []string) (held MadeDirs) {
	eachParent(root, names, func(dir int, name string) {
		for range 100 { // who has the lock alone removes it, and is gone soon
			makeDir(dir, name)
			fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
			if err == unix.ENOENT {
				continue
			} else if err != nil {
				return
			}
			switch err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB); {
			case err == unix.EWOULDBLOCK:
				_ = unix.Nanosleep(&unix.Timespec{Nsec: 1e6}, nil)
			case err != nil:
				unix.Close(fd)
				return
			case beneath.StandsAs(fd, dir, name):
				held = append(held, fd)
				return
			}
			unix.Close(fd)
		}
	})
	return held
}

func makeDir(dir int, name string) {
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
}

// Close says that the run uses them no more.
func (m MadeDirs) Close() {
	for _, fd := range m {
		unix.Close(fd)
	}
}

// RemoveMade removes what [MakeDirs] has made and nothing lies in, inner ones first, unless another run uses it.
func RemoveMade(root string, all []string) {
	names := slices.Clone(all)
	slices.Reverse(names)
	eachParent(root, names, func(dir int, name string) {
		fd, err := beneath.Open(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		_, err = unix.Fgetxattr(fd, madeMark, nil)
		if err == nil && beneath.Empty(fd) == nil && unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil && beneath.StandsAs(fd, dir, name) {
			_ = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) // which fails where something came meanwhile
		}
	})
}

// eachParent opens the directory of each path, through no link, and passes the last name on.
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
