package netproxy

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// moreToCome keeps what does not fill a packet until what follows it.
const moreToCome = unix.MSG_MORE

// loopbackDialer connects to a port of this machine. A connection that cannot break
// unseen is not probed.
var loopbackDialer = &net.Dialer{KeepAlive: -1}

// dialLoopback is loopbackDialer's DialContext in a third of its calls. The kernel has
// done all of it by the time that connect(2) returns, and says that it is in progress:
// the answer came while the socket was still in use. Asked twice it says what became
// of it, and who dials need neither be woken nor watched. Where that is no connection,
// package net begins anew: it waits, and has words for what goes wrong.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	if to, err := netip.ParseAddrPort(address); err == nil && ctx.Err() == nil {
		if c, err := connectAtOnce(to); err == nil {
			return c, nil
		}
	}
	return loopbackDialer.DialContext(ctx, network, address)
}

func connectAtOnce(to netip.AddrPort) (net.Conn, error) {
	fd, err := dialAtOnce(to)
	if err != nil {
		return nil, err
	}
	return carry(fd, to), nil
}

// dialAtOnce returns a descriptor that is connected and does not block.
func dialAtOnce(to netip.AddrPort) (fd int, err error) {
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Connect(fd, at); err == unix.EINPROGRESS {
		err = unix.Connect(fd, at)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err == nil && isSelf(fd, to) {
		err = unix.ECONNREFUSED
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// carry makes a connection of a descriptor that leads to a port of this machine.
func carry(fd int, to netip.AddrPort) *loopback {
	return &loopback{os.NewFile(uintptr(fd), "loopback"), to}
}

// isSelf reports whether a connection is one to itself: where nobody listens at a port
// that the kernel may give to whoever dials, it can give it to him who dials it, and both
// ends meet (RFC 9293, section 3.5, simultaneous open).
func isSelf(fd int, to netip.AddrPort) bool {
	at, err := nameOf(fd)
	return err != nil || at.Port() == to.Port()
}

// nameOf is the address of a socket: getsockname(2), which package unix makes two calls of.
func nameOf(fd int) (netip.AddrPort, error) {
	at, err := syscall.Getsockname(fd)
	switch at := at.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port)), nil
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr), uint16(at.Port)), nil
	}
	return netip.AddrPort{}, cmp.Or(err, error(unix.EAFNOSUPPORT))
}

// A loopback is a connection to a port of this machine. Package net would have asked
// the kernel for both of its addresses.
type loopback struct {
	*os.File
	to netip.AddrPort
}

// RemoteAddr is where it was dialled to.
func (c *loopback) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

// LocalAddr is of this machine, and no more is known of it.
func (c *loopback) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.to.Addr(), 0))
}

// CloseWrite passes an end on.
func (c *loopback) CloseWrite() error {
	return c.control(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) })
}

// SetLinger says how many seconds [os.File.Close] leaves to what was not sent yet; 0
// has it break the connection.
func (c *loopback) SetLinger(seconds int) error {
	return c.control(func(fd int) error {
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: int32(seconds)})
	})
}

func (c *loopback) control(f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}
