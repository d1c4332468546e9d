package netproxy

import (
	"context"
	"net"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// serveLocal carries one connection to the host's port of the same number.
func (p *Proxy) serveLocal(ctx context.Context, c net.Conn, port, own uint16) {
	l, ev, err := p.connect(ctx, c, own, "local", "localhost", port)
	if err != nil {
		reset(c)
		return
	}
	defer l.Close()
	p.leads(ctx, c, l.Conn)
	up, down := carry(c, l.Conn)
	p.closed(ev, up, down)
}

// ServePublished accepts connections from ln, which stands on the host, and
// carries each to where dial leads: a port of the sandbox that the user has
// published. It ends as Serve does.
func (p *Proxy) ServePublished(ctx context.Context, ln net.Listener, port uint16, dial func() (net.Conn, error)) error {
	return p.serve(ctx, ln, func(ctx context.Context, c net.Conn) {
		ev := &Event{Kind: Opened, Time: time.Now(), Protocol: "publish", Verdict: rules.Verdict{Action: rules.Allow, Host: "localhost", Port: port}}
		inside, err := dial()
		if err != nil {
			ev.Kind, ev.Err = Failed, err
			p.cfg.Event(*ev)
			reset(c)
			return
		}
		defer inside.Close()
		p.cfg.Event(*ev)
		p.leads(ctx, c, inside)
		up, down := carry(c, inside)
		p.closed(ev, up, down)
	})
}
