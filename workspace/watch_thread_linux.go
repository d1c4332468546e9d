package workspace

import (
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A lookout is the thread on which a guard watches. Whoever waits for a new name
// to be quarantined waits for this thread to get a processor, so it is the only one:
// the kernel wakes it by a signal of its own, and it looks and moves without
// waking another. On a loaded machine each thread that has to be woken on the way
// waits for its turn.
type lookout struct {
	mu  sync.Mutex
	tid int // 0 when it is over: a number that another thread may have
}

// notified is what F_NOTIFY sends to a lookout. Neither the kernel nor Go sends
// it to anybody. It is no real-time signal, since of those a user may only have so
// many on their way; of this one there is one or none, for each thread, whatever
// else is sent.
const notified = unix.SIGSTKFLT

// stand calls watch on the lookout, and waits for it. No other goroutine runs on its
// thread, which ends with it.
func (l *lookout) stand(watch func()) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the first thread of a process cannot end
			defer runtime.UnlockOSThread()
			l.stand(watch) // on another, while this one waits
			return
		}
		set := signalSet(notified)
		_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil) // it fails for no set
		hasten()
		l.name(unix.Gettid())
		defer l.name(0)
		watch()
	}()
	<-over
}

func (l *lookout) name(tid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tid = tid
}

// wake has [lookout.wait] return.
func (l *lookout) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tid != 0 {
		_ = unix.Tgkill(os.Getpid(), l.tid, notified)
	}
}

// ownerThread is F_OWNER_TID of linux/fcntl.h.
const ownerThread = 0

// own has the kernel tell the lookout what happens to a descriptor.
func (l *lookout) own(fd int) error {
	owner := struct{ kind, id int32 }{ownerThread, int32(l.tid)} // struct f_owner_ex
	if _, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_SETOWN_EX, uintptr(unsafe.Pointer(&owner))); errno != 0 {
		return errno
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETSIG, int(notified))
	return err
}

// wait waits until something was told, and reports false if nothing was for so
// long; a negative time is forever.
func (l *lookout) wait(most time.Duration) bool {
	set := signalSet(notified)
	for end := time.Now().Add(most); ; {
		var timeout *unix.Timespec
		if most >= 0 {
			t := unix.NsecToTimespec(int64(max(0, time.Until(end))))
			timeout = &t
		}
		_, _, errno := unix.Syscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&set)), 0, uintptr(unsafe.Pointer(timeout)), 8, 0, 0)
		if errno != unix.EINTR { // another signal, which Go has taken
			return errno != unix.EAGAIN
		}
	}
}

// signalSet is a set of one signal. The kernel's has 64 bits, whatever the type says.
func signalSet(sig unix.Signal) (set unix.Sigset_t) {
	set.Val[0] = 1 << (sig - 1)
	return set
}

// worked is for how long the calling thread has had a processor.
func worked() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // it fails for no clock that Linux has
	return time.Duration(t.Nano())
}

// slice is what a lookout asks for at once: the least that there is.
const slice = 100 * time.Microsecond

// hasten asks that the calling thread need not wait for the end of others' turns
// when it wakes: it takes short ones, and so gets them soon (sched(7), Linux 6.12).
// Its share stays what it is, so nobody has to be asked. Older kernels ignore it.
// What this thread starts would be as any other process.
func hasten() {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return
	}
	if attr.Policy == unix.SCHED_NORMAL || attr.Policy == unix.SCHED_BATCH {
		attr.Runtime = uint64(slice)
		attr.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		_ = unix.SchedSetAttr(0, attr, 0)
	}
}
