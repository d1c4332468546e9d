package namespaces

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/network"
)

// sockets lists what pid 1 opens for the launcher: those of the network, then
// a pair for each connection to a port inside.
func (p *Plan) sockets() (list []network.Socket) {
	if p.Network != nil {
		list = p.Network.Sockets()
	}
	six := unix.AF_INET6
	if !network.HasIPv6() {
		six = unix.AF_INET
	}
	for range p.Dial {
		list = append(list, network.Socket{Domain: unix.AF_INET, Type: unix.SOCK_STREAM}, network.Socket{Domain: six, Type: unix.SOCK_STREAM})
	}
	return list
}

// dialers are sockets of the sandbox's network namespace, each for one
// connection at a time: disconnected, it can connect again (connect(2)).
type dialers struct {
	mu        sync.Mutex
	four, six []int
	closed    bool
}

func (d *dialers) add(list []network.Socket, fds []int) {
	for i, fd := range fds {
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 5}) // of connect(2) too
		*d.of(list[i].Domain) = append(*d.of(list[i].Domain), fd)
	}
}

func (d *dialers) of(domain int) *[]int {
	if domain == unix.AF_INET {
		return &d.four
	}
	return &d.six
}

func (d *dialers) take(domain int) (fd int, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.of(domain)
	if len(*list) == 0 {
		return -1, false
	}
	fd = (*list)[len(*list)-1]
	*list = (*list)[:len(*list)-1]
	return fd, true
}

// give takes a socket back, and disconnects it.
func (d *dialers) give(domain, fd int) {
	unspec := unix.RawSockaddrInet6{Family: unix.AF_UNSPEC}
	unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), unix.SizeofSockaddrInet6)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		unix.Close(fd)
		return
	}
	*d.of(domain) = append(*d.of(domain), fd)
}

func (d *dialers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, fd := range append(d.four, d.six...) {
		unix.Close(fd)
	}
	d.four, d.six = nil, nil
}

// errBusy says that all sockets that lead inside are in use.
var errBusy = errors.New("too many connections to ports inside")

// Dial connects to a port of the sandbox's loopback: at 127.0.0.1, and if
// nothing listens there, at ::1.
func (s *Sandbox) Dial(port uint16) (net.Conn, error) {
	c, err := s.dialers.dial(unix.AF_INET, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}})
	if err != nil && !errors.Is(err, errBusy) {
		if c, e := s.dialers.dial(unix.AF_INET6, &unix.SockaddrInet6{Port: int(port), Addr: [16]byte{15: 1}}); e == nil {
			return c, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connect to port %d inside: %w", port, err)
	}
	return c, nil
}

func (d *dialers) dial(domain int, to unix.Sockaddr) (net.Conn, error) {
	fd, ok := d.take(domain)
	if !ok {
		return nil, errBusy
	}
	unix.SetNonblock(fd, false)
	if err := unix.Connect(fd, to); err != nil {
		d.give(domain, fd)
		return nil, err
	}
	c, err := connOf(fd)
	if err != nil {
		d.give(domain, fd)
		return nil, err
	}
	return &inward{TCPConn: c, give: sync.OnceFunc(func() { d.give(domain, fd) })}, nil
}

// connOf makes a connection of a duplicate of fd.
func connOf(fd int) (*net.TCPConn, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), "port inside")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

// An inward is a connection to a port inside.
type inward struct {
	*net.TCPConn
	give func()
}

// Close ends the connection and lets its socket be used again.
func (c *inward) Close() error {
	err := c.TCPConn.Close()
	c.give()
	return err
}
