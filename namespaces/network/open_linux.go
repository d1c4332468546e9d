package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Socket is one that a process in the namespace has to open: the three
// arguments of socket(2). Where the kernel has none of the kind, the socket with
// the index Instead is handed in its place; 0: it has to have one.
type Socket struct{ Domain, Type, Protocol, Instead int }

// The sockets that a network is made of, by index. Those that follow are for
// the last way, one for each port.
const (
	route    = iota // netlink(7)
	rules           // netlink(7), for packet rules and signs of life
	refusals        // netlink(7), on which the kernel tells of packets
	tcp             // where captured connections arrive
	udp             // where questions arrive
	ports
)

// Sockets lists what [Plan.Open] needs, in its order. Whoever opens them has
// to have CAP_NET_ADMIN in the namespace.
func (p *Plan) Sockets() []Socket {
	family := unix.AF_INET6 // takes IPv4 too
	if !HasIPv6() {
		family = unix.AF_INET
	}
	list := []Socket{
		route:    {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, 0},
		rules:    {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, udp},
		refusals: {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, udp},
		tcp:      {Domain: family, Type: unix.SOCK_STREAM},
		udp:      {Domain: family, Type: unix.SOCK_DGRAM},
	}
	for range p.Capture {
		list = append(list, Socket{Domain: family, Type: unix.SOCK_STREAM})
	}
	return list
}

// HasIPv6 reports whether the kernel has IPv6: only then do these files exist.
func HasIPv6() bool { return hasIPv6() }

var hasIPv6 = sync.OnceValue(func() bool { return unix.Access("/proc/sys/net/ipv6", unix.F_OK) == nil })

// A Net is the network of a sandbox, seen from outside.
type Net struct {
	Captured  []net.Listener // whose connections' local address is where the client wanted to go
	Questions *Questions     // to name servers
	Rules     Rules
	Cause     error // why it is not better
	IPv6      bool

	apart bool // see Plan
	log   *os.File
	fds   []int // of Sockets; -1 for one that was closed

	mu     sync.Mutex
	closed bool
	told   bool // Refused reads the log, and closes it
}

// Prepared is what the kernel is going to be told.
type Prepared struct {
	plan   *Plan
	routes *batch
	bind   *batch
	rules  []*batch
}

// Prepare writes down what the kernel is going to be told, so that it costs no
// time later.
func (p *Plan) Prepare() *Prepared {
	if p.Apart {
		return &Prepared{plan: p, bind: bind(), rules: []*batch{closedPorts()}}
	}
	q := &Prepared{plan: p, routes: p.routes(), bind: bind()}
	if p.Rules < Routes {
		q.rules = p.ruleset(p.Rules == Reported)
	}
	return q
}

