//go:build linux

package inside

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// copied is what the copy works on. It lies in memory of its own that the copy
// gets privately, beside its stack, and holds no pointer that the copy writes:
// the write barrier belongs to a runtime that is not there.
type copied struct {
	*shared
	length  int               // of the table, as far as the launcher has said
	control uintptr           // pid 1's end of the socket pair
	other   uintptr           // the launcher's, to be closed
	first   int               // the op to begin with: not 0 in the command's process
	child   *copied           // what the command's process works on, for pid 1
	extra   *copied           // what the process of another command works on, likewise
	stack   uintptr           // the end of its stack
	command uintptr           // its pid, in the sandbox
	regs    *[maxRegs]uintptr // each is set once, by pid 1 or by the command's process
	message Message
	status  int32
	rusage  unix.Rusage
	poll    [2]unix.PollFd
	now     unix.Timespec
	until   int64
	held    bool      // it has been told that the command was stopped, and will say when that goes on
	action  [4]uint64 // struct kernel_sigaction: handler, flags, restorer, mask
	siginfo [128]byte
	execs   [MaxExecs]uintptr // the pids of other commands; 0 is none
	passed  passed
}

// live is the whole life of the copy, and of the command's process as far as it
// is ours.
//
//go:nosplit
//go:norace
func live(s *copied) {
	if s.first == 0 {
		sys(unix.SYS_CLOSE, s.other, 0, 0, 0, 0, 0)
	}
	if run(s) {
		supervise(s)
	}
	exit(125)
}

// sys is the one way to the kernel.
//
//go:nosplit
//go:norace
func sys(nr, a, b, c, d, e, f uintptr) (uintptr, syscall.Errno) {
	r, _, err := syscall.RawSyscall6(nr, a, b, c, d, e, f)
	return r, err
}

// run interprets the ops. It returns true in pid 1 after the fork, false if
// the table ends without one.
//
//go:nosplit
//go:norace
func run(s *copied) bool {
	for i := s.first; i < s.length; i++ {
		o := &s.ops[i&(maxOps-1)]
		a := o.arg
		for j := uintptr(0); o.regs>>j != 0; j++ {
			if o.regs>>j&1 != 0 {
				a[j] = s.regs[a[j]&(maxRegs-1)]
			}
		}
		var r uintptr
		var err syscall.Errno
		switch o.kind {
		case call:
			r, err = sys(o.nr, a[0], a[1], a[2], a[3], a[4], a[5])
		case same:
			st := *(**unix.Statx_t)(unsafe.Pointer(&a[0]))
			if uintptr(st.Dev_major)<<32|uintptr(st.Dev_minor) != a[1] || uintptr(st.Ino) != a[2] {
				err = syscall.ESTALE
			}
		case poke:
			**(**int32)(unsafe.Pointer(&a[0])) = int32(a[1])
		case either:
			if int(a[1]) < 0 {
				a[1] = a[2]
			}
			**(**int32)(unsafe.Pointer(&a[0])) = int32(a[1])
		case decimal:
			digits(a[0], a[1])
		case defaults:
			err = resetSignals(s)
		case unbound:
			err = dropBounding()
		case awaitTable:
			r, err = sys(unix.SYS_RECVFROM, s.control, uintptr(unsafe.Pointer(&s.message)), messageSize, 0, 0, 0)
			if err == 0 && (r != messageSize || s.message.Kind != Go) {
				err = syscall.EPIPE
			}
			s.length = int(s.message.A)
		case pollAlive:
			err = alive(s, a[0])
		case tell:
			s.message = Message{Kind: Kind(a[0])}
			send(s)
		case jump:
			i = int(a[0]) - 1
			continue
		case fork:
			// The memory is shared until the other executes (CLONE_VM): to copy it and to let
			// go of the copy takes longer than all else between here and the command. It
			// is not vfork(2), by which an execve(2) that hangs would hold pid 1 as well.
			s.child.first, s.child.length = i+1, s.length
			var e uintptr
			r, e = cloneOnto(unix.SYS_CLONE, unix.CLONE_VM|uintptr(unix.SIGCHLD), s.stack, 0, 0, 0, s.child)
			if err = syscall.Errno(e); err == 0 {
				s.command = r
				return true
			}
		case execAny:
			err = execute(a[0], a[1], a[2])
			s.message = Message{Kind: NotExecuted, B: int32(err)}
			send(s)
			exit(127)
		}
		if err != 0 && (o.ok[0] == anyError || uintptr(o.ok[0]) == uintptr(err) || uintptr(o.ok[1]) == uintptr(err)) {
			r, err = -uintptr(err), 0
		}
		if err != 0 {
			s.message = Message{Kind: Failed, A: int32(o.step), B: int32(err)}
			send(s)
			exit(125)
		}
		if o.out != 0 {
			s.regs[o.out&(maxRegs-1)] = r
		}
	}
	return false
}

