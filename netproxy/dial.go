package netproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// maxAddrs bounds how many addresses of one name are tried.
const maxAddrs = 12

// errDenied says that the verdict refuses. It is no failure of the network.
var errDenied = errors.New("denied")

// connect decides on and dials host and port, and tells Event what became of
// it. The error is errDenied where the verdict says no.
func (p *Proxy) connect(ctx context.Context, c net.Conn, own uint16, protocol, host string, port uint16) (*link, *Event, error) {
	return p.follow(ctx, c, own, protocol, p.decideOrAsk(ctx, host, port))
}

// follow does what a verdict says for the client c, and tells Event.
func (p *Proxy) follow(ctx context.Context, c net.Conn, own uint16, protocol string, v rules.Verdict) (*link, *Event, error) {
	ev := &Event{Time: time.Now(), Protocol: protocol, Verdict: v}
	var l *link
	err := errDenied
	switch ev.Verdict.Action {
	case rules.Allow:
		l, ev.Verdict, err = p.dial(ctx, ev.Verdict, protocol, own)
	case rules.Inspect:
		if p.cfg.Inspects {
			l, err = &link{verdict: ev.Verdict, inspected: true, upstream: p.cfg.Upstream.proxyFor(ev.Verdict, protocol) != nil}, nil
			break
		}
		ev.Verdict.Action, ev.Verdict.Reason = rules.Deny, rules.ByRule
		ev.Verdict.Detail = "rules for methods and paths cannot be enforced for this protocol"
	}
	switch {
	case err == errDenied:
		ev.Kind, ev.Verdict = Denied, p.hinted(c.RemoteAddr(), ev.Verdict)
	case err != nil:
		ev.Kind, ev.Err = Failed, err
	default:
		ev.Kind, ev.Upstream = Opened, l.upstream
	}
	p.cfg.Event(*ev)
	return l, ev, err
}

// closed tells Event that what ev opened is over.
func (p *Proxy) closed(ev *Event, up, down int64) {
	ev.Kind, ev.Duration = Closed, time.Since(ev.Time)
	ev.Up, ev.Down = ev.Up+up, ev.Down+down
	p.cfg.Event(*ev)
}

// A link is a connection to where a client wanted to go.
type link struct {
	net.Conn
	verdict   rules.Verdict
	upstream  bool           // by way of the host's own proxy
	inspected bool           // to be handed over: there is no connection yet
	forward   *upstreamProxy // which takes absolute URLs, since no tunnel was asked for
}

// Close ends the connection, if there is one.
func (l *link) Close() error {
	if l.inspected {
		return nil
	}
	return l.Conn.Close()
}

// dial connects to what v allows, and to nothing else. The verdict that it
// returns tells what was decided about the address, in any case.
func (p *Proxy) dial(ctx context.Context, v rules.Verdict, protocol string, own uint16) (*link, rules.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if v.Local {
		return p.dialLocal(ctx, v, own)
	}
	up := p.cfg.Upstream.proxyFor(v, protocol)
	addrs, verdicts, err := p.resolve(ctx, v, up != nil)
	if err != nil {
		return nil, verdicts[0], err
	}
	if up != nil {
		l, err := p.dialUpstream(ctx, up, v, protocol)
		return l, v, err
	}
	c, i, err := p.race(ctx, addrs, v.Port)
	if err != nil {
		return nil, v, err
	}
	return &link{Conn: c, verdict: verdicts[i]}, verdicts[i], nil
}

// dialUpstream connects by way of the host's own proxy.
func (p *Proxy) dialUpstream(ctx context.Context, up *upstreamProxy, v rules.Verdict, protocol string) (*link, error) {
	c, err := p.cfg.Dial(ctx, "tcp", up.addr)
	if err != nil {
		return nil, &upstreamError{up.addr, err}
	}
	if err := p.cfg.Upstream.check(c, up.addr); err != nil {
		c.Close()
		return nil, &upstreamError{up.addr, err}
	}
	l := &link{Conn: c, verdict: v, upstream: true}
	if protocol == "http" {
		l.forward = up
		return l, nil
	}
	if err := up.connect(ctx, c, v); err != nil {
		c.Close()
		return nil, err
	}
	return l, nil
}

