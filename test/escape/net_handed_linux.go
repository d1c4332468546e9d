package escape

import (
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// handedProbes use what the caller's own shell, service manager or test harness
// hands to the launcher.
func handedProbes() []Probe {
	return []Probe{
		{ID: "NET-061", Name: "a socket of the host's as standard input", Guarantee: profiles.NetAllowlist, Severity: High,
			Expect: "ENOTSOCK, since input comes through a pipe, or a refusal to start", Errnos: errnos("ENOTSOCK"), References: refs("connect(2), AF_UNSPEC", "inetd(8)", "systemd.exec(5), StandardInput=socket"), Key: "network.allow",
			Explain: "A connection that somebody has made is standard input, as inetd and service managers hand it over. A socket stays in the network namespace in which it was made, whatever network the command has: taken off its peer, it is connected to the host's loopback.",
			Payload: func(in *Inside) Outcome {
				if err := disconnect(0); err != nil {
					return Attempt(err, "take standard input off its peer")
				}
				if err := unix.Connect(0, &unix.SockaddrInet4{Port: in.TCP4, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
					return Attempt(err, "connect standard input to the host's loopback")
				}
				c, err := net.FileConn(os.NewFile(0, "standard input"))
				must(err)
				defer c.Close()
				return in.Greet(c, "standard input")
			},
			Drive:   func(d *Drive) Outcome { return d.orRefused(d.fromSocket()) },
			Observe: hitDecides("tcp4")},
	}
}

// disconnect takes a socket off its peer: an address of no family (connect(2)).
func disconnect(fd int) error {
	var none unix.RawSockaddrInet4 // sin_family is AF_UNSPEC, which is 0
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
	if errno != 0 {
		return errno
	}
	return nil
}

// fromSocket is Run with one end of a TCP connection as standard input, whose
// other end is a listener that counts nothing.
func (d *Drive) fromSocket() Outcome {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(err)
	defer l.Close()
	c, err := net.Dial("tcp4", l.Addr().String())
	must(err)
	defer c.Close()
	peer, err := l.Accept()
	must(err)
	defer peer.Close()
	if d.stdin, err = c.(*net.TCPConn).File(); err != nil {
		return Broken("%v", err)
	}
	defer d.stdin.Close()
	return d.Run()
}
