package inside

import (
	"context"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// hand gives the launcher the sockets that programs come to, in the order of the plan: the
// listeners, the name server's, and those that capture. What is served outside need not
// come over the one stream.
func (p *place) hand() error {
	var fds []int
	keep := func(s interface{ File() (*os.File, error) }, err error) error {
		if err != nil {
			return err
		}
		f, err := s.File()
		if err == nil {
			defer f.Close()
			var fd int
			if fd, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0); err == nil {
				fds = append(fds, fd)
			}
		}
		return err
	}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	listen := func(address string, port uint16) error {
		l, err := listen(address, port)
		if err == nil {
			defer l.Close()
		}
		return keep(l, err)
	}
	for _, port := range p.plan.Listen {
		if err := listen("127.0.0.1", port); err != nil {
			return err
		}
	}
	if len(p.plan.Capture) > 0 {
		u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
		if err == nil {
			defer u.Close()
		}
		if err := keep(u, err); err != nil {
			return err
		}
	}
	for _, port := range p.plan.Capture {
		if err := listen("0.0.0.0", port); err != nil {
			return err
		}
	}
	return send(p.plan.Socket, fds...)
}

// listen opens a port. One of the loopback and one of every address may be the same: who connects to the loopback comes to
// the first (SO_REUSEPORT, and the kernel prefers the listener that has the address).
func listen(address string, port uint16) (*net.TCPListener, error) {
	share := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return os.NewSyscallError("setsockopt", err)
	}}
	l, err := share.Listen(context.Background(), "tcp4", net.JoinHostPort(address, strconv.Itoa(int(port))))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// send gives descriptors to whom a socket belongs.
func send(socket string, fds ...int) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.WriteMsgUnix([]byte(strconv.Itoa(len(fds))), unix.UnixRights(fds...), nil)
	return err
}

// Lent is the argument before the path of a socket, to whose owner pid 1 gives its mount
// namespace: files are lent in it before anything is compared. The engine knows pid 1 by a
// number that means nothing in another pid namespace.
const Lent = "--lent"

func handMounts(socket string) error {
	ns, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	defer ns.Close()
	return send(socket, int(ns.Fd()))
}
