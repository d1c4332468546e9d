package netproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// forwardFirst passes on what a client sends first in a tunnel, and returns how
// many bytes. Where that is TLS or an HTTP/1 request, it holds the host that it
// names against the name that was decided on: one allowed host must not be the way
// to another. Any other protocol passes as it is, as does TLS without a name.
// What follows is between the client and its server.
func (c *client) forwardFirst(l *link, ev *Event) (n int64, err error) {
	up := &counter{w: l}
	if v := l.verdict; v.Local || v.IsLiteral() { // there is no name to hold another against
		_, err = c.br.Peek(1)
		err = noEnd(err)
	} else {
		err = c.checkFirst(l, ev, up)
	}
	if err == nil {
		early, _ := c.br.Peek(c.br.Buffered())
		_, err = up.Write(early)
	}
	return up.n, err
}

func (c *client) checkFirst(l *link, ev *Event, up io.Writer) error {
	for {
		first, err := c.br.Peek(1)
		switch {
		case err != nil:
			return noEnd(err)
		case isBlank(first[0]): // servers skip empty lines before a request
			got, _ := c.br.Peek(c.br.Buffered())
			if _, err := io.CopyN(up, c.br, int64(len(got)-len(bytes.TrimLeft(got, blanks)))); err != nil {
				return err
			}
		case recordFirst <= first[0] && first[0] <= recordLast:
			if !c.startsTLS() {
				return nil
			}
			return c.checkHello(l, ev, up)
		case isToken(string(first)):
			return c.checkRequest(l, ev, up)
		default:
			return nil
		}
	}
}

const blanks = "\r\n \t"

func isBlank(c byte) bool { return strings.IndexByte(blanks, c) >= 0 }

// A counter counts what is written through it.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// maxMajor is more than any server takes for the first half of a record's version,
// which is to be ignored (RFC 8446, section 5.1): most want a 3, Go's less than 16.
const maxMajor = 16

// startsTLS says whether what comes first is TLS: a ClientHello, or an alert or its
// like, which some servers skip before one. Messages of MySQL and MongoDB may begin
// with the same byte, since their length stands there.
func (c *client) startsTLS() bool {
	c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
	defer c.conn.SetReadDeadline(time.Time{})
	b, err := c.br.Peek(2)
	if err == nil && b[1] != 3 && b[1] < maxMajor {
		b, err = c.br.Peek(6)
	}
	switch {
	case err == io.EOF:
		return false
	case err != nil: // who is as slow may send either, and is refused
		return true
	case b[1] == 3 || b[1] >= maxMajor:
		return b[1] == 3
	}
	isAlert := b[0] == recordAlert && b[3] == 0 && b[4] == 2
	return isAlert || b[0] == recordHandshake && b[5] == clientHello
}

// cleartextHTTP2 is why HTTP/2 without TLS is refused, and goAway says it to the client: no
// settings, and GOAWAY with HTTP_1_1_REQUIRED (RFC 9113, sections 6.8 and 7).
const (
	cleartextHTTP2 = "HTTP/2 without TLS is not read: use TLS or HTTP/1.1"

	goAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00" + string(rune(8+len(cleartextHTTP2))) + "\x07\x00\x00\x00\x00\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x0d" + cleartextHTTP2
)

// checkRequest passes on the head of a first HTTP/1 request, if it is for the
// tunnel's host. What has no request line passes as it is.
func (c *client) checkRequest(l *link, ev *Event, up io.Writer) error {
	line, end, err := c.passRequestLine(up)
	if err == nil && line == "" {
		return nil
	}
	r := request{host: l.verdict.Host, port: l.verdict.Port}
	switch {
	case err != nil:
	case line == "PRI * HTTP/2.0\r":
		err = errCleartextHTTP2
	default:
		c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
		err = c.passHead(&r, line, end, up)
		c.conn.SetReadDeadline(time.Time{})
	}
	switch {
	case !isRefused(err):
	case err == errCleartextHTTP2:
		c.contradicted(l, ev, err)
		if _, err := io.WriteString(c.conn, goAway); err == nil {
			c.linger()
		}
	default:
		v := c.contradicted(l, ev, err)
		a := wire.Answer{Verdict: v, Status: 400, Detail: err.Error()}
		switch {
		case errors.Is(err, errHost):
			a.Status = 421
		case errors.Is(err, errHeadTooLong), errors.Is(err, errLongHeads):
			a.Status = 431
		case errors.Is(err, os.ErrDeadlineExceeded):
			a.Status, a.Detail = 408, "the request head did not arrive in time"
		}
		c.refuse(r.plain(), a)
	}
	return err
}

// plain is a request with what decides in which form it is answered.
func (r *request) plain() []byte {
	method := "GET"
	if r.method == "HEAD" {
		method = r.method
	}
	b := []byte(method + " / HTTP/1.1\r\nHost: " + rules.HostName + "\r\n")
	for _, name := range [...]string{"Accept", "User-Agent"} {
		for _, value := range r.get(name) {
			b = append(b, name+": "+value+"\r\n"...)
		}
	}
	return append(b, "\r\n"...)
}

var errCleartextHTTP2 = errors.New(cleartextHTTP2)

