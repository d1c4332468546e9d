package network

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A batch is a run of netlink messages, netlink(7). Numbers of headers and of
// rtnetlink are the machine's, those of nfnetlink big-endian.
type batch struct {
	b     []byte
	what  []string // what each message does, by its sequence number
	start int      // of the message that is being written
}

// message begins a message; attributes follow.
func (w *batch) message(what string, kind, flags uint16, header ...byte) {
	w.end()
	w.start = len(w.b)
	w.b = binary.NativeEndian.AppendUint32(w.b, 0) // length
	w.b = binary.NativeEndian.AppendUint16(w.b, kind)
	w.b = binary.NativeEndian.AppendUint16(w.b, flags|unix.NLM_F_REQUEST)
	w.b = binary.NativeEndian.AppendUint32(w.b, uint32(len(w.what))) // sequence
	w.b = binary.NativeEndian.AppendUint32(w.b, 0)                   // port: the kernel's
	w.b = append(w.b, header...)
	w.what = append(w.what, what)
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
func (w *batch) attr(kind uint16, data []byte) {
	w.b = binary.NativeEndian.AppendUint16(w.b, uint16(4+len(data)))
	w.b = binary.NativeEndian.AppendUint16(w.b, kind)
	w.b = append(w.b, data...)
	for len(w.b)%4 != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *batch) text(kind uint16, s string) { w.attr(kind, append([]byte(s), 0)) }
func (w *batch) be32(kind uint16, n uint32) { w.attr(kind, binary.BigEndian.AppendUint32(nil, n)) }
func (w *batch) be64(kind uint16, n uint64) { w.attr(kind, binary.BigEndian.AppendUint64(nil, n)) }

// nest appends an attribute that holds others.
func (w *batch) nest(kind uint16, body func()) {
	at := len(w.b)
	w.attr(kind|unix.NLA_F_NESTED, nil)
	body()
	binary.NativeEndian.PutUint16(w.b[at:], uint16(len(w.b)-at))
}

// send carries the batch out on a socket and reads what became of it: the
// kernel has answered by the time that send returns. The last message has to
// ask for an acknowledgement; an error of any is told unasked. The first error
// is returned, with what it was about.
func (w *batch) send(fd int) error {
	w.end()
	kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := unix.Sendto(fd, w.b, 0, kernel); err != nil {
		return os.NewSyscallError("netlink send", err)
	}
	var first error
	buf := make([]byte, 8<<10)
	for {
		n, from, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && first != nil:
			return first
		case err != nil:
			return os.NewSyscallError("netlink answer", err)
		}
		if k, ok := from.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
			continue // not the kernel's
		}
		for m := range messages(buf[:n]) {
			if m.kind != unix.NLMSG_ERROR || len(m.body) < 4 {
				continue
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.body)))
			if errno != 0 && first == nil {
				first = fmt.Errorf("%s: %w", w.about(m.seq), errno)
			}
			if errno == 0 && int(m.seq) == len(w.what)-1 {
				return first
			}
		}
	}
}

func (w *batch) about(seq uint32) string {
	if int(seq) < len(w.what) {
		return w.what[seq]
	}
	return "netlink"
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
