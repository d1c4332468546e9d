package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// A Handover is a client's connection that speaks HTTP. Somebody else reads it, and asks for
// each request: it is a [wire.Launcher]. Nothing is dialled but what an answer allows.
type Handover struct {
	Conn  net.Conn // of the client, of which the reader gets a duplicate; or one that it has put here, by way of which bytes go to the client's
	Early []byte   // what the client has already sent
	To    *rules.Verdict

	Carried <-chan struct{} // closed when the client has all that went to another Conn; else nil

	client  *client
	ctx     context.Context // ends with the client's connection
	cancel  context.CancelFunc
	refusal *wire.Answer // of whatever is asked for

	mu     sync.Mutex
	event  *Event            // that opened the connection to To
	open   map[uint64]*Event // requests that are under way
	tunnel *link             // what CONNECT was allowed
	over   bool
	ended  chan wire.Report // the last one
}

// lateReport is how long the reader may take to report the end of a connection that was cut.
const lateReport = time.Second

var errNoReader = errors.New("nobody reads HTTP")

// noReader is what a client gets when nobody reads its requests: the process did not start, or is gone.
func noReader(err error) string {
	body, _ := json.Marshal(map[string]string{"error": "stopped", "detail": "the process of pccrun that serves HTTP: " + err.Error()}) // of texts: it cannot fail
	return "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + string(body) + "\n"
}

// serveHTTP has somebody read the client's requests, to the end of the connection.
func (c *client) serveHTTP(h *Handover) {
	early, _ := c.br.Peek(c.br.Buffered())
	h.Conn, h.client, h.open, h.ended = c.conn, c, map[uint64]*Event{}, make(chan wire.Report, 1)
	h.Early = append(h.Early, early...)
	h.ctx, h.cancel = context.WithCancel(c.ctx)
	defer h.cancel()
	c.release()
	c.conn.SetReadDeadline(time.Time{})
	err := errNoReader
	if c.cfg.HTTP != nil {
		err = c.cfg.HTTP(h)
	}
	if err != nil {
		if h.event == nil {
			_, _ = io.WriteString(c.conn, noReader(err))
			c.linger()
			return
		}
		reset(c.conn)
		h.event.Err = err
		c.closed(h.event, 0, 0)
		return
	}
	c.leads(c.ctx, c.live, shutting{h.Conn})
	var last wire.Report
	select {
	case last = <-h.ended:
	case <-c.ctx.Done():
		select {
		case last = <-h.ended:
		case <-time.After(lateReport):
			h.Report(wire.Report{Closed: true})
			last = <-h.ended
		}
	}
	c.conn = h.Conn
	defer func() {
		h.Conn.Close()
		if h.Carried != nil {
			<-h.Carried
		}
	}()
	if !last.Tunnel {
		return
	}
	defer h.tunnel.Close()
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		c.closed(h.event, 0, 0)
		return
	}
	c.br = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(last.Early), c.conn), max(pooled, len(last.Early)))
	c.tunnel(h.tunnel, h.event)
}

// shutting is a connection whose end every process sees that has a descriptor of it.
type shutting struct{ net.Conn }

func (s shutting) Close() error {
	if half, ok := s.Conn.(interface{ CloseRead() error }); ok {
		_ = half.CloseRead()
	}
	_ = closeWrite(s.Conn)
	return s.Conn.Close()
}

// Ask decides on a request, and dials.
func (h *Handover) Ask(ctx context.Context, q wire.Question) (a wire.Answer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	h.mu.Lock()
	to := h.To
	h.mu.Unlock()
	switch {
	case h.refusal != nil:
		a = *h.refusal
	case q.Dial && to != nil:
		a = h.dial(ctx, *to, q)
	case to != nil:
		a.Verdict, a.NoTrailers = h.judge(*to, q), h.client.cfg.Rules.SpeaksOfRequests(*to)
		h.client.cfg.Spending.judge(ctx, &a, q)
		if a.Status == 0 || a.Verdict.Action == rules.Deny { // else it is neither sent nor denied
			h.decided(a.Verdict, q.Request, nil)
		}
	default:
		a = h.request(ctx, q)
	}
	a.Verdict = bounded(a.Verdict)
	return a
}

