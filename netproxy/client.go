package netproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
)

// pooled is the size of the buffers that clients share.
const pooled = 4096

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, pooled) }}

// A client is one connection from inside the sandbox.
type client struct {
	*Proxy
	ctx  context.Context
	conn net.Conn
	live net.Conn // as it was accepted, where conn is another that leads to it
	br   *bufio.Reader
	own  uint16 // as [ownPort] says of where it came in
}

func newClient(p *Proxy, ctx context.Context, conn net.Conn, own uint16) *client {
	c := &client{Proxy: p, ctx: ctx, conn: conn, live: conn, br: readers.Get().(*bufio.Reader), own: own}
	c.br.Reset(conn)
	return c
}

// serveClient speaks SOCKS5, or has somebody speak HTTP, as the first byte says.
func (p *Proxy) serveClient(ctx context.Context, conn net.Conn, own uint16) {
	c := newClient(p, ctx, conn, own)
	defer c.release()
	conn.SetReadDeadline(time.Now().Add(p.headTimeout))
	first, err := c.br.Peek(1)
	switch {
	case err != nil:
	case first[0] == socksVersion:
		c.serveSOCKS()
	default:
		c.serveHTTP(new(Handover))
	}
}

// release gives the buffer back. What it still held is lost.
func (c *client) release() {
	if c.br == nil {
		return
	}
	c.br.Reset(nil)
	if c.br.Size() == pooled {
		readers.Put(c.br)
	}
	c.br = nil
}

// tunnel carries bytes both ways until both ends have closed, beginning with
// what the client has already sent. The server may be the one to speak first.
func (c *client) tunnel(l *link, ev *Event) {
	if l.inspected {
		c.serveHTTP(&Handover{To: &l.verdict, event: ev})
		return
	}
	c.leads(c.ctx, c.live, l.Conn)
	var t tunnel
	down := make(chan int64, 1)
	go func() { down <- t.pass(c.conn, l.Conn) }()
	up, err := c.forwardFirst(l, ev)
	c.release()
	if err == nil {
		up += t.pass(l.Conn, c.conn)
	} else {
		reset(c.conn)
		reset(l.Conn)
	}
	c.closed(ev, up, <-down)
}

// explain says why something failed without telling addresses of the host's
// network, its resolver or its own proxy: those are in the event.
func explain(err error) string {
	var up *upstreamError
	if errors.As(err, &up) {
		return "the host's own proxy: " + explain(up.err)
	}
	return wire.Explain(err)
}

// lingerTime is how long a client has to hang up after the proxy's last word.
const lingerTime = 500 * time.Millisecond

// linger waits a moment for the client to hang up. Closing with bytes of its
// unread would reset the connection, and take the answer with it.
func (c *client) linger() {
	closeWrite(c.conn)
	c.conn.SetReadDeadline(time.Now().Add(c.lingerTime))
	io.Copy(io.Discard, c.conn)
}
