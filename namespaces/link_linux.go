package namespaces

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// A link is the launcher's end of the socket that it shares with pid 1.
type link struct {
	file    *os.File
	program *inside.Program // whose steps pid 1 names
	mu      sync.Mutex
	unsent  []inside.Message // for want of room
}

// descriptors takes a message with descriptors from pid 1.
func (l *link) descriptors(count int) ([]int, error) {
	fds, m, err := l.perhaps(count)
	if err == nil && len(fds) != count {
		err = fmt.Errorf("BUG: a message of kind %d in place of %d descriptors", m.Kind, count)
	}
	return fds, err
}

// perhaps takes a message from pid 1, which may be one with that many descriptors.
func (l *link) perhaps(count int) ([]int, inside.Message, error) {
	var m inside.Message
	control := make([]byte, unix.CmsgSpace(4*count))
	n, cn, err := l.hear(&m, control)
	if err != nil {
		return nil, m, err
	}
	if n == 0 || m.Kind == inside.Failed {
		return nil, m, l.failed(m, n)
	}
	if m.Kind != inside.Descriptors {
		return nil, m, nil
	}
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil || len(messages) != 1 {
		return nil, m, fmt.Errorf("BUG: control message of %d bytes: %v", cn, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != count {
		return nil, m, fmt.Errorf("BUG: %d descriptors in place of %d: %v", len(fds), count, err)
	}
	return fds, m, nil
}

// hear waits for a message of pid 1's; there is none, and n is 0, when it is
// gone. It waits in the runtime's poller: a thread in a system call keeps the
// runtime's monitor awake, which takes the processor every 20 microseconds from
// what we wait for.
func (l *link) hear(m *inside.Message, control []byte) (n, cn int, err error) {
	conn, err := l.file.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	polled := conn.Read(func(fd uintptr) bool {
		for {
			n, cn, _, _, err = unix.Recvmsg(int(fd), bytesOf(m), control, unix.MSG_CMSG_CLOEXEC)
			// A reset says that pid 1 went before it had read all that it was
			// told, and comes once, before the last that pid 1 said.
			if err != unix.EINTR && err != unix.ECONNRESET {
				return err != unix.EAGAIN
			}
		}
	})
	if err != nil {
		err = os.NewSyscallError("recvmsg", err)
	}
	return n, cn, errors.Join(err, polled)
}

func (l *link) failed(m inside.Message, n int) error {
	if n == 0 {
		return ErrEnded
	}
	e := &StepError{Step: l.program.StepName(m.A), Errno: unix.Errno(m.B)}
	return explain(e, e.Step, e.Errno, readText)
}

// hand sends pid 1 a message with descriptors.
func (l *link) hand(m inside.Message, fds []int) error {
	conn, err := l.file.SyscallConn()
	if err != nil {
		return ErrEnded
	}
	// Not while another goroutine sends: an error says that there is no room.
	l.mu.Lock()
	defer l.mu.Unlock()
	sent := conn.Control(func(fd uintptr) {
		err = unix.Sendmsg(int(fd), bytesOf(&m), unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
	})
	return errors.Join(sent, os.NewSyscallError("sendmsg", err))
}

// tell sends pid 1 a message. None is sent once the sandbox has ended: its
// descriptor may be somebody else's then.
//
// It does not wait, since pid 1 may itself wait for room. While pid 1 is stopped the socket can be full. What does
// not fit is queued and sent in order, so that a run that was stopped goes on. An equal message that is queued
// already is replaced, so that the queue stays short.
func (l *link) tell(m inside.Message) {
	conn, err := l.file.SyscallConn()
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unsent) == 0 {
		var err error
		_ = conn.Write(func(fd uintptr) bool {
			err = say(fd, m)
			return true
		})
		if err != unix.EAGAIN {
			return
		}
		go l.catchUp(conn)
	}
	l.unsent = append(slices.DeleteFunc(l.unsent, func(u inside.Message) bool { return u == m }), m)
}

// catchUp sends what is queued.
func (l *link) catchUp(conn syscall.RawConn) {
	_ = conn.Write(func(fd uintptr) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for len(l.unsent) > 0 {
			if say(fd, l.unsent[0]) == unix.EAGAIN {
				return false
			}
			l.unsent = l.unsent[1:]
		}
		return true
	})
}

func say(fd uintptr, m inside.Message) error {
	return unix.Sendto(int(fd), bytesOf(&m), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, nil)
}

func bytesOf(m *inside.Message) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(m)), unsafe.Sizeof(*m))
}
