package netproxy

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// isOwn asks the kernel's routes whether a is one of this machine's own at this
// moment: what is sent there comes back in (RTM_GETROUTE, rtnetlink(7)). [isSource]
// does not tell all: toward a second address of the same network the source is the
// first one. A route that leads all addresses back makes none its own: a sandbox has
// such a one, in which pccrun may run. Where the kernel knows no way to a there is
// none to dial either; an answer that is not understood makes it own.
func isOwn(a netip.Addr) bool {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return isSource(a) // as where a filter forbids it
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, routeQuestion(a), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return isSource(a)
	}
	var buf [1 << 10]byte
	for {
		n, _, err := unix.Recvfrom(fd, buf[:], unix.MSG_DONTWAIT) // it has answered by now
		if err == unix.EINTR {
			continue
		}
		return err != nil || isLocalRoute(buf[:n])
	}
}

// routeQuestion is the message that asks for the route to an address.
func routeQuestion(a netip.Addr) []byte {
	family := byte(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	to := a.AsSlice()
	b := make([]byte, unix.NLMSG_HDRLEN, 64)
	b = append(b, family, byte(a.BitLen()), 0, 0, 0, 0, 0, 0) // struct rtmsg, but for its flags
	b = binary.NativeEndian.AppendUint32(b, unix.RTM_F_FIB_MATCH)
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(to)))
	b = binary.NativeEndian.AppendUint16(b, unix.RTA_DST)
	b = append(b, to...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_GETROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	return b
}

// isLocalRoute reads the answer: a route, or why there is none.
func isLocalRoute(b []byte) bool {
	if len(b) < unix.NLMSG_HDRLEN {
		return true
	}
	body := b[unix.NLMSG_HDRLEN:]
	switch kind := binary.NativeEndian.Uint16(b[4:]); {
	case kind == unix.RTM_NEWROUTE && len(body) >= unix.SizeofRtMsg:
		length, kind := body[1], body[7]
		return length > 0 && (kind == unix.RTN_LOCAL || kind == unix.RTN_ANYCAST)
	case kind == unix.NLMSG_ERROR && len(body) >= 4:
		return !isNoRoute(unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
	}
	return true
}
