package netproxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// accessDenied is a fatal TLS alert, RFC 8446.
const accessDenied = "\x15\x03\x01\x00\x02\x02\x31"

// ServeCaptured accepts connections from ln that were on their way to where
// their local address says, and carries each there if the rules allow: to the
// name that has the address, or to the address itself. It ends as Serve does.
func (p *Proxy) ServeCaptured(ctx context.Context, ln net.Listener) error {
	own := ownPort(ln)
	return p.serve(ctx, ln, func(ctx context.Context, c net.Conn) { p.serveCaptured(ctx, c, own) })
}

func (p *Proxy) serveCaptured(ctx context.Context, conn net.Conn, own uint16) {
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if !ok {
		reset(conn)
		return
	}
	to := local.AddrPort()
	if to.Port() == 53 && !p.mayReach(to) {
		p.serveQuestionsOverTCP(conn)
		return
	}
	v := p.decideAddr(to.Addr().Unmap(), to.Port())
	l, ev, err := p.follow(ctx, conn, own, "transparent", p.orAsk(ctx, v))
	c := newClient(p, ctx, conn, own)
	defer c.release()
	if err != nil {
		c.turnAway(ev.Verdict, err)
		return
	}
	defer l.Close()
	c.tunnel(l, ev)
}

// mayReach says whether the rules allow a connection to an address, or to the
// name that has it.
func (p *Proxy) mayReach(to netip.AddrPort) bool {
	return p.decideAddr(to.Addr().Unmap(), to.Port()).Action != rules.Deny
}

// decide asks the rules about host, which a client that resolves names itself
// may know by its fake address alone.
func (p *Proxy) decide(host string, port uint16) rules.Verdict {
	if p.cfg.Names == nil {
		return p.cfg.Rules.Decide(host, port)
	}
	a, err := netip.ParseAddr(host)
	if err != nil {
		return p.cfg.Rules.Decide(host, port)
	}
	if v, ok := p.decideFake(a, port); ok {
		return v
	}
	return p.cfg.Rules.Decide(host, port)
}

// decideAddr does so for an address.
func (p *Proxy) decideAddr(a netip.Addr, port uint16) rules.Verdict {
	if v, ok := p.decideFake(a, port); ok {
		return v
	}
	return p.cfg.Rules.Decide(a.String(), port)
}

// decideFake does so for a fake address; for another one it is not ok.
func (p *Proxy) decideFake(a netip.Addr, port uint16) (v rules.Verdict, ok bool) {
	name, fake := p.cfg.Names.At(a)
	switch {
	case !fake:
		return v, false
	case name == "":
		return rules.Verdict{Host: a.String(), Port: port, Addr: a, Reason: rules.ByDefault, Detail: "no name has this address"}, true
	}
	return p.cfg.Rules.Decide(name, port), true
}

// turnAway ends a connection that the kernel has already accepted, and says why
// in the client's own language if it speaks first, and soon.
func (c *client) turnAway(v rules.Verdict, err error) {
	c.conn.SetReadDeadline(time.Now().Add(c.turnAwayTimeout))
	first, _ := c.br.Peek(1)
	switch {
	case len(first) == 1 && first[0] == recordHandshake && err == errDenied:
		io.WriteString(c.conn, accessDenied)
		c.linger()
	case len(first) == 1 && 'A' <= first[0] && first[0] <= 'Z':
		line, cut := c.br.ReadSlice('\n') // a longer one than the buffer is none
		if cut != nil || !isRequestLine(string(line)) {
			reset(c.conn)
			break
		}
		a := wire.Answer{Verdict: v}
		if err != errDenied {
			a.Status, a.Detail = 502, explain(err)
		}
		c.refuse(slices.Clone(line), a)
	default:
		reset(c.conn)
	}
}

// isRequestLine says whether a line is the first of an HTTP/1 request.
func isRequestLine(line string) bool {
	line = strings.TrimRight(line, "\r\n")
	return strings.HasSuffix(line, " HTTP/1.1") || strings.HasSuffix(line, " HTTP/1.0")
}

// turnAwayTimeout is how long a client that is turned away has to say
// something that an answer could be given to.
const turnAwayTimeout = 100 * time.Millisecond

// Refused tells of a packet that was refused before it came to a connection.
// The same refusal is told once in a while.
func (p *Proxy) Refused(protocol string, to netip.AddrPort) {
	a := to.Addr().Unmap()
	if a.IsMulticast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return // a program that looks around in a network that is not there
	}
	v := p.decideAddr(a, to.Port())
	name, _ := p.cfg.Names.At(a)
	switch {
	case protocol == "udp" && name != "" && to.Port() == 443:
		return // QUIC, which goes on by TCP: what that is refused is told
	case protocol == "tcp" && v.Action != rules.Deny:
		return // for want of a sign of life
	case protocol != "tcp":
		switch {
		case to.Port() != 0:
		case name != "":
			v.Host = name
		default:
			v.Host, v.Addr = a.String(), a
		}
		v.Action, v.Reason, v.Rule, v.AllowWith, v.Detail = rules.Deny, rules.ByDefault, "", "", "only TCP is allowed"
	}
	if p.recent.first(protocol + " " + to.String()) {
		p.cfg.Event(Event{Kind: Denied, Time: time.Now(), Protocol: "transparent", Verdict: v})
	}
}

// recent remembers what was told, so that a program that tries again and again,
// or makes up name after name, does not fill the log.
type recent struct {
	mu    sync.Mutex
	since time.Time
	seen  map[string]bool
}

// maxRecent is how many things are told in a minute.
const maxRecent = 1024

// first says whether what is to be told: it was not yet in this minute, and
// there is room.
func (r *recent) first(what string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.seen == nil || now.Sub(r.since) > time.Minute {
		r.since, r.seen = now, make(map[string]bool)
	}
	if r.seen[what] || len(r.seen) >= maxRecent {
		return false
	}
	r.seen[what] = true
	return true
}

// hints are the flags that [Config].Hint has returned.
type hints struct {
	mu    sync.Mutex
	flags map[string]string
}

// maxHints is how often Config.Hint is asked: it may look at every process of the sandbox.
const maxHints = 128

// hinted returns a refusal with the flag that would allow it.
func (p *Proxy) hinted(client net.Addr, v rules.Verdict) rules.Verdict {
	if p.cfg.Hint == nil || client == nil || v.Action != rules.Deny || v.Reason != rules.ByDefault || v.Addr.IsValid() || v.AllowWith == "" {
		return v
	}
	h, key := &p.hints, hostPort(v)
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, asked := h.flags[key]; !asked && len(h.flags) < maxHints {
		if h.flags == nil {
			h.flags = map[string]string{}
		}
		h.flags[key] = p.cfg.Hint(client, v)
	}
	if flag := h.flags[key]; flag != "" {
		v.AllowWith = flag
	}
	return v
}
