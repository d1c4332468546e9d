package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Socket is one that a process in the namespace has to open: the three
// arguments of socket(2).
type Socket struct{ Domain, Type, Protocol int }

// Sockets lists what [Plan.Open] needs, in its order. Whoever opens them has
// to have CAP_NET_ADMIN in the namespace.
func (p *Plan) Sockets() []Socket {
	list := []Socket{
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, // rules
		{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, // refusals
		{unix.AF_INET, unix.SOCK_STREAM, 0},
		{unix.AF_INET, unix.SOCK_DGRAM, 0},
	}
	if HasIPv6() {
		list = append(list, Socket{unix.AF_INET6, unix.SOCK_STREAM, 0}, Socket{unix.AF_INET6, unix.SOCK_DGRAM, 0})
	}
	return list
}

// HasIPv6 reports whether the kernel has IPv6: only then do these files exist.
func HasIPv6() bool { return unix.Access("/proc/sys/net/ipv6", unix.F_OK) == nil }

// A Net is the network of a sandbox, seen from outside.
type Net struct {
	Captured  []net.Listener // whose connections' local address is where the client wanted to go
	Questions []*Questions   // to name servers
	Rules     Rules
	Cause     error // why it is not better
	IPv6      bool

	log *os.File

	mu    sync.Mutex
	rules int // the netlink socket that the sign of life goes to, -1 for none
}

// Open makes the network out of the sockets. On a kernel that lacks something
// it takes the next best way, and says why; an error means that there is no way
// out but the explicit proxy. The sockets are its own from now on.
func (p *Plan) Open(fds []int) (*Net, error) {
	const route, rules, refusals, tcp4, udp4, tcp6, udp6 = 0, 1, 2, 3, 4, 5, 6
	n := &Net{rules: -1, Rules: p.Rules}
	keep := map[int]bool{}
	defer func() {
		for i, fd := range fds {
			if !keep[i] {
				unix.Close(fd)
			}
		}
	}()
	if err := p.Check(); err != nil {
		return nil, err
	}
	speed().send(fds[route]) // that may fail
	if err := routes(unix.AF_INET, own4).send(fds[route]); err != nil {
		return nil, err
	}
	if len(fds) > tcp6 {
		// A namespace whose IPv6 is switched off has no address and no route.
		n.IPv6 = routes(unix.AF_INET6, p.Range.own()).send(fds[route]) == nil
	}
	n.Cause = errors.New("asked for")
	if n.Rules == Reported {
		err := bind().send(fds[refusals])
		if err == nil {
			err = p.ruleset(true).send(fds[rules])
		}
		if err != nil {
			n.Rules, n.Cause = Unreported, err
		} else {
			n.Cause = nil
			n.log, keep[refusals] = logFile(fds[refusals]), true
		}
	}
	if n.Rules == Unreported {
		if err := p.ruleset(false).send(fds[rules]); err != nil {
			n.Rules, n.Cause = Routes, err
		}
	}
	type end struct {
		tcp, udp           int
		capture, questions netip.AddrPort
		names              netip.Prefix
	}
	ends := []end{{tcp4, udp4, capture4, netip.AddrPortFrom(resolver4, 53), Names4}}
	if n.IPv6 {
		ends = append(ends, end{tcp6, udp6, p.Range.capture(), netip.AddrPortFrom(p.Range.resolver(), 53), p.Range.Names6()})
	}
	if n.Rules == Routes {
		return n, p.openPorts(n)
	}
	n.rules, keep[rules] = fds[rules], true
	for _, set := range [...][]*batch{addresses("four", p.captured(true)), addresses("six", p.captured(false))} {
		for _, w := range set {
			if err := w.send(n.rules); err != nil {
				n.Close()
				return nil, err
			}
		}
	}
	for _, e := range ends {
		if err := n.listen(fds[e.tcp], e.capture); err != nil {
			n.Close()
			return nil, err
		}
		if err := n.ask(fds[e.udp], e.questions); err != nil {
			n.Close()
			return nil, err
		}
	}
	return n, nil
}

func (p *Plan) openPorts(n *Net) error { return fmt.Errorf("no packet rules: %w", n.Cause) }

// option is one call of setsockopt(2).
type option struct{ level, name int }

// prepare sets options and binds: to an address that nothing has, as
// IP_TRANSPARENT lets it.
func prepare(fd int, at netip.AddrPort, options ...option) error {
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, 1); err != nil {
			return os.NewSyscallError(fmt.Sprintf("setsockopt %d %d", o.level, o.name), err)
		}
	}
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(at.Port())}
	if at.Addr().Is4() {
		sa.(*unix.SockaddrInet4).Addr = at.Addr().As4()
	} else {
		sa = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return fmt.Errorf("bind %s: %w", at, err)
	}
	return nil
}

func (n *Net) listen(fd int, at netip.AddrPort) error {
	transparent := option{unix.IPPROTO_IP, unix.IP_TRANSPARENT}
	if at.Addr().Is6() {
		transparent = option{unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT}
	}
	if err := prepare(fd, at, transparent); err != nil {
		return err
	}
	if err := unix.Listen(fd, 1024); err != nil {
		return os.NewSyscallError("listen", err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), "captured connections")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return err
	}
	n.Captured = append(n.Captured, l)
	return nil
}

func (n *Net) ask(fd int, at netip.AddrPort) error {
	options := []option{{unix.IPPROTO_IP, unix.IP_TRANSPARENT}, {unix.IPPROTO_IP, unix.IP_PKTINFO}}
	if at.Addr().Is6() {
		options = []option{{unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT}, {unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}}
	}
	if err := prepare(fd, at, options...); err != nil {
		return err
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("dup", err)
	}
	f := os.NewFile(uintptr(dup), "questions")
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		return err
	}
	n.Questions = append(n.Questions, &Questions{c.(*net.UDPConn), at.Addr().Is4()})
	return nil
}

// KeepAlive gives signs of life until ctx is done. Without them the kernel
// refuses new connections within seconds.
func (n *Net) KeepAlive(ctx context.Context) {
	tick := time.NewTicker(Renew)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			n.Renew()
		}
	}
}

// Renew gives a sign of life. One that fails is followed by another, and the
// kernel refuses meanwhile.
func (n *Net) Renew() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rules >= 0 {
		lifeSign().send(n.rules)
	}
}

// Close gives everything up. Nothing must be under way with the network.
func (n *Net) Close() {
	for _, l := range n.Captured {
		l.Close()
	}
	for _, q := range n.Questions {
		q.Close()
	}
	if n.log != nil {
		n.log.Close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rules >= 0 {
		unix.Close(n.rules)
		n.rules = -1
	}
}
