package netproxy

import (
	"context"
	"net"
)

// serveLocal carries one connection to the host's port of the same number.
func (p *Proxy) serveLocal(ctx context.Context, c net.Conn, port uint16, ln net.Listener) (rest func()) {
	l, ev, err := p.connect(ctx, ln, "local", "localhost", port)
	if err != nil {
		reset(c)
		return nil
	}
	return func() {
		defer l.Close()
		down := make(chan int64, 1)
		go func() { down <- pass(c, l.Conn) }()
		up := pass(l.Conn, c)
		p.closed(ev, up, <-down)
	}
}
