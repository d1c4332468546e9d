package network

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A batch is a run of netlink messages, netlink(7). It is sent on a socket of the sandbox's network
// namespace, which package nl cannot be given: the socket and what becomes of each message are ours.
type batch struct {
	b        []byte
	steps    []step // what each message does, by its sequence number
	last     int    // where the last message begins
	optional bool   // of the messages that follow
}

// A step is one message of a batch.
type step struct {
	what     string
	optional bool  // it may fail
	err      error // what became of it
}

// message appends a message.
func (w *batch) message(what string, kind, flags uint16, header nl.NetlinkRequestData, attributes ...*nl.RtAttr) {
	m := nl.NetlinkRequest{NlMsghdr: unix.NlMsghdr{Type: kind, Flags: flags | unix.NLM_F_REQUEST, Seq: uint32(len(w.steps))}}
	m.AddData(header)
	for _, a := range attributes {
		m.AddData(a)
	}
	w.last = len(w.b)
	w.b = append(w.b, m.Serialize()...)
	w.steps = append(w.steps, step{what: what, optional: w.optional})
}

// acknowledge asks for an answer to the last message.
func (w *batch) acknowledge() {
	flags := w.b[w.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
}

func attr(kind int, data ...byte) *nl.RtAttr { return nl.NewRtAttr(kind, data) }

// Numbers of rtnetlink are the machine's, those of nfnetlink big-endian.
func ne32(kind int, n uint32) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint32Attr(n)) }
func be32(kind int, n uint32) *nl.RtAttr { return nl.NewRtAttr(kind, nl.BEUint32Attr(n)) }
func be64(kind int, n uint64) *nl.RtAttr { return nl.NewRtAttr(kind, nl.BEUint64Attr(n)) }

func text(kind int, s string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(s)) }

// nest is an attribute that holds others.
func nest(kind int, attributes ...*nl.RtAttr) *nl.RtAttr {
	a := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	for _, child := range attributes {
		a.AddChild(child)
	}
	return a
}

// send carries the batch out on a socket and reads what became of it: the
// kernel has answered by the time that send returns. The last message has to
// ask for an acknowledgement; an error of any is told unasked. The first error
// of a message that must not fail is returned.
func (w *batch) send(fd int) error {
	if err := toKernel(fd, w.b); err != nil {
		return os.NewSyscallError("netlink send", err)
	}
	var buf [4 << 10]byte
	for last := false; !last; {
		n, from, err := receive(fd, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err == unix.EAGAIN && w.err() != nil {
			break // what was given up as a whole has no last message
		}
		if err != nil {
			return os.NewSyscallError("netlink answer", err)
		}
		if from != 0 {
			continue // not the kernel's
		}
		messages, _ := syscall.ParseNetlinkMessage(buf[:n])
		for _, m := range messages {
			seq := int(m.Header.Seq)
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 || seq >= len(w.steps) {
				continue
			}
			s := &w.steps[seq]
			if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data))); errno != 0 && s.err == nil {
				s.err = fmt.Errorf("%s: %w", s.what, errno)
			}
			last = last || seq == len(w.steps)-1
		}
	}
	return w.err()
}

// toKernel is sendto(2), which is over when the kernel has done what the
// messages say: in well under a millisecond. It and receive are calls that Go's
// runtime does not hear of. One that could block wakes the runtime's monitor,
// which looks around for some time: ten times the cost of a sign of life.
func toKernel(fd int, b []byte) error {
	to := unix.RawSockaddrNetlink{Family: unix.AF_NETLINK}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, uintptr(unsafe.Pointer(&to)), unix.SizeofSockaddrNetlink)
	if errno != 0 {
		return errno
	}
	return nil
}

// receive is recvfrom(2) that does not wait. It returns the sender's port, which
// is 0 for the kernel.
func receive(fd int, b []byte) (n int, from uint32, err error) {
	var sender unix.RawSockaddrNetlink
	size := uint32(unix.SizeofSockaddrNetlink)
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, uintptr(unsafe.Pointer(&sender)), uintptr(unsafe.Pointer(&size)))
	if errno != 0 {
		return 0, 0, errno
	}
	if size != unix.SizeofSockaddrNetlink || sender.Family != unix.AF_NETLINK {
		return 0, ^uint32(0), nil
	}
	return int(r), sender.Pid, nil
}

func (w *batch) err() error {
	for _, s := range w.steps {
		if s.err != nil && !s.optional {
			return s.err
		}
	}
	return nil
}
