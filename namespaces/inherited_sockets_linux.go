package namespaces

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// A socket that is handed in belongs to the host's network namespace, whatever
// network the command has (network_namespaces(7)). One of the network can be taken
// off its peer and connected anew, to anywhere (connect(2), AF_UNSPEC), or needs no
// peer to send. A unix socket that has none, or is for datagrams, reaches the
// abstract names of the host's (unix(7)), unless Landlock keeps the command within
// its scope (landlock(7), Linux 6.12).

// JudgeHanded refuses standard descriptors that would be handed in, and are more
// than they seem.
func (p *Plan) JudgeHanded(s *Stdio) error {
	for fd, given := range s.Fds {
		if given != fd {
			continue
		}
		if why := p.judgeSocket(fd); why != "" {
			return leadsOut(stdNames[fd], why)
		}
	}
	return nil
}

// judgeSocket returns why a descriptor is not handed in, "" for one that may be
// and for what is no socket.
func (p *Plan) judgeSocket(fd int) string {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err == unix.ENOTSOCK || err == unix.EBADF || !p.has(profiles.LayerNetns) {
		return "" // descriptors without rights (O_PATH) say EBADF
	}
	if err != nil {
		return "a socket of unknown type: " + err.Error()
	}
	if domain != unix.AF_UNIX {
		return "a network socket, which the command could connect to any host"
	}
	if p.Landlock >= landlockScope && p.has(profiles.LayerLandlock) {
		return ""
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	listens, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	_, unconnected := unix.Getpeername(fd)
	if err != nil || err2 != nil || kind == unix.SOCK_DGRAM || unconnected != nil && listens == 0 {
		return "a unix socket, which the command could connect to other sockets of the host; only Landlock of Linux 6.12 prevents that"
	}
	return ""
}

// leadsOut is the error where a socket would lead out of the sandbox.
func leadsOut(what, why string) error {
	return hint.Errorf("use a pipe (… | pccrun …); --publish PORT for a server inside, --allow HOST for a client", "%s: %s", what, why)
}
