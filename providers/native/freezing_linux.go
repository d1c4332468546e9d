package native

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/inside"
)

// freezing counts the guards that want the run to be stopped: it goes on when none
// does. A job that a shell inside has put into its terminal's background, as by Ctrl-Z,
// stays stopped.
type freezing struct {
	mu     sync.Mutex
	n      int
	run    *Started     // nil once it is over
	proc   *os.File     // its /proc, from the first stop on; nil if nobody can be spared
	before map[int]bool // which jobs were stopped before, by their numbers inside
}

// Freeze stops all that runs or lets it go on, for the first or last of those who want that.
func (s *Started) Freeze(stop bool) {
	f := &s.freezing
	f.mu.Lock()
	defer f.mu.Unlock()
	if stop {
		if f.n++; f.n == 1 {
			if f.run == nil {
				f.run, f.proc = s, s.Proc()
			}
			f.before = map[int]bool{}
			for _, p := range namespaces.StoppedIn(f.proc) {
				if p.Aside {
					f.before[p.Pid] = true
				}
			}
			f.run.Signal(unix.SIGSTOP, inside.ToAll)
		}
		return
	}
	if f.n--; f.n > 0 {
		return
	}
	f.goOn(f.before)
	for _, later := range again {
		time.AfterFunc(later, f.remind)
	}
}

func (f *freezing) goOn(without map[int]bool) {
	for pid := range without {
		f.run.Spare(pid)
	}
	f.run.Signal(unix.SIGCONT, inside.ToAll)
}

// remind lets go on who has stopped itself since, but no job that was stopped before, or
// has been since.
func (f *freezing) remind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n > 0 || f.run == nil {
		return
	}
	spared, wanted := map[int]bool{}, f.proc == nil
	for _, p := range namespaces.StoppedIn(f.proc) {
		if p.Aside || f.before[p.Pid] {
			spared[p.Pid] = true
		} else {
			wanted = true
		}
	}
	if f.before = spared; wanted {
		f.goOn(spared)
	}
}

// end lets go of what it looked through.
func (f *freezing) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.run = nil
	if f.proc != nil {
		f.proc.Close()
		f.proc = nil
	}
}

// again is when a run that went on is told so once more. A program that hears that its
// child was stopped may stop itself for it, as script(1) does: it hears that when it goes
// on, on a busy machine late, and nobody else would wake it.
var again = [...]time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second}
