package netproxy

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// methods are those of HTTP, WebDAV and its like: a connection that begins
// with one and a path is HTTP/1.
var methods = [...]string{
	"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY",
}

// readPlain looks at what comes first in a tunnel to a name. If it is an
// HTTP/1 request its Host has to be that name; what was read is returned, to be
// passed on. Requests that follow on the same connection are the server's to
// judge.
func (c *client) readPlain(l *link, ev Event) (raw []byte, err error) {
	c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
	defer c.conn.SetReadDeadline(time.Time{})
	if http, err := startsRequest(c.br); err != nil || !http {
		return nil, err
	}
	var seen bytes.Buffer
	h, err := readHead(bufio.NewReader(io.TeeReader(c.br, &seen)))
	r := request{head: h, host: l.verdict.Host, port: l.verdict.Port, old: strings.HasSuffix(h.line, " HTTP/1.0")}
	if err == nil && isRequestLine(h.line) {
		err = r.checkHost(0)
	}
	if err == nil {
		return seen.Bytes(), nil
	}
	c.contradicted(l, ev, err)
	c.refuse(r, err)
	return nil, err
}

// startsRequest waits until it is clear whether a method and the beginning of a
// path are what comes first.
func startsRequest(br *bufio.Reader) (bool, error) {
	for n := 1; ; n++ {
		b, err := br.Peek(n)
		if err != nil {
			return false, err
		}
		text := string(b)
		if method, rest, ok := strings.Cut(text, " "); ok {
			if !slices.Contains(methods[:], method) || rest != "" {
				return rest == "/" || rest == "*" || rest == "h" || rest == "H", nil
			}
			continue
		}
		if !slices.ContainsFunc(methods[:], func(m string) bool { return strings.HasPrefix(m, text) }) {
			return false, nil
		}
	}
}

// isRequestLine says whether a line is the first of an HTTP/1 request.
func isRequestLine(line string) bool {
	return strings.HasSuffix(line, " HTTP/1.1") || strings.HasSuffix(line, " HTTP/1.0")
}

// contradicted tells that a client named one host to us and another inside.
func (c *client) contradicted(l *link, ev Event, err error) {
	v := l.verdict
	v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, err.Error()
	c.cfg.Event(Event{Kind: Denied, Time: time.Now(), Protocol: ev.Protocol, Verdict: v})
}
