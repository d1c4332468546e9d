package start

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

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

const (
	hugePage = 2 << 20   // with pages of 4 KiB
	grown    = 4 << 20   // the runtime's heap grows by as much
	direct   = 128 << 10 // an object of this size comes from the heap itself, and from no cache of it
)

// Heap lets what the program allocates next lie in a huge page, where the kernel
// has one to give (madvise(2), MADV_HUGEPAGE; not where
// /sys/kernel/mm/transparent_hugepage/enabled says never). A launch allocates a megabyte,
// of which each page is a fault of its own otherwise, and is taken down by itself at the
// end. What lies before it is left out: it is allocated, and never touched. A
// collection gives it back; there is none before 4 MiB.
func Heap() {
	at := allocate(direct)
	next := (at + hugePage - 1) &^ (hugePage - 1)
	// What is left out reaches beyond the border, for the heap to have grown as far.
	if next > at && allocate(max(next-at, direct)) != at+direct {
		return // the heap is not laid out as we know it
	}
	from := at &^ (grown - 1) // where the mapping begins: it is cut in two, and not in three
	_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, from, next+hugePage-from, unix.MADV_HUGEPAGE)
}

// allocate returns where in its heap the runtime puts an object, which is not
// touched, and garbage at once.
//
//go:noinline
func allocate(size uintptr) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(make([]byte, size))))
}
