// Package netproxy is the way out of a sandbox. For programs that honour proxy
// variables it is SOCKS5 and an HTTP proxy on the same listener; for those that
// do not, a name server that gives the allowed names fake addresses, and a relay
// for the connections to them. HTTP is read by somebody else ([Config].HTTP), who
// asks here for each request, and opens no connection by itself.
//
// It promises that no connection is made that [rules.Set] does not allow, that
// a name is resolved once and exactly the address that was checked is dialled,
// that what it cannot understand it refuses, and that each decision is an
// [Event]. It passes bytes on as they come. It cannot see into TLS: a tunnel
// to an allowed host carries whatever that host takes.
//
// It knows nothing of namespaces. A listener may belong to another network
// namespace: it is only accepted from, while every dial happens in the
// namespace of the process.
package netproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// Config is what a [Proxy] needs. Rules alone is enough: the rest has defaults.
type Config struct {
	Rules *rules.Set // nil denies everything

	// Resolver finds the addresses of a name; nil is the host's.
	Resolver Resolver

	// Dial connects to an address and port that were decided on; nil is a
	// [net.Dialer]. It has to leave the address as it is.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// IsOwn says whether an address is the host's own at this moment; nil asks
	// the kernel's routes.
	IsOwn func(netip.Addr) bool

	// Names gives the allowed names their fake addresses; nil if there are none.
	Names *Names

	// Learn gives the names that are denied fake addresses too, so that their
	// ports are told as well; connections to them are refused as ever.
	Learn bool

	// HTTP has somebody read the requests of a client; whoever does reports the end.
	// Its error ends the connection. nil serves nobody who speaks HTTP.
	HTTP func(*Handover) error

	// Inspects says that the sandbox trusts who reads the requests with TLS too: with
	// the connections that the rules answer Inspect for. They are refused else.
	Inspects bool

	// Spending counts what requests cost, where there is a budget; nil counts nothing.
	Spending *Spending

	// Ask asks the user about a host that no rule speaks of, and waits for the
	// answer; nil asks nobody. Names get an address then, whatever they are.
	Ask func(ctx context.Context, host string, port uint16) Permission

	// Upstream is the proxy that the host itself has to use, if any.
	Upstream Upstream

	// Hostname is the sandbox's own name, of which its files have an IPv4 address: who wants
	// another kind of it asks, and is told that there is none.
	Hostname string

	// Token is what each client has to give first, where the listener is in the reach of others than
	// the sandbox's programs; "" where it is not.
	Token string

	// Hint returns the flag that would allow what a client, known by its address, was refused, where
	// who it is says more than the host and port do, and "" else. It is asked once for each of these.
	Hint func(client net.Addr, v rules.Verdict) string

	// Event hears of each decision, from many goroutines, and must not block.
	Event func(Event)

	// MaxConns bounds the clients served at once; 0 takes what RLIMIT_NOFILE
	// leaves at two descriptors each. Whoever comes beyond is reset.
	MaxConns int
}

// A Resolver finds the addresses of a name, as [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// An EventKind says what happened.
type EventKind string

// The kinds of events. Each decision is a Denied, a Failed, or an Opened and
// later its Closed.
const (
	Denied EventKind = "denied" // the policy refused
	Failed EventKind = "failed" // allowed, and not reached
	Opened EventKind = "opened"
	Closed EventKind = "closed"
	Full   EventKind = "full" // reset: more clients than MaxConns

	Spent EventKind = "spent" // an answer was counted, or a request refused for want of money: see Spend
)

// An Event is one decision, or the end of what it allowed.
type Event struct {
	Kind     EventKind
	Time     time.Time     // of the decision
	Protocol string        // "connect", "http", "websocket", "socks5", "local", "transparent", "dns" or "publish"
	Verdict  rules.Verdict // host, port, rule, and what would allow it
	Upstream bool          // by way of the host's own proxy, which resolves the name itself
	Err      error         // of Failed
	Request  string        // method and URL without its query, where a request was decided on
	Up, Down int64         // of Closed: bytes from and to the client, HTTP heads aside
	Duration time.Duration // of Closed
	Spend    *Spend        // of Spent
}

// maxWord bounds each text of an event, in bytes. A name has 255 at most, and
// whoever sends more only fills the log.
const maxWord = 1 << 10

// bounded returns the event with what the sandbox could make long cut.
func (e Event) bounded() Event {
	for _, text := range [...]*string{&e.Verdict.Host, &e.Verdict.Detail, &e.Verdict.AllowWith, &e.Request} {
		if len(*text) > maxWord {
			*text = (*text)[:maxWord] + "…"
		}
	}
	return e
}

// The time that a client and a server have. Bodies and tunnels may take as
// long as they like.
const (
	headTimeout = 10 * time.Second // for a request's head, from its first byte, and a SOCKS greeting
	dialTimeout = 30 * time.Second // to resolve and connect

	attemptDelay = 250 * time.Millisecond // head start of each address over the next (RFC 8305, section 5)
)

