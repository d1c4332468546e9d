//go:build unix

package filesync

import (
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
)

const (
	nonblock  = syscall.O_NONBLOCK // a FIFO must not hold us up
	directory = syscall.O_DIRECTORY
)

// flock locks a file, flock(2).
func flock(f *os.File, wait bool) error {
	how := unix.LOCK_EX
	if !wait {
		how |= unix.LOCK_NB
	}
	return state.Flock(f, how)
}

// ownerFrom returns who owns what root makes: the owner of a directory. For all others it is -1.
func ownerFrom(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}

// setLinkTime sets when a symbolic link itself was changed, which package os has no call for.
func setLinkTime(dir *os.Root, name string, mtime time.Time) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	at := unix.NsecToTimespec(mtime.UnixNano())
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(int(f.Fd()), name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
}
