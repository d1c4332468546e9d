package inside

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

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

// capture opens what programs come to that know of no proxy: a name server, which asks
// the launcher, and the ports of the addresses that it gives to names.
func (p *place) capture() error {
	packets, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53})
	if err != nil {
		return err
	}
	for _, port := range p.plan.Capture {
		l, err := listen("0.0.0.0", port)
		if err != nil {
			return err
		}
		go p.carry(l, Names)
	}
	questions, err := p.open(Questions)
	if err != nil {
		return err
	}
	go func() {
		text := make([]byte, 64<<10-1)
		for {
			n, from, err := packets.ReadFromUDPAddrPort(text)
			if err != nil || WritePacket(questions, from, text[:n]) != nil {
				return
			}
		}
	}()
	go func() {
		for {
			to, text, err := ReadPacket(questions)
			if err != nil {
				return
			}
			_, _ = packets.WriteToUDPAddrPort(text, to)
		}
	}()
	return nil
}

// reached joins each stream that the launcher opens to a server of the command's, at a port that the plan names.
func (p *place) reached() {
	for {
		s, err := p.session.AcceptStream()
		if err != nil {
			return
		}
		go func() {
			defer s.Close()
			var head [3]byte
			if _, err := io.ReadFull(s, head[:]); err != nil || Kind(head[0]) != Reached {
				return
			}
			port := binary.BigEndian.Uint16(head[1:])
			if !slices.Contains(p.plan.Reach, port) {
				return
			}
			for _, host := range [...]string{"127.0.0.1", "::1"} {
				c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
				if err != nil {
					continue
				}
				defer c.Close()
				if _, err := s.Write([]byte{1}); err == nil {
					Join(c.(*net.TCPConn), s)
				}
				return
			}
		}()
	}
}

// carry carries each connection to an address of a prefix to the launcher, who decides on it. One to
// another address is reset, as the kernel resets one to a port where nobody listens.
func (p *place) carry(l net.Listener, to netip.Prefix) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		at := c.LocalAddr().(*net.TCPAddr).AddrPort()
		if !to.Contains(at.Addr().Unmap()) {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
			continue
		}
		go func() {
			defer c.Close()
			s, err := p.open(Connection, appendAddress(nil, at)...)
			if err != nil {
				return
			}
			defer s.Close()
			Join(c.(*net.TCPConn), s)
		}()
	}
}
