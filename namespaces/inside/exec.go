//go:build linux

package inside

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Another command is a part of the table that the launcher appends while the first
// runs. pid 1 clones itself for it: what has been taken from pid 1 for good, its
// filters and limits, the other command cannot have either.

// MaxExecs bounds how many other commands run at a time. It is a power of two.
const MaxExecs = 16

// ExecFDs is how many descriptors come with [Exec]: the command's three, and one end of a
// SOCK_SEQPACKET pair on which its process tells why it could not become the command.
const ExecFDs = 4

// passed is where descriptors are received: struct msghdr, struct iovec, and the control message.
// It holds no pointers, as [copied] says.
type passed struct {
	header  [7]uintptr
	iov     [2]uintptr
	control [4]uint64 // a header of 16 bytes, and the descriptors
}

// Extra begins the part of the table that is another command, and returns the registers of its
// descriptors.
func (p *Program) Extra() (fds [ExecFDs]Reg) {
	for i := range fds {
		if p.regs++; p.regs >= maxRegs {
			p.regs = maxRegs - 1 // and what follows fails
		}
		fds[i] = Reg(p.regs)
	}
	p.shared.extra = fds[0]
	return fds
}

// Also is the message that has pid 1 start what follows the mark.
func (p *Program) Also(from Mark, which int) (Message, error) {
	return Message{Kind: Exec, A: int32(from.ops), B: int32(p.ops), C: int32(which)}, p.err
}

// execAlso starts another command, as the message says.
//
//go:nosplit
//go:norace
func execAlso(s *copied) {
	first, length, which := int(s.message.A), int(s.message.B), s.message.C&(MaxExecs-1)
	r := &s.passed
	r.iov = [2]uintptr{uintptr(unsafe.Pointer(&s.message)), messageSize}
	r.header = [7]uintptr{2: uintptr(unsafe.Pointer(&r.iov)), 3: 1, 4: uintptr(unsafe.Pointer(&r.control)), 5: unsafe.Sizeof(r.control)}
	r.control = [4]uint64{}
	_, err := sys(unix.SYS_RECVMSG, s.control, uintptr(unsafe.Pointer(&r.header)), unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC, 0, 0, 0)
	if err != 0 { // the message goes all the same, without its descriptors
		sys(unix.SYS_RECVFROM, s.control, uintptr(unsafe.Pointer(&s.message)), messageSize, unix.MSG_DONTWAIT, 0, 0)
	}
	count := uint64(0)
	if err == 0 && r.control[0] > 16 {
		count = (r.control[0] - 16) / 4
	}
	if err == 0 && (count != ExecFDs || s.execs[which] != 0) {
		err = syscall.EBADF
	}
	extra := s.extra
	for i := uint64(0); i < count && i < ExecFDs; i++ {
		fd := uintptr(uint32(r.control[2+i/2&1] >> (i % 2 * 32)))
		s.regs[(uint64(s.shared.extra)+i)&(maxRegs-1)] = fd
		extra.control = fd // the last
	}
	if err == 0 {
		extra.first, extra.length = first, length
		// The memory is copied: the command's process may be on the stack still, by an execve(2) that
		// hangs, and so may another's.
		var pid, e uintptr
		pid, e = cloneOnto(unix.SYS_CLONE, uintptr(unix.SIGCHLD), s.stack, 0, 0, 0, extra)
		if err = syscall.Errno(e); err == 0 {
			s.execs[which] = pid
		}
	}
	for i := uint64(0); i < count && i < ExecFDs; i++ {
		sys(unix.SYS_CLOSE, s.regs[(uint64(s.shared.extra)+i)&(maxRegs-1)], 0, 0, 0, 0, 0)
	}
	if err != 0 {
		s.message = Message{Kind: ExecGone, B: which, C: int32(err)}
		send(s)
	}
}

// execGone tells that another command has ended, if a process was one.
//
//go:nosplit
//go:norace
func execGone(s *copied, pid uintptr) {
	if s.status&0xff == 0x7f { // it stopped
		return
	}
	for i := range s.execs {
		if s.execs[i] == pid {
			s.execs[i] = 0
			s.message = Message{Kind: ExecGone, A: s.status, B: int32(i)}
			send(s)
		}
	}
}

// endExecs ends the other commands: the end of the first is theirs, and nothing that it left.
//
//go:nosplit
//go:norace
func endExecs(s *copied) {
	for i := range s.execs {
		pid := s.execs[i]
		if pid == 0 {
			continue
		}
		sys(unix.SYS_KILL, -pid, uintptr(unix.SIGKILL), 0, 0, 0, 0)
		sys(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0, 0, 0, 0) // it may lead no group yet
		if got, _ := sys(unix.SYS_WAIT4, pid, uintptr(unsafe.Pointer(&s.status)), unix.WALL, 0, 0, 0); got == pid {
			execGone(s, pid)
		}
	}
}
