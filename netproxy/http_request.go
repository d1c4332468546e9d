package netproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4096) }}

// A client is one connection from inside the sandbox.
type client struct {
	*Proxy
	ctx  context.Context
	conn net.Conn
	br   *bufio.Reader
	own  uint16 // as [ownPort] says of where it came in
}

func newClient(p *Proxy, ctx context.Context, conn net.Conn, own uint16) *client {
	c := &client{Proxy: p, ctx: ctx, conn: conn, br: readers.Get().(*bufio.Reader), own: own}
	c.br.Reset(conn)
	return c
}

// serveClient speaks SOCKS5 or HTTP, as the first byte says.
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
		c.serveRequest()
	}
}

// release gives the buffer back. What it still held is lost.
func (c *client) release() {
	if c.br != nil {
		c.br.Reset(nil)
		readers.Put(c.br)
		c.br = nil
	}
}

// A request is what a client asks of the proxy.
type request struct {
	head
	method string
	host   string // without brackets, as asked for
	port   uint16
	path   string // and query; of no CONNECT
	old    bool   // HTTP/1.0
	body   framing
	sized  bool // a field told the framing
}

// A refusal is an answer of the proxy's own.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

// errNoToken is for who is not of the sandbox, and reaches the proxy.
var errNoToken = &refusal{407, "want the token of the run that the proxy belongs to"}

func bad(detail string) *refusal { return &refusal{400, detail} }

// parseRequest reads a request in the two forms that a proxy gets, CONNECT
// with an authority and an absolute http URL (RFC 9112, section 3.2), and
// refuses the others.
func parseRequest(h head) (request, error) {
	r := request{head: h}
	method, rest, _ := strings.Cut(h.line, " ")
	target, version, _ := strings.Cut(rest, " ")
	switch {
	case version == "HTTP/1.0":
		r.old = true
	case version == "HTTP/1.1":
	case strings.HasPrefix(version, "HTTP/") && !strings.Contains(version, " "):
		return r, &refusal{505, "want HTTP/1.1"}
	default:
		return r, bad("malformed request line")
	}
	if r.method = method; !isToken(method) {
		return r, bad("malformed method")
	}
	for i := range len(target) {
		if target[i] <= ' ' || target[i] == 0x7f { // others that are not ASCII curl sends as they are typed
			return r, bad("malformed request target")
		}
	}
	var err error
	if r.body, r.sized, err = framingOf(h); err != nil {
		return r, bad(err.Error())
	}
	if r.old && r.body.chunked {
		return r, bad("chunked body in HTTP/1.0")
	}
	if method == "CONNECT" {
		return r, r.parseConnect(target)
	}
	return r, r.parseAbsolute(target)
}

func (r *request) parseConnect(target string) error {
	var ok bool
	if r.host, r.port, ok = splitAuthority(target, 0); !ok {
		return bad("CONNECT needs host:port")
	}
	if !r.body.empty() {
		return bad("CONNECT with a body")
	}
	return r.checkHost(0)
}

func (r *request) parseAbsolute(target string) error {
	scheme, rest, ok := strings.Cut(target, "://")
	switch {
	case !ok:
		return bad("this is a proxy: it takes CONNECT and absolute http:// URLs")
	case strings.EqualFold(scheme, "https"):
		return bad("https goes through CONNECT")
	case !strings.EqualFold(scheme, "http"):
		return bad("scheme " + strconv.Quote(scheme) + " is not http")
	case strings.Contains(rest, "#"):
		return bad("fragment in a request target")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if r.host, r.port, ok = splitAuthority(rest[:end], 80); !ok {
		return bad("malformed authority")
	}
	switch r.path = rest[end:]; {
	case r.path == "" && r.method == "OPTIONS":
		r.path = "*"
	case !strings.HasPrefix(r.path, "/"):
		r.path = "/" + r.path
	}
	return r.checkHost(80)
}

// checkHost holds the Host field against the target, whose port may be left
// out if it is port, or for 0 in any case: of CONNECT, clients differ.
func (r *request) checkHost(port uint16) error {
	hosts := r.get("Host")
	if len(hosts) == 0 && r.old || len(hosts) == 0 && r.method == "CONNECT" {
		return nil
	}
	if len(hosts) != 1 {
		return bad("want one Host field")
	}
	if port == 0 {
		port = r.port
	}
	host, p, ok := splitAuthority(hosts[0], port)
	if !ok {
		return bad("malformed Host field")
	}
	if !strings.EqualFold(strings.TrimSuffix(host, "."), strings.TrimSuffix(r.host, ".")) || p != r.port {
		return &refusal{421, "the Host field is not the host of the request"}
	}
	return nil
}

// splitAuthority reads host [":" port] with an IPv6 address in brackets. A port
// of 0 means that there has to be one. Whether the host is one is
// [rules.Set.Decide]'s to say.
func splitAuthority(text string, port uint16) (string, uint16, bool) {
	if strings.ContainsFunc(text, func(c rune) bool { return c >= 0x7f }) {
		return "", 0, false
	}
	host, rest := text, ""
	if after, ok := strings.CutPrefix(text, "["); ok {
		if host, rest, ok = strings.Cut(after, "]"); !ok || !strings.Contains(host, ":") {
			return "", 0, false
		}
	} else if i := strings.IndexByte(text, ':'); i >= 0 {
		host, rest = text[:i], text[i:]
	}
	if digits, ok := strings.CutPrefix(rest, ":"); ok {
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || digits[0] == '0' {
			return "", 0, false
		}
		port, rest = uint16(n), ""
	}
	return host, port, host != "" && rest == "" && port != 0
}

// serveRequest answers the one request of a connection.
func (c *client) serveRequest() {
	h, err := readHead(c.br)
	if err != nil {
		c.refuse(request{}, err)
		return
	}
	c.conn.SetReadDeadline(time.Time{})
	r, err := parseRequest(h)
	switch {
	case !c.admits(h):
		c.refuse(request{head: h}, errNoToken)
	case err != nil:
		c.refuse(r, err)
	case r.method == "CONNECT":
		c.serveConnect(r)
	default:
		c.serveForward(r)
	}
}

// serveConnect makes a tunnel.
func (c *client) serveConnect(r request) {
	l, ev, ok := c.reach(r, "connect", c.decideOrAsk(c.ctx, r.host, r.port))
	if !ok {
		return
	}
	defer l.Close()
	if _, err := io.WriteString(c.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		c.closed(ev, 0, 0)
		return
	}
	c.tunnel(l, ev)
}

// tunnel carries bytes both ways until both ends have closed, beginning with
// what the client has already sent. The server may be the one to speak first.
func (c *client) tunnel(l *link, ev *Event) {
	if l.inspected {
		c.handOver(ev)
		return
	}
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

// reach does what a verdict says, and tells the client where it cannot.
func (c *client) reach(r request, protocol string, v rules.Verdict) (*link, *Event, bool) {
	l, ev, err := c.follow(c.ctx, c.conn, c.own, protocol, v)
	if err != nil {
		c.cannotReach(r, ev.Verdict, err)
	}
	return l, ev, err == nil
}

// cannotReach answers a request whose host is denied or does not answer.
func (c *client) cannotReach(r request, v rules.Verdict, err error) {
	if err == errDenied {
		c.deny(r, v)
		return
	}
	c.answer(r, 502, "Bad Gateway", fields{{"error", "unreachable"}, {"host", v.Host}, {"detail", explain(err)}})
}
