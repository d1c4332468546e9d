package supervisor

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
)

// Sockets returns the calls that [Loopback] answers. TCP's data in its first packet is a connection that
// Landlock is not asked about, and socketcall(2) hides its arguments in memory.
func Sockets() []seccomp.Watched {
	return []seccomp.Watched{
		{Name: "socket"},
		{Name: "socketpair"},
		{Name: "socketcall"},
		{Name: "listen"},
		{Name: "sendto", Arg: 3, Bits: unix.MSG_FASTOPEN},
		{Name: "sendmsg", Arg: 2, Bits: unix.MSG_FASTOPEN},
		{Name: "sendmmsg", Arg: 3, Bits: unix.MSG_FASTOPEN},
	}
}

// Loopback makes the sockets of a process in its place: of TCP alone, and bound to the loopback's device, from
// which only CAP_NET_RAW frees them (socket(7), SO_BINDTODEVICE). Nobody listens at one. Pairs are
// those of streams: one of datagrams can send to any socket of the machine's. Where all is false there
// is no socket at all. Nothing is read from the process: what decides are numbers that it
// passes. The listener is the supervisor's from here on.
func Loopback(listener int, all bool) *Supervisor {
	return serve(listener, func() error { return nil }, func(c *Call) Answer {
		family, kind, protocol := int(int32(c.Data.Args[0])), int(int32(c.Data.Args[1])), int(int32(c.Data.Args[2]))
		const flags = unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
		switch stream := kind &^ flags; {
		case c.Name == "socketpair" && (stream == unix.SOCK_STREAM || stream == unix.SOCK_SEQPACKET):
			return Answer{}
		case c.Name != "socket":
			return Answer{kind: fails, errno: unix.EACCES}
		case !all, family != unix.AF_INET && family != unix.AF_INET6, stream != unix.SOCK_STREAM, protocol != 0 && protocol != unix.IPPROTO_TCP:
			return Answer{kind: fails, errno: unix.EAFNOSUPPORT}
		}
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
		if err == nil {
			if err = unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo"); err != nil {
				unix.Close(fd)
			}
		}
		if err != nil {
			return failed(err)
		}
		return Answer{kind: opened, fd: fd, cloexec: uint32(kind & unix.SOCK_CLOEXEC)}
	})
}
