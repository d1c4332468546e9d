package netproxy

import (
	"context"
	"net"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// serveLocal carries one connection to the host's port of the same number.
func (p *Proxy) serveLocal(ctx context.Context, c net.Conn, port, own uint16) (rest func()) {
	l, ev, err := p.connect(ctx, c, own, "local", "localhost", port)
	if err != nil {
		reset(c)
		return nil
	}
	return func() {
		defer l.Close()
		var t tunnel
		down := make(chan int64, 1)
		go func() { down <- t.pass(c, l.Conn) }()
		up := t.pass(l.Conn, c)
		p.closedSoon(ev, up, <-down)
	}
}

// ServePublished accepts connections from ln, which stands on the host, and
// carries each to where dial leads: a port of the sandbox that the user has
// published. It ends as Serve does.
func (p *Proxy) ServePublished(ctx context.Context, ln net.Listener, port uint16, dial func() (net.Conn, error)) error {
	return p.serve(ctx, ln, func(ctx context.Context, c net.Conn) func() {
		ev := &Event{Kind: Opened, Time: time.Now(), Protocol: "publish", Verdict: rules.Verdict{Action: rules.Allow, Host: "localhost", Port: port}}
		inside, err := dial()
		if err != nil {
			ev.Kind, ev.Err = Failed, err
			p.cfg.Event(*ev)
			reset(c)
			return nil
		}
		p.cfg.Event(*ev)
		p.leads(ctx, c, inside)
		return func() {
			defer inside.Close()
			var t tunnel
			down := make(chan int64, 1)
			go func() { down <- t.pass(c, inside) }()
			up := t.pass(inside, c)
			p.closedSoon(ev, up, <-down)
		}
	})
}
