package workspace

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A directory that has to come from a disk takes a hundred times as long as one
// in memory: whoever writes a repository could have a launch wait for minutes.
// So a scan that keeps what it saw ends when its time is over, and the next one
// goes on from there. It does not wait for one directory after the other either.

// errSlow ends a scan whose time is over.
var errSlow = errors.New("timed out")

// over reports whether a moment has come; the zero time never does.
func over(until time.Time) bool { return !until.IsZero() && time.Now().After(until) }

// maxPatience bounds how long a look that nothing bound makes later ones wait, and
// minPatience is what is not worth remembering.
const (
	maxPatience = time.Hour
	minPatience = time.Second
)

// bound returns how long a look took before that nothing bound, and when this one,
// if it is bound, ends: the user has waited for that one, and what takes as long once
// more, since it does not stay in memory, he gets too.
func (x *index) bound(q *Query, start time.Time) (patience time.Duration, until time.Time) {
	if patience = minPatience; x != nil {
		patience = max(patience, x.patience)
	}
	if q.Within == 0 || q.IndexDir == "" {
		return patience, time.Time{}
	}
	if patience > minPatience {
		q.Within = max(q.Within, 2*patience)
	}
	return patience, start.Add(q.Within)
}

// stall is called before a directory is read. Tests set it, to be a slow disk.
var stall func(rel string)

// A slowError is a scan that was not through in time.
type slowError struct {
	root   string
	part   string // the flag that uses a part of it
	within time.Duration
	read   int    // directories
	last   string // one of the last that were to be read, relative
}

func (e *slowError) Error() string {
	return fmt.Sprintf("scan %s: not finished in %s; %d directories read, up to %s: %s", e.root, e.within, e.read, beneath.Shorten(e.last), ErrTooMuch)
}

// Unwrap returns the sentinel.
func (e *slowError) Unwrap() error { return ErrTooMuch }

// Hint says what to do.
func (e *slowError) Hint() string {
	return "run it again: the scan continues there; pccrun --dry-run -- true scans everything without a time limit; " + e.part + " uses a part"
}

// slow says of a scan that was not through in time how far it came.
func (w *walker) slow(q Query) error {
	last := "its root"
	if n := len(w.todo); n > 0 {
		last = w.todo[n-1].rel
	}
	return &slowError{root: w.root, part: w.part(), within: q.Within, read: w.done, last: last}
}

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