// Open makes the network out of the sockets. On a kernel that lacks something
// it takes the next best way, and says why; an error means that there is no way
// out but the explicit proxy. The sockets are its own from now on. What arrives
// from inside waits until [Net.Adopt].
func (q *Prepared) Open(fds []int) (*Net, error) {
	n := &Net{Rules: q.plan.Rules, apart: q.plan.Apart, fds: fds}
	if n.Rules != Reported {
		n.Cause = errors.New("more sockets than planned")
	}
	if err := q.open(n); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (q *Prepared) open(n *Net) error {
	if q.plan.Apart {
		if !isNetlink(n.fds[rules]) {
			return errNoNetfilter
		}
		if err := q.bind.send(n.fds[refusals]); err != nil {
			return err
		}
		return sendAll(q.rules, n.fds[rules])
	}
	if err := q.plan.Check(); err != nil {
		return err
	}
	if err := q.routes.send(n.fds[route]); err != nil {
		return err
	}
	n.IPv6 = haveIPv6(q.routes)
	// Before the rules, which refuse all that is new in a while where nobody renews
	// them: the proxy too, which is left where this fails.
	if err := n.listen(n.fds[tcp], capturePort); err != nil {
		return err
	}
	if err := n.ask(n.fds[udp]); err != nil {
		return err
	}
	if n.Rules < Routes && !isNetlink(n.fds[rules]) {
		n.Rules, n.Cause = Routes, errNoNetfilter
	}
	if n.Rules == Reported {
		err := q.bind.send(n.fds[refusals])
		if err == nil {
			err = sendAll(q.rules, n.fds[rules])
		}
		if err != nil {
			n.Rules, n.Cause, q.rules = Unreported, err, q.plan.ruleset(false)
		}
	}
	if n.Rules == Unreported {
		if err := sendAll(q.rules, n.fds[rules]); err != nil {
			n.Rules, n.Cause = Routes, err
		}
	}
	if n.Rules == Routes {
		for i, port := range q.plan.Capture {
			if err := n.listen(n.fds[ports+i], port, besides); err != nil {
				return err
			}
		}
	}
	return nil
}

// errNoNetfilter says that the kernel has nothing that could be told of rules for
// packets, or that a filter around pccrun, such as another pccrun's, refuses it.
var errNoNetfilter = errors.New("no netfilter socket can be opened")

// isNetlink reports whether a descriptor is what [Plan.Sockets] asked for, and not
// what stands in for it.
func isNetlink(fd int) bool {
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && family == unix.AF_NETLINK
}

func sendAll(list []*batch, fd int) error {
	for _, w := range list {
		if err := w.send(fd); err != nil {
			return err
		}
	}
	return nil
}

// Adopt makes Go's own of the sockets, so that they can be served.
func (n *Net) Adopt() error {
	if !n.apart {
		if err := n.adoptCaptured(); err != nil {
			return err
		}
	}
	if n.Rules == Reported {
		unix.SetNonblock(n.fds[refusals], true)
		n.log = n.file(refusals, "refused packets")
	}
	for i, fd := range n.fds {
		if i != rules && fd >= 0 {
			unix.Close(fd)
			n.fds[i] = -1
		}
	}
	return nil
}

func (n *Net) adoptCaptured() error {
	first, count := tcp, 1
	if n.Rules == Routes {
		first, count = ports, len(n.fds)-ports
	}
	for i := range count {
		f := n.file(first+i, "captured connections")
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return err
		}
		n.Captured = append(n.Captured, l)
	}
	f := n.file(udp, "questions")
	c, err := net.FilePacketConn(f)
	f.Close()
	if err != nil {
		return err
	}
	n.Questions = &Questions{c.(*net.UDPConn)}
	return nil
}

// file takes a socket out of the list.
func (n *Net) file(i int, name string) *os.File {
	f := os.NewFile(uintptr(n.fds[i]), name)
	n.fds[i] = -1
	return f
}

// An option is one call of setsockopt(2).
type option struct {
	level, name, value int
	what               string
}

// bindTo binds a socket to a port of every address.
func bindTo(fd int, port uint16, options ...option) error {
	var at unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil {
		return os.NewSyscallError("getsockopt", err)
	} else if family == unix.AF_INET6 {
		at = &unix.SockaddrInet6{Port: int(port)}
		options = append(options, option{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0, "accept IPv4 and IPv6"})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("set a socket to %s: setsockopt: %w", o.what, err)
		}
	}
	if err := unix.Bind(fd, at); err != nil {
		return fmt.Errorf("bind port %d of the sandbox: %w", port, err)
	}
	return nil
}

// transparent lets a socket accept packets to any address, and answer
// from there.
var transparent = option{unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1, "accept packets to any address"}

// besides lets the port be served at the sandbox's own loopback as well.
var besides = option{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1, "share a port with the loopback"}

func (n *Net) listen(fd int, port uint16, more ...option) error {
	if err := bindTo(fd, port, append(more, transparent)...); err != nil {
		return err
	}
	return os.NewSyscallError("listen", unix.Listen(fd, 1024))
}

func (n *Net) ask(fd int) error {
	info := option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1, "report the original destination"}
	if HasIPv6() {
		info.level, info.name = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	return bindTo(fd, capturePort, transparent, info)
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
	if !n.closed && !n.apart && n.Rules != Routes {
		lifeSign(aliveFor).send(n.fds[rules])
	}
}

// Close gives everything up.
func (n *Net) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for i, fd := range n.fds {
		if fd >= 0 {
			unix.Close(fd)
			n.fds[i] = -1
		}
	}
	for _, l := range n.Captured {
		l.Close()
	}
	if n.Questions != nil {
		n.Questions.Close()
	}
	switch {
	case n.log == nil:
	case n.told:
		n.last()
	default:
		n.log.Close()
	}
}
