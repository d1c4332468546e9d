package state

import "golang.org/x/sys/unix"

// straight reports whether no link is on the way of a path, as far as it exists, and whether it does. One call tells
// what [filepath.EvalSymlinks] asks name by name; where it cannot, the path is not straight.
func straight(path string) (is, exists bool) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil || err == unix.ENOENT, err == nil
}
