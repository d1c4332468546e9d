package network

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A batch is a run of netlink messages, netlink(7). Numbers of headers and of
// rtnetlink are the machine's, those of nfnetlink big-endian.
type batch struct {
	b        []byte
	steps    []step // what each message does, by its sequence number
	start    int    // of the message that is being written
	optional bool   // of the messages that follow
}

// A step is one message of a batch.
type step struct {
	what     string
	optional bool  // it may fail
	err      error // what became of it
}

// message begins a message; attributes follow.
func (w *batch) message(what string, kind, flags uint16, header ...byte) {
	w.end()
	w.start = len(w.b)
	w.b = binary.NativeEndian.AppendUint32(w.b, 0) // length
	w.b = binary.NativeEndian.AppendUint16(w.b, kind)
	w.b = binary.NativeEndian.AppendUint16(w.b, flags|unix.NLM_F_REQUEST)
	w.b = binary.NativeEndian.AppendUint32(w.b, uint32(len(w.steps))) // sequence
	w.b = binary.NativeEndian.AppendUint32(w.b, 0)                    // port: the kernel's
	w.b = append(w.b, header...)
	w.steps = append(w.steps, step{what: what, optional: w.optional})
}

// end fills in the length of the last message.
func (w *batch) end() {
	if n := len(w.b) - w.start; n > 0 {
		binary.NativeEndian.PutUint32(w.b[w.start:], uint32(n))
	}
}

// acknowledge asks for an answer to the last message.
func (w *batch) acknowledge() {
	flags := w.b[w.start+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
}

// attr appends an attribute. Each is padded to four bytes.
func (w *batch) attr(kind uint16, data ...byte) {
	w.b = binary.NativeEndian.AppendUint16(w.b, uint16(4+len(data)))
	w.b = binary.NativeEndian.AppendUint16(w.b, kind)
	w.b = append(w.b, data...)
	for len(w.b)%4 != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *batch) be32(kind uint16, n uint32) {
	w.attr(kind, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func (w *batch) be64(kind uint16, n uint64) {
	w.attr(kind, binary.BigEndian.AppendUint64(make([]byte, 0, 8), n)...)
}

// text appends a string and its NUL.
func (w *batch) text(kind uint16, s string) {
	at := len(w.b)
	w.attr(kind)
	w.b = append(append(w.b, s...), 0)
	binary.NativeEndian.PutUint16(w.b[at:], uint16(len(w.b)-at))
	for len(w.b)%4 != 0 {
		w.b = append(w.b, 0)
	}
}

// nest appends an attribute that holds others.
func (w *batch) nest(kind uint16, body func()) {
	at := len(w.b)
	w.attr(kind | unix.NLA_F_NESTED)
	body()
	binary.NativeEndian.PutUint16(w.b[at:], uint16(len(w.b)-at))
}

// send carries the batch out on a socket and reads what became of it: the
// kernel has answered by the time that send returns. The last message has to
// ask for an acknowledgement; an error of any is told unasked. The first error
// of a message that must not fail is returned.
func (w *batch) send(fd int) error {
	w.end()
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
		for m := range messages(buf[:n]) {
			if m.kind != unix.NLMSG_ERROR || len(m.body) < 4 || int(m.seq) >= len(w.steps) {
				continue
			}
			s := &w.steps[m.seq]
			if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.body))); errno != 0 && s.err == nil {
				s.err = fmt.Errorf("%s: %w", s.what, errno)
			}
			last = last || int(m.seq) == len(w.steps)-1
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

// A received message: its body is what follows the header.
type received struct {
	kind uint16
	seq  uint32
	body []byte
}

// messages yields the messages of a datagram, and ends at the first that is
// cut short.
func messages(b []byte) func(func(received) bool) {
	return func(yield func(received) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			n := int(binary.NativeEndian.Uint32(b))
			if n < unix.NLMSG_HDRLEN || n > len(b) {
				return
			}
			m := received{binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[unix.NLMSG_HDRLEN:n]}
			if !yield(m) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

// attributes yields the attributes of a message, and ends at the first that is
// cut short.
func attributes(b []byte) func(func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			n := int(binary.NativeEndian.Uint16(b))
			if n < 4 || n > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:n]) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}
