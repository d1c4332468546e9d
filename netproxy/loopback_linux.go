package netproxy

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// loopbackDialer connects to a port of this machine, where the kernel has done
// all of it by the time that connect(2) returns, and says that it is in progress:
// the answer came while the socket was still in use. Asked twice it says what
// became of it, and who dials need neither be woken nor watched. A connection
// that cannot break unseen is not probed either.
var loopbackDialer = &net.Dialer{KeepAlive: -1, Control: connectEarly}

// connectEarly connects, as far as that can be done at once. What goes wrong the
// caller's own connect(2) tells.
func connectEarly(_, address string, conn syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	var at unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		at = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return conn.Control(func(fd uintptr) { _ = unix.Connect(int(fd), at) })
}
