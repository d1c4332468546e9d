package homes

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// lookOnly opens a file for what fstat(2) says of it.
const lookOnly = unix.O_EVTONLY

// open opens a name below a directory, through no link: O_NOFOLLOW_ANY is of macOS 11. No name that is
// looked up has "..".
func open(dir int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, int(flags)&^unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NOFOLLOW_ANY, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// renameNew moves a name to where nothing stands.
func renameNew(from int, name string, to int, as string) error {
	return unix.RenameatxNp(from, name, to, as, unix.RENAME_EXCL)
}

// Identify reads what the kernel tells of a workspace.
func Identify(path string) (Workspace, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return Workspace{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return Workspace{Path: path, Inode: st.Ino, Birth: st.Btim.Nano()}, nil
}
