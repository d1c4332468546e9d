package netproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// serveForward passes one http request on, on a connection of its own, and the
// response back. No second one follows: both sides are told so.
func (c *client) serveForward(r request) {
	protocol := "http"
	upgrade := r.has("Connection", "upgrade") && r.has("Upgrade", "websocket")
	websocket := upgrade && r.method == "GET" && r.body.empty() && !r.old
	if websocket {
		protocol = "websocket"
	}
	v := c.decideOrAsk(c.ctx, r.host, r.port)
	if v.Action == rules.Inspect { // which takes nobody's help where there is no TLS
		asked := rules.Request{Scheme: "http", Host: hostPort(v), Method: r.method, Path: r.path}
		v = c.cfg.Rules.DecideRequest(v.Host, v.Port, asked)
		for _, f := range r.fields {
			if v.Action != rules.Deny && rules.Rewrites(f.name) {
				v.Action, v.Reason, v.Rule = rules.Deny, rules.BadPath, ""
				v.Detail = "the field " + f.name + " may make another request of it"
			}
		}
	}
	l, ev, ok := c.reach(r, protocol, v)
	if !ok {
		return
	}
	defer l.Close()
	if r.size() > shortHead { // it is held as long as the exchange lasts
		if !takeLong() {
			c.refuse(r, errLongHeads)
			c.closed(ev, 0, 0)
			return
		}
		defer giveLong()
	}
	x := &exchange{client: c, r: r, l: l, websocket: websocket}
	x.run(ev)
}

// An exchange is one http request on its way, and the response to it.
type exchange struct {
	*client
	r         request
	l         *link
	websocket bool
	way       tunnel
}

// A response is the head of what a server answered.
type response struct {
	head
	status int
	body   framing
	sized  bool
}

// run sends the request and passes the response back. What follows the response's head
// goes down as it comes; of what follows the request's head no more goes up than its body.
func (x *exchange) run(ev *Event) {
	if _, err := x.l.Write(x.requestHead().append(nil)); err != nil {
		x.badGateway(err)
		x.closed(ev, 0, 0)
		return
	}
	// The request's body goes up while the response comes down: a server may
	// answer early, and with Expect: 100-continue it has to.
	sent := make(chan int64, 1)
	go func() { sent <- x.send() }()
	down, switched := x.receive()
	if switched {
		x.conn.SetReadDeadline(time.Unix(1, 0))
		<-sent
		x.conn.SetReadDeadline(time.Time{})
		ev.Down = down
		x.tunnel(x.l, ev)
		return
	}
	x.l.Close()
	closeWrite(x.conn)
	x.conn.SetReadDeadline(time.Now().Add(x.lingerTime))
	up := <-sent
	if x.websocket {
		x.linger() // what it sent early is unread
	}
	x.closed(ev, up, down)
}

