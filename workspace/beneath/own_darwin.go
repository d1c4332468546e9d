package beneath

import "golang.org/x/sys/unix"

// handle opens what is only a place to start from.
const handle = unix.O_RDONLY

// Open opens a path below a directory without following any link: macOS 11 has the flag by which no part of a path may
// be one.
func Open(dirfd int, rel string, flags int) (int, error) {
	if rel == "" {
		rel = "."
	}
	for {
		fd, err := unix.Openat(dirfd, rel, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW_ANY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// Rename is renameatx_np(2) without replacing.
func Rename(from int, name string, to int, as string) error {
	for {
		err := unix.RenameatxNp(from, name, to, as, unix.RENAME_EXCL)
		if err != unix.EINTR {
			return err
		}
	}
}

// Stat returns the status of a path below a directory, of a link itself if it is one.
func Stat(dirfd int, rel string, st *unix.Stat_t) error {
	if rel == "" {
		return unix.Fstat(dirfd, st)
	}
	return unix.Fstatat(dirfd, rel, st, unix.AT_SYMLINK_NOFOLLOW)
}

// Unlock makes a directory of the user's own readable, writable and searchable for him; "" is the first itself.
func Unlock(dir int, name string) error {
	var st unix.Stat_t
	switch err := Stat(dir, name, &st); {
	case err != nil:
		return err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return unix.ENOTDIR
	case name == "":
		return unix.Fchmod(dir, uint32(st.Mode)&0o7777|0o700)
	}
	return Allow(dir, name, 0o700)
}

// Allow adds bits to the mode of a file or directory.
func Allow(dir int, name string, bits uint32) error {
	var st unix.Stat_t
	if err := Stat(dir, name, &st); err != nil {
		return err
	}
	return unix.Fchmodat(dir, name, uint32(st.Mode)&0o7777|bits, unix.AT_SYMLINK_NOFOLLOW)
}

// ChownMade gives the link that was just made at a name to an owner; -1 leaves one as it is. It is for a directory that
// nobody else may enter: macOS has no descriptor of a link.
func ChownMade(dir int, name string, uid, gid int) error {
	return unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
}