// resolve finds and checks the addresses of v's host. There is always a first
// verdict. Behind a proxy of the host's, a name that does not resolve here is
// that proxy's to resolve.
func (p *Proxy) resolve(ctx context.Context, v rules.Verdict, behindProxy bool) ([]netip.Addr, []rules.Verdict, error) {
	found := []netip.Addr{v.Addr}
	if !v.Addr.IsValid() {
		if !v.IsNamed() && !p.wild.take(v.Host) {
			return nil, []rules.Verdict{v.TooMany(tooManyNames)}, errDenied
		}
		if behindProxy {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
		}
		var err error
		name := v.Host
		if strings.Contains(name, ".") {
			name += "." // the rule means this name, not one below the host's search domains
		}
		found, err = p.cfg.Resolver.LookupNetIP(ctx, "ip", name)
		if err != nil && !behindProxy {
			return nil, []rules.Verdict{v}, fmt.Errorf("resolve %s: %w", v.Host, err)
		}
		if len(found) == 0 && !behindProxy {
			return nil, []rules.Verdict{v}, fmt.Errorf("resolve %s: no address", v.Host)
		}
		if len(found) == 0 {
			return nil, []rules.Verdict{v}, nil
		}
	}
	var addrs []netip.Addr
	var verdicts, refused []rules.Verdict
	for _, a := range found {
		d := p.cfg.Rules.DecideAddr(v, a, p.owns(a.Unmap()))
		if d.Action != rules.Allow {
			refused = append(refused, d)
		} else if len(addrs) < maxAddrs {
			addrs, verdicts = append(addrs, d.Addr), append(verdicts, d)
		}
	}
	// Which of them the host's own proxy takes is not ours to say.
	if len(addrs) == 0 || behindProxy && len(refused) > 0 {
		return nil, refused, errDenied
	}
	return addrs, verdicts, nil
}

// owns says whether an address is the host's own, or leads to one that is.
func (p *Proxy) owns(a netip.Addr) bool {
	in := rules.Inner(a)
	return p.cfg.IsOwn(a) || in != a && p.cfg.IsOwn(in)
}

// dialLocal connects to a port of the host's loopback: IPv4, and else IPv6. At own the
// client came in itself.
func (p *Proxy) dialLocal(ctx context.Context, v rules.Verdict, own uint16) (*link, rules.Verdict, error) {
	if v.Port == own {
		v.Action, v.Reason, v.Detail = rules.Deny, rules.BadAddr, "the port is the proxy's own"
		return nil, v, errDenied
	}
	var first error
	for _, a := range [...]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		d := p.cfg.Rules.DecideAddr(v, a, true)
		if d.Action != rules.Allow {
			return nil, d, errDenied
		}
		c, err := p.local(ctx, "tcp", netip.AddrPortFrom(a, v.Port).String())
		if err == nil {
			return &link{Conn: c, verdict: d}, d, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, v, first
}

// maxSpare is how many attempts there are at once beside the first of each client:
// each takes a descriptor more than a client is counted with. Whoever comes to a
// slow host then tries one address after another.
const maxSpare = 48

func (p *Proxy) takeSpare() bool {
	if p.racing.Add(1) <= maxSpare {
		return true
	}
	p.racing.Add(-1)
	return false
}

// race connects to the first of addrs that answers, and says which.
func (p *Proxy) race(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, int, error) {
	order := interleave(addrs)
	if len(order) == 1 {
		c, err := p.cfg.Dial(ctx, "tcp", netip.AddrPortFrom(addrs[0], port).String())
		return c, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		i    int
		err  error
	}
	results := make(chan result)
	start := func(i int, spare bool) {
		go func() {
			if spare {
				defer p.racing.Add(-1)
			}
			c, err := p.cfg.Dial(ctx, "tcp", netip.AddrPortFrom(addrs[i], port).String())
			select {
			case results <- result{c, i, err}:
			case <-ctx.Done(): // another one won
				if c != nil {
					c.Close()
				}
			}
		}()
	}
	start(order[0], false)
	running, rest := 1, order[1:]
	timer := time.NewTimer(p.attemptDelay)
	defer timer.Stop()
	var first error
	for {
		select {
		case <-timer.C:
		case r := <-results:
			if r.err == nil {
				return r.conn, r.i, nil
			}
			if first == nil {
				first = r.err
			}
			if running--; running == 0 && len(rest) == 0 {
				return nil, 0, first
			}
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
		if len(rest) > 0 {
			if spare := running > 0; !spare || p.takeSpare() {
				start(rest[0], spare)
				running, rest = running+1, rest[1:]
			}
			timer.Reset(p.attemptDelay)
		}
	}
}

// interleave returns the indexes of addrs so that the families alternate,
// beginning with that of the first (RFC 8305, section 4).
func interleave(addrs []netip.Addr) []int {
	var same, other, order []int
	for i, a := range addrs {
		if a.Is4() == addrs[0].Is4() {
			same = append(same, i)
		} else {
			other = append(other, i)
		}
	}
	for len(same) > 0 || len(other) > 0 {
		if len(same) > 0 {
			order, same = append(order, same[0]), same[1:]
		}
		if len(other) > 0 {
			order, other = append(order, other[0]), other[1:]
		}
	}
	return order
}

// isSource says whether a is what a socket toward it would have for its source
// address, or that is a loopback one: so it is for most of the machine's own. No
// packet is sent.
func isSource(a netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 9)))
	if err != nil {
		return !isNoRoute(err)
	}
	defer c.Close()
	src := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return src == a || src.IsLoopback()
}

// isNoRoute says whether an error is that there is no way to an address, so that a
// dial fails too. Of any other, such as that there is no descriptor left, nobody
// knows what it will be for the dial a moment later.
func isNoRoute(err error) bool {
	for _, e := range [...]error{syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EACCES, syscall.EINVAL, syscall.EAFNOSUPPORT, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func hostPort(v rules.Verdict) string {
	return net.JoinHostPort(v.Host, strconv.Itoa(int(v.Port)))
}
