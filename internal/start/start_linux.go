package start

import "golang.org/x/sys/unix"

// The runtime's monitor takes a processor each 20 microseconds of a program's
// first milliseconds: fifty times a launch, each time from the launcher or from the
// copy that is to be pid 1. It sleeps by nanosleep(2), whose end the kernel puts
// off by as much as the thread's timer slack allows (PR_SET_TIMERSLACK(2const)), which
// a thread has from the one that makes it. The monitor is made before any code
// of Go's that is ours, so a program that is linked with
//
//	-ldflags '-E github.com/pccrun/pccrun/internal/start.entry'
//
// begins there (entry_linux_*.s), with a millisecond of slack. The first thread has what
// it began with again when packages are initialised; a thread or two that the
// runtime makes in between keep the millisecond.

// entry is where the program begins, if it is so linked. Go never calls it.
func entry()

// inherited is the slack that the program began with, in nanoseconds; 0 if
// nobody has changed it.
var inherited uintptr

// The first thread is the one that initialises.
func init() { Restore() }

// Restore gives the calling thread the timer slack that the program began with:
// a process that this thread makes is to have no other.
func Restore() {
	if inherited != 0 {
		_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, inherited, 0)
	}
}
