package programs

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CoverFor records trees that root's run is about to write for another user, to whom they belong, in the record of that
// user's home. It does so with his identity, which only this thread takes on: no link of his leads root
// anywhere (setresuid(2) is a thread's own by the system call). A user without a home of his own has no record.
func CoverFor(uid, gid int, home string, trees []string) (err error) {
	groups, err := unix.Getgroups()
	if err != nil {
		return os.NewSyscallError("getgroups", err)
	}
	runtime.LockOSThread()
	back := func() error { return identity(0, os.Getgid(), groups) }
	if err := identity(uid, gid, nil); err != nil {
		if back() == nil {
			runtime.UnlockOSThread()
		} // else the thread ends with its goroutine
		return err
	}
	if f := (&Finder{Records: Records(home, "")}); len(f.Records) > 0 {
		err = f.Cover(trees)
	}
	if e := back(); e != nil {
		return e
	}
	runtime.UnlockOSThread()
	return err
}

// identity makes this thread's effective user and group, and its groups, others.
func identity(uid, gid int, groups []int) error {
	const same = ^uintptr(0)
	user := func() error {
		_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, same, uintptr(uid), same)
		return number("setresuid", e)
	}
	if uid == 0 { // it takes root to change the others
		if err := user(); err != nil {
			return err
		}
	}
	list := make([]uint32, len(groups)+1)
	for i, g := range groups {
		list[i] = uint32(g)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&list[0])), 0); e != 0 {
		return number("setgroups", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, same, uintptr(gid), same); e != 0 {
		return number("setresgid", e)
	}
	if uid != 0 {
		return user()
	}
	return nil
}

func number(call string, e unix.Errno) error {
	if e == 0 {
		return nil
	}
	return os.NewSyscallError(call, e)
}

// inode is what a directory is known by whatever its name: device, inode and time of birth, which tells it from a later one of
// that number, statx(2). It is "" for anything else.
func inode(path string) string {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return ""
	}
	return fmt.Sprintf("%d:%d:%d:%d.%d", st.Dev_major, st.Dev_minor, st.Ino, st.Btime.Sec, st.Btime.Nsec)
}
