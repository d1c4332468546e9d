package homes

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// lookOnly opens a file for what fstat(2) says of it.
const lookOnly = unix.O_PATH

// how looks names up: in the home, through no link, in no other file system.
func how(flags uint64) *unix.OpenHow {
	return &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
}

// open opens a name below a directory.
func open(dir int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, how(flags))
		if err != unix.EINTR && err != unix.EAGAIN { // EAGAIN: a name was moved meanwhile
			return fd, err
		}
	}
}

// renameNew moves a name to where nothing stands.
func renameNew(from int, name string, to int, as string) error {
	return unix.Renameat2(from, name, to, as, unix.RENAME_NOREPLACE)
}

// Identify reads what the kernel tells of a workspace.
func Identify(path string) (Workspace, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return Workspace{}, &fs.PathError{Op: "statx", Path: path, Err: err}
	}
	w := Workspace{Path: path, Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		w.Birth = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return w, nil
}
