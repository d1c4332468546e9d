package network

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// snapshot is how much of a refused packet is read: an IPv6 header, the ports
// behind it, and what extension headers an unprivileged program may put between
// them.
const snapshot = 128

// A Refusal is a packet that the kernel refused.
type Refusal struct {
	Protocol string // "tcp", "udp" or "icmp"; "" for another
	To       netip.AddrPort
	Closed   bool // nobody listened there, and no rule refused it
}

// attributes and commands of nfnetlink_log.h.
const (
	logPayload  = 9  // NFULA_PAYLOAD
	logPrefix   = 10 // NFULA_PREFIX: of answers alone
	logMessage  = 0  // NFULNL_MSG_PACKET
	logConfig   = 1  // NFULNL_MSG_CONFIG
	cfgCommand  = 1  // NFULA_CFG_CMD
	cfgMode     = 2  // NFULA_CFG_MODE
	cfgQueue    = 5  // NFULA_CFG_QTHRESH
	commandBind = 1  // NFULNL_CFG_CMD_BIND
	copyPacket  = 2  // NFULNL_COPY_PACKET
)

// bind asks for the packets of our group, each as soon as it was refused.
func bind() *batch {
	w := &batch{}
	w.message("subscribe to denied packets", unix.NFNL_SUBSYS_ULOG<<8|logConfig, unix.NLM_F_ACK, &nl.Nfgenmsg{ResId: nl.Swap16(logGroup)},
		attr(cfgCommand, commandBind), attr(cfgMode, 0, 0, 0, snapshot, copyPacket, 0), // struct nfulnl_msg_config_mode
		be32(cfgQueue, 1))
	return w
}

// Refused calls report for each refused packet that the kernel tells of, at
// most 200 a second, until ctx is done or the network closed. What the kernel
// has told of by then is reported before it returns: a
// packet is logged before its sender hears of the refusal, so that nothing of a
// process that is dead by then is missing.
func (n *Net) Refused(ctx context.Context, report func(Refusal)) {
	if n.log == nil {
		return
	}
	n.mu.Lock()
	n.told = !n.closed
	n.mu.Unlock()
	if !n.told {
		return
	}
	defer n.log.Close()
	defer context.AfterFunc(ctx, n.last)()
	raw, err := n.log.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 16<<10)
	read := func(fd uintptr) (done bool) {
		for {
			switch size, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT); {
			case err == unix.EAGAIN:
				return false
			case err == unix.ENOBUFS, err == unix.EINTR: // of the first: more was refused than was read
			case err != nil || size <= 0:
				return true
			default:
				parseRefusals(buf[:size], report)
			}
		}
	}
	if err := raw.Read(read); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = raw.Control(func(fd uintptr) { read(fd) })
	}
}

// last makes Refused read what is left, and end.
func (n *Net) last() { _ = n.log.SetReadDeadline(time.Unix(1, 0)) }

// parseRefusals reads the packets in a datagram.
func parseRefusals(b []byte, report func(Refusal)) {
	messages, _ := syscall.ParseNetlinkMessage(b)
	for _, m := range messages {
		if m.Header.Type != unix.NFNL_SUBSYS_ULOG<<8|logMessage || len(m.Data) < nl.SizeofNfgenmsg {
			continue
		}
		answer := false
		// The kernel pads each attribute; without the padding of the last one the parser reads past the end.
		attributes, _ := nl.ParseRouteAttr(m.Data[nl.SizeofNfgenmsg : len(m.Data)&^3])
		for _, a := range attributes {
			switch a.Attr.Type {
			case logPrefix:
				answer = len(a.Value) > 1 // it stands before the packet, and others have an empty one
			case logPayload:
				if r, ok := parsePacket(a.Value, answer); ok {
					report(r)
				}
			}
		}
	}
}

// parsePacket reads where a packet was going, or of an answer where that came from.
func parsePacket(b []byte, answer bool) (r Refusal, ok bool) {
	var protocol byte
	var addr netip.Addr
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		size := int(b[0]&15) * 4
		if size < 20 || size > len(b) {
			return r, false
		}
		protocol, addr = b[9], netip.AddrFrom4([4]byte(b[16:20]))
		if binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			protocol = 0 // a later fragment has no ports
		}
		b = b[size:]
	case len(b) >= 40 && b[0]>>4 == 6:
		addr = netip.AddrFrom16([16]byte(b[24:40]))
		protocol, b = extensions(b[6], b[40:])
	default:
		return r, false
	}
	port := uint16(0)
	switch protocol {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		if len(b) < 4 {
			return r, false
		}
		if port = binary.BigEndian.Uint16(b[2:]); answer {
			// To the first segment of a connection: RFC 9293, section 3.10.7.1. Who ends one has numbers of his own.
			r.Closed, port = addr.IsLoopback() && len(b) >= 8 && binary.BigEndian.Uint32(b[4:]) == 0, binary.BigEndian.Uint16(b)
		}
		r.Protocol = "tcp"
		if protocol == unix.IPPROTO_UDP {
			r.Protocol = "udp"
		}
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		r.Protocol = "icmp"
	}
	r.To = netip.AddrPortFrom(addr, port)
	return r, !answer || r.Closed
}

// extensions returns what an IPv6 packet carries behind its extension headers
// (RFC 8200, section 4), and 0, which is none, where that is not to be seen.
func extensions(next byte, b []byte) (protocol byte, rest []byte) {
	for {
		size := 8
		switch next {
		case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS:
			if len(b) >= size {
				size += int(b[1]) * 8
			}
		case unix.IPPROTO_FRAGMENT:
			if len(b) >= size && binary.BigEndian.Uint16(b[2:])>>3 != 0 {
				return 0, nil // a later fragment has no ports
			}
		default:
			return next, b
		}
		if len(b) < size {
			return 0, nil
		}
		next, b = b[0], b[size:]
	}
}
