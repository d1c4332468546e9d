//go:build linux

package inside

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/start"
)

// The runtime's own hooks around a fork, as package syscall uses them: they
// block every signal, and no handler of Go's can run in the copy. They are
// open to linkname (go.dev/issue/67401).
//
//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// cloneOnto is clone(2) or clone3(2), whose copy runs [live] on the stack that
// the arguments name.
func cloneOnto(nr, a, b, c, d, e uintptr, s *copied) (pid, errno uintptr)

// entry is where the copy begins: [live]; clone_*.s has its value.
var entry uintptr

// Options says how the copy is made.
type Options struct {
	Flags    uintptr // CLONE_NEW* of the namespaces
	Cgroup   int     // a cgroup v2 directory to be born in (CLONE_INTO_CGROUP, Linux 5.7), or 0
	Control  int     // pid 1's end of a SOCK_SEQPACKET pair
	Launcher int     // the launcher's end, closed in the copy

	// First clones only if the caller happens to be on the process's first
	// thread, else the error is [ErrNotFirst].
	First bool
}

// ErrNotFirst says that the caller is not on the first thread.
var ErrNotFirst = errors.New("not on the first thread")

// notFirst is what [clone] says in its place: no errno of the kernel's.
const notFirst = syscall.Errno(1 << 16)

// Start clones the copy, which runs the program as far as it goes by now, and
// returns its pid. The copy's death signal is bound to the thread that clones it
// (prctl(2), PR_SET_PDEATHSIG). The first thread of a Go program lives as long as
// the process; a caller on any other must be locked to it, and stay.
func (p *Program) Start(o Options) (pid int, err error) {
	if p.err != nil {
		return 0, p.err
	}
	if o.First && unix.Gettid() != os.Getpid() { // clone asks again, where nothing comes in between
		return 0, ErrNotFirst
	}
	life, err := newLife()
	if err != nil {
		return 0, err
	}
	defer life.free() // ours; the copy keeps its own
	s := life.copied()
	*s = copied{shared: p.shared, length: p.ops, control: uintptr(o.Control), other: uintptr(o.Launcher), regs: life.regs()}
	s.child, s.extra, s.stack = life.child(), life.extra(), uintptr(unsafe.Pointer(&life[0]))+lifeExtra
	*s.child, *s.extra = *s, *s
	args := &cloneArgs{
		flags: uint64(o.Flags) | unix.CLONE_SETTLS | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD),
		stack: uint64(life.stack()), stackSize: stackSize, tls: uint64(life.tls()),
	}
	if o.Cgroup != 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(o.Cgroup)
	}
	// ForkLock: another goroutine's descriptor that is not yet close-on-exec
	// must not end up in the sandbox.
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	keep, err := withhold(p, life)
	if err != nil {
		return 0, err
	}
	n, errno := clone(s, args, o.First)
	keep()
	if errno == notFirst {
		return 0, ErrNotFirst
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// Supervision says how pid 1 behaves once the command runs.
type Supervision struct {
	Deadline int64 // nanoseconds of wall time, 0 for none
	Grace    int64 // nanoseconds between TERM and KILL at the deadline
	Signals  Reg   // the signalfd of SIGCHLD that the program opens before it forks
	Terminal Reg   // the command's terminal as pid 1 holds it; 0 for none

	// Namespace says that there is a pid namespace. Without one, "all" is the
	// command's process group: kill(2) with -1 would reach the host.
	Namespace bool
}

// Go tells the copy at the other end of control to run the table as far as it
// goes by now. The last Await of a program is answered with the whole of it.
func (p *Program) Go(control int, s Supervision) error {
	if p.err != nil {
		return p.err
	}
	p.shared.namespace = s.Namespace
	p.shared.deadline, p.shared.grace, p.shared.signals, p.shared.terminal = s.Deadline, s.Grace, s.Signals, s.Terminal
	// The message orders the launcher's writes before the copy's reads: a
	// system call on either side is a full barrier.
	return unix.Sendto(control, Message{Kind: Go, A: int32(p.ops)}.bytes(), unix.MSG_NOSIGNAL, nil)
}

// cloneArgs is struct clone_args, clone(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

//go:noinline
//go:norace
func clone(s *copied, args *cloneArgs, first bool) (uintptr, syscall.Errno) {
	beforeFork() // from here on this goroutine stays on its thread
	if first {
		// To lock the goroutine would start a thread, which takes as long as
		// all of the clone.
		if unix.Gettid() != unix.Getpid() {
			afterFork()
			return 0, notFirst
		}
	}
	start.Restore()
	pid, err := cloneOnto(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0, 0, 0, s)
	if syscall.Errno(err) == syscall.ENOSYS && args.flags&unix.CLONE_INTO_CGROUP == 0 {
		// A filter around us refuses clone3, whose flags it cannot read:
		// Docker's, or our own.
		// Where the thread-local storage stands among the arguments depends on
		// the architecture; what stands in its place elsewhere goes unused.
		tls := uintptr(args.tls)
		pid, err = cloneOnto(unix.SYS_CLONE, uintptr(uint32(args.flags))|uintptr(args.exitSignal), uintptr(args.stack+args.stackSize), 0, tls, tls, s)
	}
	afterFork()
	return pid, syscall.Errno(err)
}