// passRequestLine returns the first line if it is that of a request, in any method,
// and "" if it is not. A client of another protocol, which may send no whole line, is
// not kept waiting: what comes of the line goes up, but for the piece that comes with
// its end, so that no server takes what it has for a line.
func (c *client) passRequestLine(up io.Writer) (line string, end []byte, err error) {
	var l requestLine
	for long := false; ; {
		if _, err := c.br.Peek(1); err != nil {
			return "", nil, noEnd(err)
		}
		got, _ := c.br.Peek(c.br.Buffered())
		n := bytes.IndexByte(got, '\n')
		if n >= 0 {
			got = got[:n]
		}
		switch may := l.add(got); {
		case !may, n >= 0 && !namesHTTP(l.text):
			return "", nil, nil
		case n >= 0:
			end = bytes.Clone(got)
			_, _ = c.br.Discard(n)
			return string(l.text), end, nil
		case len(l.text) > maxHead && !l.hasPath:
			return "", nil, nil // some protocols have no lines
		case len(l.text) > maxHead:
			return "", nil, errHeadTooLong
		case len(l.text) > shortHead && !long:
			if !takeLong() {
				return "", nil, errLongHeads
			}
			long = true
			defer giveLong()
		}
		if _, err := up.Write(got); err != nil {
			return "", nil, err
		}
		_, _ = c.br.Discard(len(got))
	}
}

// A requestLine is the beginning of a line that may be a request's.
type requestLine struct {
	text                  []byte
	method, target, after bool // what has come: a whole method, something of a target, a whole one
	hasPath               bool // in the target
}

// targetStart is what a target begins with: a path, an asterisk, a URL or a host.
const targetStart = "/*[0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// add says whether the line may still be a request's with more of it: a method, and a
// target, without control characters.
func (l *requestLine) add(more []byte) bool {
	l.text = append(l.text, more...)
	for _, c := range more {
		switch {
		case c < ' ' && c != '\r' && c != '\t', !l.method && c != ' ' && !isToken(string([]byte{c})):
			return false
		case c == ' ':
			l.method, l.after = true, l.target
		case l.method && !l.target && strings.IndexByte(targetStart, c) < 0:
			return false
		case l.method:
			l.target = true
			l.hasPath = l.hasPath || c == '/' && !l.after
		}
	}
	return true
}

// namesHTTP says whether a line names HTTP where servers look for its version, in its
// third word or its last. In another place it is a word of a log.
func namesHTTP(line []byte) bool {
	words := strings.Fields(strings.ToUpper(string(line)))
	return len(words) > 2 && (strings.HasPrefix(words[2], "HTTP/") || strings.HasPrefix(words[len(words)-1], "HTTP/"))
}

// passHead passes a request's head on, with the end of its first line, if it is for
// r's host.
func (c *client) passHead(r *request, line string, end []byte, up io.Writer) (err error) {
	var seen bytes.Buffer
	seen.Write(end)
	rest := io.MultiReader(strings.NewReader(line), io.TeeReader(lineReader{c}, &seen))
	if r.head, err = readHead(bufio.NewReader(rest)); err != nil {
		return err
	}
	if err := r.checkPlain(); err != nil {
		return err
	}
	_, err = up.Write(seen.Bytes())
	return err
}

// lineReader reads what a client says, no further than to the end of a line: whoever
// reads a head with it takes nothing of what follows.
type lineReader struct{ *client }

func (r lineReader) Read(b []byte) (int, error) {
	if _, err := r.br.Peek(1); err != nil {
		return 0, err
	}
	got, _ := r.br.Peek(r.br.Buffered())
	if i := bytes.IndexByte(got, '\n'); i >= 0 {
		got = got[:i+1]
	}
	return r.br.Read(b[:min(len(got), len(b))])
}

// A request is the first in a tunnel.
type request struct {
	head
	method string
	host   string // of the tunnel
	port   uint16
	old    bool // HTTP/1.0
}

var errHost = errors.New("the Host field is not the host of the request")

// checkPlain holds what a request to a server says of its host against the one
// that the tunnel is for.
func (r *request) checkPlain() error {
	words := strings.Split(r.line, " ")
	if len(words) != 3 || !isToken(words[0]) {
		return errors.New("malformed request line")
	}
	switch r.method = words[0]; words[2] {
	case "HTTP/1.1":
	case "HTTP/1.0":
		r.old = true // which need name no host
	default:
		return errors.New("want HTTP/1.1")
	}
	if err := r.checkTarget(words[1]); err != nil {
		return err
	}
	hosts := r.get("Host")
	switch {
	case len(hosts) == 0 && r.old || len(hosts) == 0 && r.method == "CONNECT":
		return nil
	case len(hosts) != 1:
		return errors.New("want one Host field")
	}
	return r.checkHost(hosts[0])
}

// checkTarget holds the host that a target names, if it does, against the tunnel's: it
// counts for more than the Host field, RFC 9112, section 3.2.2, and of CONNECT, which
// servers take that are proxies too, it is all that counts.
func (r *request) checkTarget(target string) error {
	_, rest, absolute := strings.Cut(target, "://")
	switch {
	case strings.EqualFold(r.method, "CONNECT"):
		rest = target
	case !absolute || strings.HasPrefix(target, "/"):
		return nil
	}
	return r.checkHost(rest[:strings.IndexAny(rest+"/", "/?#")])
}

// checkHost holds an authority, whose port may be left out, against the tunnel's host.
func (r *request) checkHost(authority string) error {
	host, port, ok := rules.SplitAuthority(authority, r.port)
	switch {
	case !ok:
		return errors.New("malformed Host field")
	case !strings.EqualFold(strings.TrimSuffix(host, "."), r.host) || port != r.port:
		return errHost
	}
	return nil
}

// isRefused says whether an error is that of what a client sent, and not that
// it went away.
func isRefused(err error) bool {
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return false
	}
	var failed net.Error
	return !errors.As(err, &failed) || failed.Timeout()
}

// contradicted reports that a client named one host to us and another inside.
func (c *client) contradicted(l *link, ev *Event, err error) rules.Verdict {
	v := l.verdict
	v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, err.Error()
	c.cfg.Event(Event{Kind: Denied, Time: time.Now(), Protocol: ev.Protocol, Verdict: v})
	return v
}
