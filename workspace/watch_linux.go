package workspace

import (
	"time"

	"golang.org/x/sys/unix"
)

// Directories are watched by F_NOTIFY (fcntl(2)), not by inotify: of its
// instances a user has no more than 128, so that many runs at once would not
// watch, and closing one waits for a grace period of 10 ms and more. F_NOTIFY
// takes a descriptor a directory and says only that something has changed: the
// look finds out what, and arms the directory again before it reads it.
const notifyOnce = 0x4 | 0x8 | 0x10 // DN_CREATE, DN_DELETE and DN_RENAME of linux/fcntl.h

// notifyWrites is asked for as well where a file lies whose content and mode count: a
// configuration of git that is for review can be written in its place.
const notifyWrites = 0x2 | 0x20 // DN_MODIFY and DN_ATTRIB

// notifyMany keeps a directory armed (DN_MULTISHOT).
const notifyMany = 0x80000000

// maxWatched bounds the descriptors that a watch takes. Directories beyond
// them are looked at from time to time.
const maxWatched = 8192

// during says how a look differs from a launch's.
type during struct {
	last        bool               // the post-run check: it reads all, and opens what is shut
	shut        map[string]bool    // what was shut at the start stays so
	closedPaths map[string]bool    // and what was closed to the command, by path
	closedNodes map[[2]uint64]bool // and by device and inode
	blind       bool               // some directories cannot be watched
	budget      int                // descriptors that may still be opened
	lookout     *lookout           // the thread that hears of changes
	fds         map[int]bool       // what watches; nil where nothing does
	written     map[string]bool    // directories, by path, whose files are watched for what is written to them
	compared    map[string]int     // descriptors of directories with protected names that may stand, by path: see [Guard.mayStand]
}

// writes has a directory watched for what is written to its files.
func (u *during) writes(rel string) {
	if u.fds == nil || u.written[rel] {
		return
	}
	u.written[rel] = true
	u.lookout.wake() // it is armed so in the next look
}

// watchCompared arms a directory that the walk does not enter, since its name is protected. It returns true if it keeps the
// descriptor.
func (u *during) watchCompared(rel string, fd int) (kept bool) {
	if u.fds == nil {
		return false
	}
	if old, is := u.compared[rel]; is {
		if sameFile(old, fd) {
			u.written[rel] = true
			u.arm(old, rel)
			return false
		}
		unix.Close(old)
		delete(u.compared, rel)
	}
	if len(u.compared) >= maxCompared || u.lookout.own(fd) != nil {
		u.blind = true
		return false
	}
	if u.compared == nil {
		u.compared = map[string]int{}
	}
	u.written[rel], u.compared[rel] = true, fd
	u.arm(fd, rel)
	return true
}

// begin makes the looks that follow watch what they read, with a part of the
// descriptors that there are for all guards of the run.
func (u *during) begin(l *lookout, guards int) {
	limit := unix.Rlimit{}
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	u.budget = min(maxWatched, int(min(limit.Cur, 1<<20)/2)) / guards
	u.lookout, u.fds = l, map[int]bool{}
}

// patience is how long a look may wait until something is told.
func (u *during) patience() time.Duration {
	if u.blind {
		return poll
	}
	return -1
}

func (u *during) end() {
	for fd := range u.fds {
		unix.Close(fd)
	}
	for _, fd := range u.compared {
		unix.Close(fd)
	}
	u.fds, u.compared = nil, nil
}

// skips reports whether a look leaves a directory for the last one: what is in
// node_modules is quarantined at the end, if at all.
func (u *during) skips(rel string) bool { return u != nil && !u.last && inModules(rel) }

// opens reports whether a directory that cannot be listed is opened for the
// look: from inside it could be opened as well.
func (u *during) opens(rel string) bool { return u != nil && u.last && !u.shut[rel] }

// isClosed reports whether the command does not see what lies in a directory that
// a rule closes: one that stood at the start. Another that comes by such a name
// it sees, and fills.
func (u *during) isClosed(rel string, dev, ino uint64) bool {
	return u == nil || u.closedPaths[rel] || u.closedNodes[[2]uint64{dev, ino}]
}

// bound is what the tree may weigh: the post-run check is worth more work than a
// launch.
func (u *during) bound() int {
	if u != nil && u.last {
		return 8 * maxWeight
	}
	return maxWeight
}

// crowds reports whether so many directories are too many for a look, or fewer
// for a launch.
func (u *during) crowds(dirs int) bool { return dirs > maxDirs || u == nil && dirs > launchDirs() }

// leaves reports whether the post-run check leaves a directory as it is: what was
// shut at the start, and what it has closed itself.
func (u *during) leaves(rel string) bool { return u != nil && u.last && u.shut[rel] }

// watch arms a directory that is about to be read. If it keeps the descriptor
// it returns true; a copy would not do, since closing any descriptor of an open
// file ends what that file was told to watch.
func (u *during) watch(d *dir, fd int) (kept bool) {
	if u == nil || u.fds == nil {
		return false
	}
	if d.watch > 0 && sameFile(d.watch, fd) {
		fd = d.watch
	} else {
		d.watch = 0
		if len(u.fds) >= u.budget {
			u.blind = true
			return false
		}
		u.fds[fd] = true
		d.watch, kept = fd, true
		if u.lookout.own(fd) != nil {
			u.blind = true
		}
	}
	u.arm(fd, d.Rel)
	return kept
}

func (u *during) arm(fd int, rel string) {
	events := notifyOnce
	if u.written[rel] {
		events |= notifyWrites
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_NOTIFY, events); err != nil {
		u.blind = true // a file system that cannot tell
	}
}

// rearm arms a directory that may be as it was, and in which a file has been
// written to: it is not read again, and would not be armed.
func (u *during) rearm(d *dir) {
	if u.written[d.Rel] {
		u.arm(d.watch, d.Rel)
	}
}

func sameFile(a, b int) bool {
	var x, y unix.Stat_t
	return unix.Fstat(a, &x) == nil && unix.Fstat(b, &y) == nil && x.Ino == y.Ino && x.Dev == y.Dev
}

// alone reports whether a look keeps to its thread, which nobody need wake.
func (u *during) alone() bool { return u != nil && u.fds != nil }

// sweep closes the descriptors of directories that the tree has lost.
func (u *during) sweep(tree *dir) {
	live := make(map[int]bool, len(u.fds))
	var mark func(*dir)
	mark = func(d *dir) {
		if d.gone {
			d.watch = 0
		}
		if d.watch > 0 {
			live[d.watch] = true
		}
		for _, k := range d.Kids {
			mark(k)
		}
	}
	mark(tree)
	for fd := range u.fds {
		if !live[fd] {
			unix.Close(fd)
			delete(u.fds, fd)
		}
	}
}