// request decides on one that names its own host, and dials that.
func (h *Handover) request(ctx context.Context, q wire.Question) (a wire.Answer) {
	c, protocol := h.client, "http"
	switch {
	case !c.admits(q.Proof):
		return wire.Answer{Status: 407, Detail: "want the token of the run that the proxy belongs to"}
	case q.Method == "CONNECT":
		protocol = "connect"
	case q.Websocket:
		protocol = "websocket"
	}
	v := c.decideOrAsk(ctx, q.Host, q.Port)
	if v.Action == rules.Inspect && protocol != "connect" { // which needs no authority where there is no TLS
		q.Field = hostPort(v)
		v = h.judge(v, q)
		a.Verdict = v
		if c.cfg.Spending.judge(ctx, &a, q); a.Status != 0 && a.Verdict.Action != rules.Deny {
			return a
		}
		v = a.Verdict
		defer func() {
			if a.Meter != "" && a.Conn == nil { // it is not sent
				a.Meter = ""
				c.cfg.Spending.Count(wire.Spent{})
			}
		}()
	}
	l, ev, err := c.follow(ctx, c.conn, c.own, protocol, v)
	a.Verdict = ev.Verdict
	switch {
	case err == errDenied:
		a.Verdict.Action = rules.Deny
		return a
	case err != nil:
		a.Detail, a.Status = explain(err), 502
		return a
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over: // the client is gone
		_ = l.Close()
		c.closed(ev, 0, 0)
		a.Status, a.Detail = 502, "the connection is over"
		return a
	case l.inspected:
		h.To, h.event = &a.Verdict, ev
	case protocol == "connect":
		h.tunnel, h.event = l, ev
	default:
		h.open[q.Number] = ev
		a.Conn = l.Conn
		if l.forward != nil {
			a.ByProxy, a.Authorization = true, l.forward.auth
		}
	}
	return a
}

// judge decides on a request to a host for whose requests there are rules.
func (h *Handover) judge(v rules.Verdict, q wire.Question) rules.Verdict {
	set := h.client.cfg.Rules
	asked := rules.Request{Scheme: q.Scheme, Host: q.Field, Method: q.Method, Path: q.Path}
	speaks := set.SpeaksOfRequests(v)
	v = set.DecideRequest(v.Host, v.Port, asked)
	if v.Action != rules.Deny && speaks && q.Rewrites != "" {
		v.Action, v.Reason, v.Rule = rules.Deny, rules.BadPath, ""
		v.Detail = "the field " + q.Rewrites + " may make another request of it"
	}
	return v
}

// dial connects to the host that the client's connection was made for: the rules decide once
// more, and the address is checked.
func (h *Handover) dial(ctx context.Context, to rules.Verdict, q wire.Question) (a wire.Answer) {
	c := h.client
	v := c.cfg.Rules.Decide(to.Host, to.Port)
	err := errDenied
	if v.Action == rules.Deny || v.Local {
		v.Action = rules.Deny
	} else {
		v.Action = rules.Allow
		var l *link
		if l, v, err = c.Proxy.dial(ctx, v, "connect", 0); err == nil {
			return wire.Answer{Verdict: v, Conn: l.Conn}
		}
	}
	if err == errDenied {
		v.Action = rules.Deny
		h.decided(v, q.Request, nil)
		return wire.Answer{Verdict: v}
	}
	h.decided(to, q.Request, err)
	return wire.Answer{Verdict: v, Status: 502, Detail: explain(err)}
}

// decided reports a request on a connection to one host.
func (h *Handover) decided(v rules.Verdict, request string, err error) {
	h.mu.Lock()
	protocol := "connect"
	if h.event != nil {
		protocol = h.event.Protocol
	}
	h.mu.Unlock()
	e := Event{Kind: Opened, Time: time.Now(), Protocol: protocol, Verdict: v, Request: request, Err: err}
	switch {
	case v.Action == rules.Deny:
		e.Kind = Denied
	case err != nil:
		e.Kind = Failed
	}
	h.client.cfg.Event(e)
}

// Report takes what became of a request, or of the connection.
func (h *Handover) Report(r wire.Report) {
	h.mu.Lock()
	var closed []*Event
	ev := h.open[r.Number]
	delete(h.open, r.Number)
	last := (r.Closed || r.Tunnel) && r.Number == 0 && !h.over
	if last {
		h.over = true
		h.cancel()
		r.Tunnel = r.Tunnel && h.tunnel != nil
		for _, request := range h.open {
			closed = append(closed, request)
		}
		if h.event != nil && !r.Tunnel {
			closed = append(closed, h.event)
			h.event.Up, h.event.Down = h.event.Up+r.Up, h.event.Down+r.Down
			if h.tunnel != nil {
				_ = h.tunnel.Close()
			}
		}
	}
	to := h.To
	h.mu.Unlock()
	if ev != nil {
		h.client.closed(ev, r.Up, r.Down)
	}
	for _, request := range closed {
		h.client.closed(request, 0, 0)
	}
	switch {
	case last:
		h.ended <- r
	case r.Refused != nil && to != nil: // the host is the launcher's own word; how the client contradicts it is the reader's
		v := *to
		v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, r.Refused.Detail
		if r.Refused.Reason == rules.Withheld {
			v.Reason = rules.Withheld
		}
		h.decided(v, r.Request, nil)
	case r.Error != "" && to != nil:
		h.decided(*to, r.Request, reported(r.Error))
	}
}

// reported is an error in the words of who reads the requests.
type reported string

func (r reported) Error() string { return string(r) }

// refuse has whoever reads the requests answer what the client asks with a refusal: early is
// what was read of it.
func (c *client) refuse(early []byte, a wire.Answer) {
	a.Verdict = bounded(a.Verdict)
	to := a.Verdict
	to.Action = rules.Deny // whatever the client asks for on the connection
	c.serveHTTP(&Handover{Early: early, To: &to, refusal: &a})
}

func bounded(v rules.Verdict) rules.Verdict { return Event{Verdict: v}.bounded().Verdict }