// digits writes n in decimal at an address; the memory behind it is zero.
//
//go:nosplit
//go:norace
func digits(at, n uintptr) {
	for m := n; m >= 10; m /= 10 {
		at++
	}
	for ; ; at-- {
		**(**byte)(unsafe.Pointer(&at)) = byte('0' + n%10)
		if n /= 10; n == 0 {
			return
		}
	}
}

//go:nosplit
//go:norace
func resetSignals(s *copied) syscall.Errno {
	// clone3(2) has done it (CLONE_CLEAR_SIGHAND, Linux 5.5) where it was to be
	// had: the runtime handles SIGURG at all times.
	_, err := sys(unix.SYS_RT_SIGACTION, uintptr(unix.SIGURG), 0, uintptr(unsafe.Pointer(&s.action)), 8, 0, 0)
	if err != 0 || s.action[0] == 0 {
		return err
	}
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig != uintptr(unix.SIGKILL) && sig != uintptr(unix.SIGSTOP) {
			// An ignored signal stays ignored, as execve(2) would leave it: nohup works.
			_, err := sys(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&s.action)), 8, 0, 0)
			if err != 0 {
				return err
			}
			if s.action[0] == 1 {
				continue
			}
			s.action = [4]uint64{}
			if _, err = sys(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&s.action)), 0, 8, 0, 0); err != 0 {
				return err
			}
		}
	}
	return 0
}

//go:nosplit
//go:norace
func dropBounding() syscall.Errno {
	for c := uintptr(0); c < 64; c++ {
		_, err := sys(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0, 0, 0, 0)
		if err == syscall.EINVAL && c > 0 {
			return 0 // past the kernel's last capability
		}
		if err != 0 {
			return err
		}
	}
	return 0
}

//go:nosplit
//go:norace
func alive(s *copied, control uintptr) syscall.Errno {
	s.poll[0] = unix.PollFd{Fd: int32(control)}
	s.now = unix.Timespec{}
	r, err := sys(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.poll[0])), 1, uintptr(unsafe.Pointer(&s.now)), 0, 0, 0)
	if err == 0 && r != 0 && s.poll[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
		err = syscall.EPIPE
	}
	return err
}

// execute tries the paths as execvp(3) does: a path that is not there or not
// allowed lets the next one try, and a refusal is remembered over an absence.
//
//go:nosplit
//go:norace
func execute(paths, argv, env uintptr) syscall.Errno {
	result := syscall.ENOENT
	for {
		path := **(**uintptr)(unsafe.Pointer(&paths))
		if path == 0 {
			return result
		}
		_, err := sys(unix.SYS_EXECVE, path, argv, env, 0, 0, 0)
		switch err {
		case syscall.ENOENT, syscall.ENOTDIR:
		case syscall.EACCES:
			result = err
		default:
			return err
		}
		paths += unsafe.Sizeof(paths)
	}
}

//go:nosplit
//go:norace
func send(s *copied) {
	sys(unix.SYS_SENDTO, s.control, uintptr(unsafe.Pointer(&s.message)), messageSize, unix.MSG_NOSIGNAL, 0, 0)
}

// exit ends the process. A filter of the user's may refuse the call: then a fault
// does, whose signal the kernel delivers to who blocks it too.
//
//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		sys(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
		nowhere := uintptr(0)
		**(**byte)(unsafe.Pointer(&nowhere)) = 0
	}
}

//go:nosplit
//go:norace
func clock(s *copied) int64 {
	sys(unix.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&s.now)), 0, 0, 0, 0)
	return int64(s.now.Sec)*1e9 + int64(s.now.Nsec)
}

