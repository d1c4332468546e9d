package workspace

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// stall is called before a directory is read. Tests set it, to be a slow disk.
var stall func(rel string)

// Processors are what a walk in memory needs, and a disk needs requests: it
// serves many in the time that it takes for one. In memory more workers than
// processors would be in each other's way.
const (
	maxHands  = 4  // workers, one for each processor
	diskHands = 16 // workers that wait for a disk
	diskAfter = 20 * time.Millisecond
	diskBytes = 1 << 10 // a directory, if half of all come from a disk: 4 KiB is the least that is read
)

// hands is how many workers the walk is worth. Whether
// there is a disk it asks a few times only.
func (w *walker) hands() int {
	if w.during == nil && !w.disk && w.done >= w.asked && time.Since(w.began) > diskAfter {
		w.asked = 8 * w.done
		w.disk = fromDisk()-w.before > int64(w.done)*diskBytes
	}
	if w.disk {
		return diskHands
	}
	if w.during.alone() {
		return 1
	}
	return min(runtime.GOMAXPROCS(0), maxHands)
}

// fromDisk is how many bytes this process has had read from a disk: getrusage(2).
// Tests set it.
var fromDisk = func() int64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Inblock) * 512
}
