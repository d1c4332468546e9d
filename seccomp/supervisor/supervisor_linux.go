package supervisor

import (
	"errors"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
)

// notification is struct seccomp_notif of linux/seccomp.h, and response is
// struct seccomp_notif_resp. The kernel may know larger ones
// (SECCOMP_GET_NOTIF_SIZES): it is then given the room and writes no more than
// its own.
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	data  seccomp.Data
	_     [64]byte
}

type response struct {
	id    uint64
	value int64
	errno int32 // negative, as the kernel returns errors
	flags uint32
	_     [64]byte
}

// The requests of seccomp_unotify(2).
const (
	ioctlReceive  = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	ioctlSend     = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	ioctlValid    = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
	ioctlAdd      = 0x40182103 // SECCOMP_IOCTL_NOTIF_ADDFD
	ioctlSetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS, Linux 6.6

	flagContinue = 1 // SECCOMP_USER_NOTIF_FLAG_CONTINUE, Linux 5.5
	flagSync     = 1 // SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
)

// InstallFlags returns the flags with which a filter of [seccomp.Watch] is
// installed: a call that the supervisor has begun to answer is broken off by
// nothing but a signal that kills, where the kernel can see to that (Linux
// 5.19); elsewhere a call that any signal breaks off is asked about again.
func InstallFlags() int {
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
	// Flags are judged before the filter is read, and there is none.
	_, _, err := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, 0)
	if err == unix.EFAULT {
		return flags | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	return flags
}

// A Call is a system call whose process waits for an answer. It is valid until
// the function that it was passed to returns.
type Call struct {
	PID  int // of the thread, as this process sees it
	Name string
	Data seccomp.Data

	id uint64
	s  *Supervisor
}

// A Supervisor answers calls until nothing is left that could make any.
type Supervisor struct {
	listener int
	done     chan struct{}
	err      error
	known    map[uint64]string // names of calls, by architecture and number
}

// An Answer is what becomes of a call. The zero Answer lets it go on.
type Answer struct {
	kind      answerKind
	errno     unix.Errno
	fd        int         // closed once the process has it
	cloexec   uint32      // O_CLOEXEC, of the descriptor that the process gets
	delivered func(error) // told whether it has it; may be nil
}

type answerKind uint8

const (
	continues answerKind = iota
	fails
	succeeds // with 0
	opened
)

// Observe lets every call continue, after it was passed to seen. seen is called
// from one goroutine, and the process waits meanwhile. Observe takes the listener over.
func Observe(listener int, seen func(*Call)) *Supervisor {
	return serve(listener, func() error { return nil }, func(c *Call) Answer {
		seen(c)
		return Answer{}
	})
}

// serve answers calls on one thread, which prepare has made ready.
func serve(listener int, prepare func() error, answer func(*Call) Answer) *Supervisor {
	s := &Supervisor{listener: listener, done: make(chan struct{}), known: map[uint64]string{}}
	// The waker and the woken change places on one processor. It is faster, and
	// older kernels do without.
	_, _ = s.ioctl(ioctlSetFlags, flagSync)
	go func() {
		defer close(s.done)
		defer unix.Close(listener)
		// One thread, which ends with this goroutine: what was made ready is its own.
		runtime.LockOSThread()
		if s.err = prepare(); s.err == nil {
			s.err = s.serve(answer)
		}
	}()
	return s
}

// Wait returns when no process with the filter is left, or when the listener
// failed: from then on each call fails with ENOSYS.
func (s *Supervisor) Wait() error {
	<-s.done
	return s.err
}

func (s *Supervisor) serve(answer func(*Call) Answer) error {
	poll := []unix.PollFd{{Fd: int32(s.listener), Events: unix.POLLIN}}
	var n notification
	var r response
	for {
		// Before Linux 6.11 a receiver is not told that nobody is left; who
		// polls is (5.9). What is readable can always be received at once.
		if _, err := unix.Poll(poll, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return os.NewSyscallError("poll", err)
		}
		if poll[0].Revents&unix.POLLIN == 0 {
			return nil // the last process with the filter is gone
		}
		n = notification{}
		switch err := s.command(ioctlReceive, unsafe.Pointer(&n)); err {
		case nil:
		case unix.EINTR, unix.ENOENT: // it was killed, or broken off, in between
			continue
		default:
			return os.NewSyscallError("ioctl(SECCOMP_IOCTL_NOTIF_RECV)", err)
		}
		a := answer(&Call{PID: int(n.pid), Name: s.name(n.data), Data: n.data, id: n.id, s: s})
		if a.kind == opened {
			fd, err := s.give(n.id, &a)
			a.fd = fd
			if err != nil {
				a = Answer{kind: fails}
				errors.As(err, &a.errno)
			}
		}
		r = response{id: n.id}
		switch a.kind {
		case continues:
			r.flags = flagContinue
		case fails:
			r.errno = -int32(a.errno)
		case opened:
			r.value = int64(a.fd)
		}
		switch err := s.command(ioctlSend, unsafe.Pointer(&r)); err {
		case nil, unix.ENOENT, unix.EINTR:
		default:
			return os.NewSyscallError("ioctl(SECCOMP_IOCTL_NOTIF_SEND)", err)
		}
	}
}

// addition is struct seccomp_notif_addfd.
type addition struct {
	id         uint64
	flags      uint32
	from, to   uint32
	descriptor uint32 // its flags
}

// give puts a descriptor into the process and returns its number there. To do
// so and to answer in one step (SECCOMP_ADDFD_FLAG_SEND) is no good: a signal that
// comes meanwhile, or the freezing of all processes before the machine sleeps,
// takes the descriptor back, and the call ends with 0, which looks like one
// (seccomp_notify_addfd of Linux 6.18). Like this it is merely tried again.
func (s *Supervisor) give(id uint64, a *Answer) (fd int, err error) {
	defer unix.Close(a.fd)
	add := addition{id: id, from: uint32(a.fd), descriptor: a.cloexec}
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), ioctlAdd, uintptr(unsafe.Pointer(&add)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			err = errno
		}
		if a.delivered != nil {
			a.delivered(err)
		}
		return int(n), err
	}
}

// name returns the call's name; what it has found once it remembers.
func (s *Supervisor) name(d seccomp.Data) string {
	key := uint64(d.Arch)<<32 | uint64(d.Nr)
	name, ok := s.known[key]
	if !ok {
		name = seccomp.Name(d)
		s.known[key] = name
	}
	return name
}

func (s *Supervisor) command(request uintptr, arg unsafe.Pointer) error {
	_, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), request, uintptr(arg))
	if err != 0 {
		return err
	}
	return nil
}

func (s *Supervisor) ioctl(request, value uintptr) (uintptr, error) {
	r, _, err := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), request, value)
	if err != 0 {
		return 0, err
	}
	return r, nil
}

// alive reports whether the process still waits in this call: what was read
// from it before is then its own, and not that of a process which got its
// number after it died (seccomp_unotify(2), NOTIF_ID_VALID).
func (c *Call) alive() bool {
	id := c.id
	return c.s.command(ioctlValid, unsafe.Pointer(&id)) == nil
}
