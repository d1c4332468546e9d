package network

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Questions is a UDP socket at which the questions to every name server
// arrive. Its addresses say both who asked and whom: an answer has to come from
// there.
type Questions struct{ *net.UDPConn }

// An Asker is who asked, and whom.
type Asker struct {
	Client netip.AddrPort
	Server netip.Addr
}

// Network is part of [net.Addr].
func (a Asker) Network() string { return "udp" }

// String is part of [net.Addr].
func (a Asker) String() string { return a.Client.String() }

// ReadFrom reads one question; the address is an [Asker].
func (q *Questions) ReadFrom(b []byte) (int, net.Addr, error) {
	var oob [64]byte
	n, on, _, from, err := q.ReadMsgUDPAddrPort(b, oob[:])
	if err != nil {
		return n, nil, err
	}
	a := Asker{Client: from}
	if messages, err := unix.ParseSocketControlMessage(oob[:on]); err == nil {
		for _, m := range messages {
			switch {
			case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
				a.Server = netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(&m.Data[0])).Addr)
			case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
				a.Server = netip.AddrFrom16((*unix.Inet6Pktinfo)(unsafe.Pointer(&m.Data[0])).Addr)
			}
		}
	}
	return n, a, nil
}

// WriteTo answers an [Asker].
func (q *Questions) WriteTo(b []byte, to net.Addr) (int, error) {
	a, ok := to.(Asker)
	if !ok {
		return 0, unix.EINVAL
	}
	var oob []byte
	switch {
	case a.Server.Is4():
		oob = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: a.Server.As4()})
	case a.Server.Is6(): // IPv4 too, mapped
		oob = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: a.Server.As16()})
	}
	n, _, err := q.WriteMsgUDPAddrPort(b, oob, a.Client)
	return n, err
}