// A Proxy serves the clients of one sandbox.
type Proxy struct {
	cfg   Config
	slots chan struct{}                                                        // one for each client served
	local func(ctx context.Context, network, address string) (net.Conn, error) // dials the host's loopback

	racing atomic.Int32 // attempts beside a client's first

	ctx    context.Context // done when closed
	cancel context.CancelFunc

	// As the constants say; tests have less patience, or more.
	headTimeout     time.Duration
	attemptDelay    time.Duration
	lingerTime      time.Duration
	turnAwayTimeout time.Duration

	recent  recent // refusals that were told
	hints   hints
	answers answers
	wild    wild

	mu    sync.Mutex
	live  map[io.Closer]served // listeners and connections, for Close
	group sync.WaitGroup
}

// served is what is known of a listener or connection.
type served struct {
	ctx context.Context // ends a client, too; nil for none
	to  net.Conn        // where a client's connection leads
}

// New makes a proxy that serves nobody yet and costs nothing.
func New(cfg Config) *Proxy {
	if cfg.Resolver == nil {
		cfg.Resolver = net.DefaultResolver
	}
	local := cfg.Dial
	if cfg.Dial == nil { // what cannot break unseen is not probed, which takes four calls
		cfg.Dial, local = new(net.Dialer).DialContext, (&net.Dialer{KeepAlive: -1}).DialContext
	}
	if cfg.IsOwn == nil {
		cfg.IsOwn = isOwn
	}
	if event := cfg.Event; event == nil {
		cfg.Event = func(Event) {}
	} else {
		cfg.Event = func(e Event) { event(e.bounded()) }
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Proxy{
		ctx:             ctx,
		cancel:          cancel,
		cfg:             cfg,
		slots:           make(chan struct{}, cfg.MaxConns),
		local:           local,
		headTimeout:     headTimeout,
		attemptDelay:    attemptDelay,
		lingerTime:      lingerTime,
		turnAwayTimeout: turnAwayTimeout,
		live:            make(map[io.Closer]served),
	}
}

// Serve accepts proxy clients from ln until ctx is done or the proxy closed,
// and then returns nil. It closes ln, and its clients end with ctx too. Several
// listeners may be served at once.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	own := ownPort(ln)
	return p.serve(ctx, ln, func(ctx context.Context, c net.Conn) { p.serveClient(ctx, c, own) })
}

// ServeLocal accepts plain connections from ln, which stands at a port of the
// sandbox's own loopback, and carries each to that port of the host's, if a
// localhost rule allows it. It ends as Serve does.
func (p *Proxy) ServeLocal(ctx context.Context, ln net.Listener, port uint16) error {
	own := ownPort(ln)
	return p.serve(ctx, ln, func(ctx context.Context, c net.Conn) { p.serveLocal(ctx, c, port, own) })
}

// serve runs handle for each client of ln, in a goroutine and a slot of its own.
func (p *Proxy) serve(ctx context.Context, ln net.Listener, handle handler) error {
	if !p.track(ln, nil) {
		return nil
	}
	defer p.forget(ln)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(p.ctx, cancel)
	context.AfterFunc(ctx, func() {
		p.forget(ln)
		p.cutAll(ctx)
	})
	for {
		c, err := ln.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			if err == nil {
				c.Close()
			}
			return nil
		case transient(err):
			// The client that could not be accepted waits in the kernel.
			time.Sleep(20 * time.Millisecond)
			continue
		case err != nil:
			return err
		}
		if !p.takeSlot() {
			reset(c)
			continue
		}
		if !p.track(c, ctx) {
			<-p.slots
			return nil
		}
		go func() {
			defer p.end(c)
			handle(ctx, c)
		}()
	}
}

// takeSlot says whether there is room for one client more, and tells where there is none.
func (p *Proxy) takeSlot() bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
		p.cfg.Event(Event{Kind: Full, Time: time.Now()})
		return false
	}
}

// A handler serves a client to its end.
type handler func(context.Context, net.Conn)

// end gives the slot back.
func (p *Proxy) end(c net.Conn) {
	p.forget(c)
	<-p.slots
}

// track notes what Close has to close, and the end of ctx, if there is one; it closes
// it at once if that is over.
func (p *Proxy) track(c io.Closer, ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || ctx != nil && ctx.Err() != nil {
		c.Close()
		return false
	}
	p.live[c] = served{ctx: ctx}
	p.group.Add(1)
	return true
}

// leads notes where a client's connection leads: to close the one wakes nobody who
// waits for the other, for a server that has nothing to say or does not read.
func (p *Proxy) leads(ctx context.Context, c, to net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.live[c]; ok && ctx.Err() == nil {
		s.to = to
		p.live[c] = s
		return
	}
	to.Close()
}

// cutAll closes the clients' connections that end with ctx, and those that they lead
// to.
func (p *Proxy) cutAll(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, s := range p.live {
		if s.ctx == ctx {
			s.cut(c)
		}
	}
}

func (s served) cut(c io.Closer) {
	if s.to != nil {
		s.to.Close() // first: it may shut down what c has a descriptor of
	}
	c.Close()
}

// forget closes c, once.
func (p *Proxy) forget(c io.Closer) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.live[c]; ok {
		delete(p.live, c)
		p.group.Done()
	}
}

// Close ends all that the proxy serves and waits until the last event has been
// delivered. It must not be called from Config.Event.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.cancel() // and with it each dial
	for c, s := range p.live {
		s.cut(c)
	}
	p.mu.Unlock()
	p.group.Wait()
}

// reset ends a connection so that its client hears of it at once.
func reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok {
		t.SetLinger(0)
	}
	c.Close()
}
