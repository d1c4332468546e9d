package workspace

import (
	"time"

	"golang.org/x/sys/unix"
)

// What is new is known by two times that no program can set: that of the last change of a file or a directory's
// names (ctime), and that of birth. Where a directory has come to its place with all that is in it, as old as that
// was, its inode tells: see [Standing.Git].

// racy is how old a change must be when a directory is read, so that the next change gets another ctime: the
// coarsest kernel tick (10 ms at HZ=100), and as much again for clocks that are being slewed.
const racy = 20 * time.Millisecond

// latest is the last moment that a ctime can stand for, but for racy. Some file
// systems keep whole seconds (ext4 with inodes of 128 bytes, as ext3 had them,
// hfsplus) or every other (FAT); elsewhere one is met by chance once in years.
func latest(ctime int64) int64 {
	if ctime%int64(time.Second) == 0 {
		return ctime + 2*int64(time.Second) - 1
	}
	return ctime
}

// changedSince reports whether what has a ctime may have changed since a moment.
func changedSince(ctime int64, start time.Time) bool {
	return latest(ctime) >= start.Add(-racy).UnixNano()
}

// bornSince reports whether a directory came into being since a moment; in name "", that of the descriptor. Where a
// file system keeps no such times, nothing did.
func bornSince(dir int, name string, start time.Time) bool {
	return bornAt(dir, name, start.Add(-racy).UnixNano())
}

func bornAt(dir int, name string, since int64) bool {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	err := unix.Statx(dir, name, flags, unix.STATX_BTIME|unix.STATX_TYPE, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mask&unix.STATX_BTIME != 0 &&
		latest(st.Btime.Sec*int64(time.Second)+int64(st.Btime.Nsec)) >= since
}

// touched reports whether something may have changed since the run began.
func (g *Guard) touched(st *unix.Stat_t) bool { return changedSince(st.Ctim.Nano(), g.standing.Start) }