// supervise is pid 1's life after the fork: it reaps, forwards, keeps the
// deadline, and ends with the command. The kernel then kills whatever is left
// of the pid namespace (pid_namespaces(7)), so nothing survives, however it
// daemonised.
//
//go:nosplit
//go:norace
func supervise(s *copied) {
	signals, tty := s.regs[s.signals&(maxRegs-1)], s.regs[s.terminal&(maxRegs-1)]
	keepOnly(s.control, signals, tty)
	cause := ByItself
	if s.deadline > 0 {
		s.until = clock(s) + s.deadline
		if s.until < 0 { // past the end of the clock
			s.until = 1<<63 - 1
		}
	}
	for {
		s.poll[0] = unix.PollFd{Fd: int32(s.control), Events: unix.POLLIN}
		s.poll[1] = unix.PollFd{Fd: int32(signals), Events: unix.POLLIN}
		timeout := uintptr(0)
		if s.until != 0 {
			left := max(s.until-clock(s), 0)
			s.now = unix.Timespec{Sec: left / 1e9, Nsec: left % 1e9}
			timeout = uintptr(unsafe.Pointer(&s.now))
		}
		n, err := sys(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.poll[0])), 2, timeout, 0, 0, 0)
		if err == syscall.EINTR {
			continue
		}
		if err == 0 && n == 0 {
			// The deadline. TERM first, so that a build can remove its
			// temporary files; then the end, by which everything dies.
			if cause == ByDeadline {
				s.message = Message{Kind: Exited, A: int32(unix.SIGKILL), B: cause}
				send(s)
				finish(s)
				exit(0)
			}
			cause = ByDeadline
			signal(s, all(s), uintptr(unix.SIGTERM))
			signal(s, all(s), uintptr(unix.SIGCONT))
			s.until = clock(s) + s.grace
			continue
		}
		if s.poll[1].Revents != 0 {
			sys(unix.SYS_READ, signals, uintptr(unsafe.Pointer(&s.siginfo)), unsafe.Sizeof(s.siginfo), 0, 0, 0)
			reap(s, cause)
		}
		if s.poll[0].Revents&^unix.POLLIN != 0 {
			exit(0) // the launcher is gone, and the death signal on its way
		} else if s.poll[0].Revents != 0 {
			obey(s, tty)
		}
	}
}

// all is whom kill(2) must be told to reach everything inside.
//
//go:nosplit
//go:norace
func all(s *copied) uintptr {
	if s.namespace {
		return ^uintptr(0)
	}
	return -s.command
}

// signal is kill(2). A command that has not made its group yet gets what is for
// the group: a Ctrl-C right after the start is not lost.
//
//go:nosplit
//go:norace
func signal(s *copied, to, number uintptr) {
	if _, err := sys(unix.SYS_KILL, to, number, 0, 0, 0, 0); err == syscall.ESRCH {
		sys(unix.SYS_KILL, s.command, number, 0, 0, 0, 0)
	}
}

// keepOnly closes every descriptor but three (0 stands for none): a pipe whose
// writers are all gone must look so, and pid 1 lives longer than they.
//
//go:nosplit
//go:norace
func keepOnly(a, b, c uintptr) {
	if a > b {
		a, b = b, a
	}
	if b > c {
		b, c = c, b
	}
	if a > b {
		a, b = b, a
	}
	next := uintptr(0)
	for i := 0; i < 3; i++ {
		if a > next {
			sys(unix.SYS_CLOSE_RANGE, next, a-1, 0, 0, 0, 0)
		}
		if a >= next {
			next = a + 1
		}
		a, b = b, c
	}
	sys(unix.SYS_CLOSE_RANGE, next, uintptr(^uint32(0)), 0, 0, 0, 0)
}

// reap collects every child that has changed its state, and ends pid 1 when
// the command is among the dead.
//
//go:nosplit
//go:norace
func reap(s *copied, cause int32) {
	gone, more, last := false, maxReaped, int32(0)
	var status int32
	for more > 0 {
		pid, err := sys(unix.SYS_WAIT4, ^uintptr(0), uintptr(unsafe.Pointer(&s.status)),
			unix.WNOHANG|unix.WUNTRACED|unix.WALL, uintptr(unsafe.Pointer(&s.rusage)), 0, 0)
		if err != 0 || pid == 0 {
			if !gone {
				return
			}
			if err == syscall.ECHILD && s.namespace {
				last = 1
			} else if err == 0 && cause == ByItself && s.namespace {
				left(s)
			}
			break
		}
		if gone {
			more-- // a fork bomb would keep us here
		}
		if s.status&0xff == 0x7f && letGo(pid, uintptr(s.status>>8&0xff)) {
			continue
		}
		if pid != s.command {
			execGone(s, pid)
			continue
		}
		if s.status&0xff == 0x7f {
			if s.held {
				continue // what the launcher knows it need not be told
			}
			s.held = s.terminal != 0
			s.message = Message{Kind: Stopped, A: s.status >> 8 & 0xff}
			send(s)
			continue
		}
		gone, status = true, s.status
		endExecs(s)
	}
	s.message = Message{Kind: Exited, A: status, B: cause, C: last}
	send(s)
	if last == 0 {
		finish(s)
	}
	exit(0)
}

