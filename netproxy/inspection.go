package netproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// A Handover is a client's connection to a host whose requests have to be
// read. Nothing has been dialled for it.
type Handover struct {
	Conn    net.Conn      // whoever takes it over holds on to a duplicate: it is closed soon
	Early   []byte        // what the client has already sent
	Verdict rules.Verdict // host, port and the rule that asks for it

	// Decided tells of a request on the connection, and Closed of its end: once,
	// with the bytes from and to the client.
	Decided func(v rules.Verdict, request string, err error)
	Closed  func(up, down int64)
}

// handOver gives the client to whoever reads its requests.
func (c *client) handOver(ev *Event) {
	early, _ := c.br.Peek(c.br.Buffered())
	h := Handover{Conn: c.conn, Early: append([]byte(nil), early...), Verdict: ev.Verdict}
	h.Closed = func(up, down int64) { c.closed(ev, up, down) }
	h.Decided = func(v rules.Verdict, request string, err error) {
		e := Event{Kind: Opened, Time: time.Now(), Protocol: ev.Protocol, Verdict: v, Request: request, Err: err}
		switch {
		case v.Action == rules.Deny:
			e.Kind = Denied
		case err != nil:
			e.Kind = Failed
		}
		c.cfg.Event(e)
	}
	c.release()
	if err := c.cfg.Inspect(h); err != nil {
		reset(c.conn)
		ev.Err = err
		c.closed(ev, 0, 0)
	}
}

// Reach connects to a host for whoever reads the requests to it: what they are
// is his to judge. It tells no event.
func (p *Proxy) Reach(ctx context.Context, host string, port uint16) (net.Conn, rules.Verdict, error) {
	v := p.cfg.Rules.Decide(host, port)
	if v.Action == rules.Deny || v.Local {
		v.Action = rules.Deny
		return nil, v, errDenied
	}
	v.Action = rules.Allow
	l, v, err := p.dial(ctx, v, "connect", 0)
	if err != nil {
		return nil, v, err
	}
	return &sound{Conn: l.Conn}, v, nil
}

// A sound connection is read to an end only where it has one: see [brokenOff]. Go's HTTP
// client sends while it reads, and takes such an end for that of an answer.
type sound struct {
	net.Conn
	ended atomic.Bool // and what was sent after that met nobody
}

func (s *sound) Write(b []byte) (int, error) {
	n, err := s.Conn.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		s.ended.Store(true)
	}
	return n, err
}

func (s *sound) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if err == io.EOF && isBrokenOff(s.Conn) && !s.ended.Load() {
		err = syscall.ECONNRESET
	}
	return n, err
}

// Explain says why something failed, without telling addresses of the host's
// network to the sandbox.
func Explain(err error) string { return explain(err) }
