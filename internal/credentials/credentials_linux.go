// Package credentials gives root up.
//
// The promise: when [Become] returns nil, each thread of this process is the
// other user, of one group, for good; else it says why, and does not wait for
// ever. The signal that whoever started this process has set for his own death
// still comes.
package credentials

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
)

// Become makes all threads of this process the user and the group, without
// others beside it, for good. Only root may. Who gets an error has to end: some
// threads may have changed already.
//
// Credentials are a thread's own (setresuid(2)): Go's runtime has each change
// its by a signal to it, for which it waits, the world stopped. A real-time
// signal is refused to who has as many pending as RLIMIT_SIGPENDING allows, all
// processes of his together, and the runtime does not look at that: it waits for
// ever. So each thread is sent that signal by a timer besides, until it is over:
// a timer has its signal's room from when it is made.
func Become(uid, gid int) error {
	timers, err := nudge(patience)
	defer timers.remove()
	if err != nil {
		return err
	}
	return become(uid, gid)
}

func become(uid, gid int) error {
	for _, set := range [...]struct {
		name string
		call func() error
	}{
		{"setgroups", func() error { return syscall.Setgroups(nil) }},
		{"setresgid", func() error { return syscall.Setresgid(gid, gid, gid) }},
		{"setresuid", func() error { return syscall.Setresuid(uid, uid, uid) }},
	} {
		if err := set.call(); err != nil {
			return os.NewSyscallError(set.name, err)
		}
	}
	if err := dieWithParent(); err != nil {
		return err
	}
	if libc {
		return all(uid)
	}
	return nil
}

// atDeath is the signal that this process gets when its parent dies, 0 for none, and who that is. It belongs to the first thread,
// on which packages are initialized, and whoever becomes another user loses it (prctl(2), PR_SET_PDEATHSIG).
var atDeath, parent = func() (sig int32, pid int) {
	_, _, _ = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_PDEATHSIG, uintptr(unsafe.Pointer(&sig)), 0) // else 0
	return sig, os.Getppid()
}()

// dieWithParent sets that signal anew, on all threads: one is the first. A parent that has died meanwhile gives none.
func dieWithParent() error {
	if atDeath == 0 {
		return nil
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(atDeath), 0)
	if libc { // which does not know how
		_, _, errno = unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(atDeath), 0)
	}
	if errno != 0 {
		return os.NewSyscallError("prctl", errno)
	}
	if os.Getppid() != parent {
		return unix.Kill(os.Getpid(), syscall.Signal(atDeath))
	}
	return nil
}

// all says whether each thread is the user. The C library, which sends signals
// of its own where it is linked, takes a refused one for a thread that has
// ended.
func all(uid int) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	id := strconv.Itoa(uid)
	want := "\nUid:\t" + id + "\t" + id + "\t" + id + "\t" + id + "\n"
	for _, t := range tasks {
		status, err := os.ReadFile("/proc/self/task/" + t.Name() + "/status")
		if err == nil && !strings.Contains(string(status), want) {
			return noQueue(unix.EAGAIN)
		}
	}
	return nil
}

const (
	// perThread is the signal at which a thread of Go's runtime makes the system
	// call that waits for it, if one does (sigPerThreadSyscall, since Go 1.16).
	perThread = 33

	// toThread is SIGEV_THREAD_ID of timer_create(2).
	toThread = 4

	// patience is for those whose signals fill the queue for a moment.
	patience = time.Second
)

// nudges are timers, each of which sends its thread the signal every
// millisecond.
type nudges []int32

// nudge makes one for each thread. One that the runtime starts later has none,
// which matters to nobody unless the queue fills up in that moment too.
func nudge(patience time.Duration) (nudges, error) {
	// The layout of sigevent(3type) as the kernel has it, 64 bytes.
	event := struct {
		value          uintptr
		signal, notify int32
		thread         int32
		_              [44]byte
	}{signal: perThread, notify: toThread}
	every := [2]unix.Timespec{{Nsec: 1e6}, {Nsec: 1e6}}

	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return nil, err
	}
	made := make(nudges, 0, len(tasks))
	for _, t := range tasks {
		tid, _ := strconv.Atoi(t.Name()) // of 0 the kernel says EINVAL
		event.thread = int32(tid)
		var id int32
		_, _, errno := unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
		for end := time.Now().Add(patience); errno == unix.EAGAIN && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
			_, _, errno = unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&id)))
		}
		switch {
		case errno == unix.EAGAIN:
			return made, noQueue(errno)
		case errno == unix.EINVAL:
			continue // the thread has ended
		case errno != 0:
			return made, os.NewSyscallError("timer_create", errno)
		}
		made = append(made, id)
		if _, _, errno = unix.RawSyscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&every)), 0, 0, 0); errno != 0 {
			return made, os.NewSyscallError("timer_settime", errno)
		}
	}
	return made, nil
}

func (n nudges) remove() {
	for _, id := range n {
		unix.RawSyscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0)
	}
}

// noQueue is the error where this process's threads could not be told.
func noQueue(err error) error {
	return hint.Errorf("root has as many signals pending as it may (SigQ in /proc/PID/status): ulimit -i unlimited, or end what has them queued",
		"drop root: no signal can be queued to this process's own threads: %w", err)
}