// finish kills whatever is left, and collects it: what the end of pid 1 kills is in
// nobody's times (getrusage(2)). It waits for no more than that end would.
//
//go:nosplit
//go:norace
func finish(s *copied) {
	if !s.namespace {
		return
	}
	sys(unix.SYS_KILL, ^uintptr(0), uintptr(unix.SIGKILL), 0, 0, 0, 0)
	for {
		_, err := sys(unix.SYS_WAIT4, ^uintptr(0), 0, unix.WALL, 0, 0, 0)
		if err != 0 && err != syscall.EINTR {
			return
		}
	}
}

// letGo reports whether a child that stopped was traced: one that asks for it
// (PTRACE_TRACEME, ptrace(2)) is traced by its parent, which may be pid 1, and would
// stop at each signal until that lets it go on. It goes on untraced, with
// the signal, but for the SIGTRAP by which an execve(2) stops it.
//
//go:nosplit
//go:norace
func letGo(pid, sig uintptr) bool {
	if sig == uintptr(unix.SIGTRAP) {
		sig = 0
	}
	_, err := sys(unix.SYS_PTRACE, unix.PTRACE_DETACH, pid, 0, sig, 0, 0)
	return err == 0
}

// maxReaped bounds how many of the dead are collected after the command.
const maxReaped = 4096

// leftWait is how long the launcher has to look at who is left, in
// nanoseconds: one that is stopped or busy keeps nobody alive.
const leftWait = int64(100e6)

// left tells the launcher that there are processes that the end of pid 1 will
// kill, and gives it a moment to see which.
//
//go:nosplit
//go:norace
func left(s *copied) {
	s.message = Message{Kind: Left}
	send(s)
	until := clock(s) + leftWait
	for {
		wait := max(until-clock(s), 0)
		s.now = unix.Timespec{Nsec: wait}
		s.poll[0] = unix.PollFd{Fd: int32(s.control), Events: unix.POLLIN}
		n, _ := sys(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&s.poll[0])), 1, uintptr(unsafe.Pointer(&s.now)), 0, 0, 0)
		if n != 1 || s.poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		n, err := sys(unix.SYS_RECVFROM, s.control, uintptr(unsafe.Pointer(&s.message)), messageSize, unix.MSG_DONTWAIT, 0, 0)
		if err != 0 || n != messageSize || s.message.Kind == Seen {
			return
		}
	}
}

// obey carries out one message of the launcher.
//
//go:nosplit
//go:norace
func obey(s *copied, tty uintptr) {
	n, err := sys(unix.SYS_RECVFROM, s.control, uintptr(unsafe.Pointer(&s.message)), messageSize, unix.MSG_DONTWAIT|unix.MSG_PEEK, 0, 0)
	if err == 0 && n == messageSize && s.message.Kind == Exec {
		execAlso(s) // descriptors come with it, for which a filter of the user's may refuse the call
		return
	}
	n, err = sys(unix.SYS_RECVFROM, s.control, uintptr(unsafe.Pointer(&s.message)), messageSize, unix.MSG_DONTWAIT, 0, 0)
	if err != 0 || n != messageSize {
		return
	}
	switch s.message.Kind {
	case Signal:
		to := s.command
		if s.message.B == ToGroup {
			to = -s.command
		}
		signal(s, to, uintptr(s.message.A))
	case ExecSignal:
		if pid := s.execs[s.message.B&(MaxExecs-1)]; pid != 0 {
			if _, err := sys(unix.SYS_KILL, -pid, uintptr(s.message.A), 0, 0, 0, 0); err == syscall.ESRCH {
				sys(unix.SYS_KILL, pid, uintptr(s.message.A), 0, 0, 0, 0) // it leads no group yet
			}
		}
	case Resume:
		s.held = false
		if tty != 0 {
			// The shell that stopped us may continue us in its background,
			// and then the command is in that of its own terminal: pid 1's
			// group is in front.
			s.status = 1
			if s.message.A != 0 {
				s.status = int32(s.command)
			}
			sys(unix.SYS_IOCTL, tty, unix.TIOCSPGRP, uintptr(unsafe.Pointer(&s.status)), 0, 0, 0)
		}
		signal(s, -s.command, uintptr(unix.SIGCONT))
	}
}
