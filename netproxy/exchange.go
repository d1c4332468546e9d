package netproxy

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// An exchange is one http request on its way, and the response to it.
type exchange struct {
	*client
	r         request
	l         *link
	server    *bufio.Reader
	websocket bool
	up        sink        // the request's body
	sentAll   atomic.Bool // and that it has gone up
	cut       bool        // what of it went up met the end of a connection that had not ended
	toEnd     bool        // the response ended with the connection
}

// A response is the head of what a server answered.
type response struct {
	head
	status int
	body   framing
	sized  bool
}

// run sends the request, passes the response back, and says whether the client
// may send another.
func (x *exchange) run(ev *Event) (keep bool) {
	if _, err := x.l.Write(x.requestHead().append(nil)); err != nil {
		x.badGateway(err)
		x.closed(ev, 0, 0)
		return false
	}
	// The request's body goes up while the response comes down: a server may
	// answer early, and with Expect: 100-continue it has to.
	x.up.w, x.up.chunked = x.l, x.r.body.chunked
	x.sentAll.Store(x.r.body.empty())
	sent := make(chan error, 1)
	go func() { sent <- x.sendBody() }()

	down := sink{w: x.conn}
	keep, switched := x.receive(&down)
	if switched {
		x.stopReading(sent)
		x.tunnelBack(ev)
		return false
	}
	err := x.stopReading(sent)
	x.closed(ev, x.up.n, down.n)
	switch {
	case x.cut && x.toEnd:
		reset(x.conn) // nor is the response whole: see brokenOff
	case err != nil:
		x.linger() // the server answered before it had the whole body
	}
	return keep && err == nil
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
	h.line = x.r.method + " " + target + " HTTP/1.1"
	h.fields = append(h.fields, x.r.endToEnd()...)
	h.fields = append(h.fields, x.r.body.fields(x.r.sized)...)
	if x.websocket {
		h.fields = append(h.fields, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"})
	} else {
		h.fields = append(h.fields, field{"Connection", "close"})
	}
	return h
}

// sendBody passes the request's body on and then watches for the client's end,
// so that a client that gives up does not leave a request behind.
func (x *exchange) sendBody() error {
	if !x.r.body.empty() {
		w := &writeError{w: x.l}
		x.up.w = w
		if err := x.up.copyBody(x.br, x.r.body); err != nil {
			x.cut = w.err != nil && !errors.Is(w.err, syscall.EPIPE)
			if w.err == nil {
				x.l.Close() // what came from the client is no body: do not let it look like one
			}
			return err
		}
	}
	x.sentAll.Store(true)
	_, err := x.br.Peek(1)
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	x.l.Close()
	return err
}

// stopReading ends sendBody and returns what became of the body.
func (x *exchange) stopReading(sent <-chan error) error {
	x.conn.SetReadDeadline(time.Unix(1, 0))
	err := <-sent
	x.conn.SetReadDeadline(time.Time{})
	return err
}

// receive passes the response back. switched says that it was the answer 101
// to a request that asked for it.
func (x *exchange) receive(down *sink) (keep, switched bool) {
	for range 16 {
		resp, err := readResponse(x.server)
		if err != nil {
			x.badGateway(err)
			return false, false
		}
		if resp.status >= 200 {
			return x.passBody(resp, down), false
		}
		if resp.status == 101 && !x.websocket {
			x.badGateway(errors.New("the server switched protocols unasked"))
			return false, false
		}
		h := head{resp.line, resp.endToEnd()}
		if resp.status == 101 {
			h.fields = append(h.fields, field{"Connection", "Upgrade"}, field{"Upgrade", "websocket"})
		} else if x.r.old {
			continue // HTTP/1.0 knows no interim responses
		}
		if _, err := x.conn.Write(h.append(nil)); err != nil {
			return false, false
		}
		if resp.status == 101 {
			return false, true
		}
	}
	x.badGateway(errors.New("too many interim responses"))
	return false, false
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

// passBody passes a final response on, and says whether the connection can
// serve another request: the client can tell where the response ends, and the
// request's body is out of the way.
func (x *exchange) passBody(resp response, down *sink) (keep bool) {
	hasBody := x.r.method != "HEAD" && resp.status != 204 && resp.status != 304
	keep = x.sentAll.Load() && !x.r.old && !x.r.has("Connection", "close") && !x.r.has("Proxy-Connection", "close") &&
		!(hasBody && resp.body.untilEOF)
	h := head{resp.line, resp.endToEnd()}
	switch {
	case resp.status == 204:
	case x.r.old && resp.body.chunked:
		// Unpacked, it ends with the connection.
	default:
		down.chunked = resp.body.chunked
		h.fields = append(h.fields, resp.body.fields(resp.sized)...)
	}
	if !keep {
		h.fields = append(h.fields, field{"Connection", "close"})
	}
	if _, err := x.conn.Write(h.append(nil)); err != nil {
		return false
	}
	if !hasBody {
		return keep
	}
	if err := down.copyBody(x.server, resp.body); err != nil {
		if resp.body.untilEOF || resp.body.chunked && !down.chunked {
			reset(x.conn) // or the end of the connection would look like the body's
		}
		return false
	}
	x.toEnd = resp.body.untilEOF
	return keep
}

// tunnelBack makes a tunnel of an exchange that became a websocket, with what
// either side has already sent.
func (x *exchange) tunnelBack(ev *Event) {
	early, _ := x.server.Peek(x.server.Buffered())
	if _, err := x.conn.Write(early); err != nil {
		x.closed(ev, 0, 0)
		return
	}
	ev.Down = int64(len(early))
	x.tunnel(x.l, ev)
}

// badGateway ends the exchange on both sides.
func (x *exchange) badGateway(err error) {
	x.l.Close() // so that nothing more of the request goes up
	x.answer(x.r, 502, "Bad Gateway", fields{{"error", "bad gateway"}, {"host", x.l.verdict.Host}, {"detail", explain(err)}})
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