// requestHead is the request as the server gets it: from the origin form of
// the target on, nothing is the client's but method, path and end-to-end
// fields.
func (x *exchange) requestHead() head {
	v := x.l.verdict
	host := v.Host
	if v.Addr.Is6() && v.IsLiteral() {
		host = "[" + host + "]"
	}
	if v.Port != 80 {
		host += ":" + strconv.Itoa(int(v.Port))
	}
	target := x.r.path
	h := head{fields: []field{{"Host", host}}}
	if x.l.forward != nil {
		if target == "*" {
			target = ""
		}
		target = "http://" + host + target
		h.fields = append(h.fields, x.l.forward.authorization()...)
	}
	version := " HTTP/1.1"
	if x.r.old { // whose client understands no other
		version = " HTTP/1.0"
	}
	h.line = x.r.method + " " + target + version
	h.fields = append(h.fields, x.r.endToEnd()...)
	h.fields = append(h.fields, x.r.body.fields(x.r.sized)...)
	if x.websocket {
		h.fields = append(h.fields, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"})
	} else {
		h.fields = append(h.fields, field{"Connection", "close"})
	}
	return h
}

// send passes the request's body on, and then reads on, so that a client that gives up
// does not leave a request behind, and that what it sends does not reset the response.
func (x *exchange) send() (n int64) {
	server := &writeError{w: x.l}
	n, err := passBody(server, x.br, x.r.body)
	if err != nil && server.err == nil {
		x.l.Close() // what came from the client is no body: do not let it look like one
		return n
	}
	for !x.websocket || x.br.Buffered() == 0 {
		if _, err = x.br.Peek(1); err != nil {
			break
		}
		if !x.websocket {
			_, _ = x.br.Discard(x.br.Buffered())
		}
	}
	switch {
	case err == io.EOF:
		x.way.end(x.l.Conn, x.conn, nil)
	case err != nil && !isTimeout(err):
		x.l.Close()
	}
	return n
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// receive passes the response back, and returns how many bytes followed its head.
// switched says that it was the answer 101 to a request that asked for it.
func (x *exchange) receive() (n int64, switched bool) {
	resp, n, err := x.passResponse()
	switch {
	case err != nil:
		x.badGateway(err)
		return 0, false
	case n < 0:
		return 0, false
	case resp.status == 101:
		return n, true
	case x.websocket: // the server may wait for another request
		x.way.end(x.l.Conn, x.conn, nil)
	}
	body := &bodyWriter{x.conn, resp.left(x.r.method)}
	if body.left >= 0 {
		body.left -= n
	}
	more := int64(0)
	if body.left != 0 {
		more, err = copyIdle(body, x.l.Conn, &x.way.over)
	}
	if err != nil && !resp.sized {
		reset(x.conn) // or the end of the connection would look like the body's
	}
	return n + more, false
}

// left returns how many bytes of a body follow the head, -1 if only they tell.
func (r *response) left(method string) int64 {
	switch {
	case method == "HEAD", r.status == 204, r.status == 304:
		return 0
	case r.body.chunked, r.body.untilEOF:
		return -1
	}
	return r.body.length
}

// A bodyWriter takes no more than a body. It says io.EOF when it has it whole.
type bodyWriter struct {
	w    io.Writer
	left int64
}

func (w *bodyWriter) Write(b []byte) (int, error) {
	if w.left < 0 {
		return w.w.Write(b)
	}
	n, err := w.w.Write(b[:min(int64(len(b)), w.left)])
	if w.left -= int64(n); w.left == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// passResponse passes the response's head back, and what came with it: so many bytes, or
// -1 if the client is gone.
func (x *exchange) passResponse() (resp response, n int64, err error) {
	server := readers.Get().(*bufio.Reader)
	server.Reset(x.l)
	defer func() {
		server.Reset(nil)
		readers.Put(server)
	}()
	for range 16 {
		resp, err := readResponse(server)
		switch {
		case err != nil:
			return resp, 0, err
		case resp.status == 101 && !x.websocket:
			return resp, 0, errors.New("the server switched protocols unasked")
		case resp.body.chunked && x.r.old:
			return resp, 0, errFraming
		}
		interim := resp.status < 200 && resp.status != 101
		h := head{resp.line, resp.endToEnd()}
		switch {
		case resp.status == 101:
			h.fields = append(h.fields, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"})
		case !interim:
			h.fields = append(append(h.fields, resp.body.fields(resp.sized)...), field{"Connection", "close"})
		case x.r.old:
			continue // HTTP/1.0 knows no interim responses
		}
		b := h.append(nil)
		if !interim {
			early, _ := server.Peek(server.Buffered())
			if left := resp.left(x.r.method); left >= 0 && resp.status != 101 {
				early = early[:min(int64(len(early)), left)] // what follows the body is nobody's
			}
			b, n = append(b, early...), int64(len(early))
		}
		if _, err := x.conn.Write(b); err != nil {
			return resp, -1, nil
		}
		if !interim {
			return resp, n, nil
		}
	}
	return resp, 0, errors.New("too many interim responses")
}

// readResponse reads one head, whose framing has to be as clear as a
// request's.
func readResponse(br *bufio.Reader) (response, error) {
	h, err := readHead(br)
	if err != nil {
		return response{}, noEOF(err)
	}
	resp := response{head: h}
	version, rest, _ := strings.Cut(h.line, " ")
	code, phrase, _ := strings.Cut(rest, " ")
	resp.status, err = strconv.Atoi(code)
	if err != nil || len(code) != 3 || resp.status < 100 || version != "HTTP/1.1" && version != "HTTP/1.0" {
		return response{}, errFirstLine
	}
	resp.line = "HTTP/1.1 " + code + " " + phrase
	resp.body, resp.sized, err = framingOf(h)
	if err != nil || resp.body.chunked && version == "HTTP/1.0" {
		return response{}, errFraming
	}
	resp.body.untilEOF = !resp.sized
	return resp, nil
}

// badGateway ends the exchange on both sides.
func (x *exchange) badGateway(err error) {
	x.l.Close() // so that nothing more of the request goes up
	f := fields{{"error", "bad gateway"}, {"host", x.l.verdict.Host}, {"detail", explain(err)}}
	x.answer(x.r, 502, "Bad Gateway", f)
}

// A writeError tells a failure to write from one to read.
type writeError struct {
	w   io.Writer
	err error
}

func (w *writeError) Write(b []byte) (int, error) {
	n, err := w.w.Write(b)
	w.err = err
	return n, err
}
