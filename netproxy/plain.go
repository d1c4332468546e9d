package netproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/pccrun/pccrun/netproxy/rules"
)

// readPlain looks at what comes first in a tunnel to a name. If it is an
// HTTP/1 request its Host, and its target where that names a host, have to be
// that name. Requests that follow on the same connection are the server's to
// judge.
//
// A request is whatever a server may take for one, in any method. A line that
// names no version of HTTP belongs to another protocol and passes.
func (c *client) readPlain(l *link, ev *Event, up io.Writer) error {
	line, tail, http, err := c.passLine(up)
	if err == nil && !http {
		_, err = up.Write(tail)
		return err
	}
	c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
	defer c.conn.SetReadDeadline(time.Time{})
	r := request{host: l.verdict.Host, port: l.verdict.Port}
	refuse := func() { c.refuse(r, err) }
	switch {
	case err != nil:
	case line == prefaceLine:
		if _, err = up.Write(tail); err == nil {
			err, refuse = c.readStreams(l.verdict, up), c.turnStreams
		}
	default:
		err = c.passHead(&r, line, tail, up)
	}
	if isRefused(err) {
		c.contradicted(l, ev, err)
		refuse()
	}
	return err
}

// passHead passes a request's head on, with what was kept of its first line, if it
// is for r's host.
func (c *client) passHead(r *request, line string, tail []byte, up io.Writer) (err error) {
	var seen bytes.Buffer
	seen.Write(tail)
	rest := io.MultiReader(strings.NewReader(line), io.TeeReader(c.br, &seen))
	if r.head, err = readHead(bufio.NewReader(rest)); err != nil {
		return err
	}
	if err := r.checkPlain(); err != nil {
		return err
	}
	_, err = up.Write(seen.Bytes())
	return err
}

// passLine says whether the first line is that of a request: a method, a blank,
// and a version of HTTP. A client of another protocol, which may send no whole
// line, is not kept waiting: what comes is passed on, but for the tail that comes
// with the line's end, so that no server takes what it has for a line. Where it is
// no request it passes what it has looked at in part.
func (c *client) passLine(up io.Writer) (line string, tail []byte, http bool, err error) {
	var b []byte
	long := false
	for method := true; ; {
		if _, err := c.br.Peek(1); err != nil {
			return "", nil, false, noEnd(err)
		}
		got, _ := c.br.Peek(c.br.Buffered())
		end := bytes.IndexByte(got, '\n')
		if end >= 0 {
			got = got[:end]
		}
		for i, char := range got {
			switch {
			case method && len(b)+i > 0 && (char == ' ' || char == '\t'):
				method = false
			case method && !isToken(string(char)), char < ' ' && char != '\t' && char != '\r':
				return "", nil, false, nil
			}
		}
		if b = append(b, got...); !long && len(b) > shortHead {
			if !takeLong() {
				return "", nil, false, errLongHeads
			}
			long = true
			defer giveLong()
		}
		if len(b) > maxHead && method {
			return "", nil, false, nil
		} else if len(b) > maxHead {
			return "", nil, false, errHeadTooLong
		}
		if end >= 0 {
			tail = bytes.Clone(got)
			_, _ = c.br.Discard(len(got))
			return string(b), tail, !method && strings.Contains(strings.ToUpper(string(b)), "HTTP/"), nil
		}
		if _, err := up.Write(got); err != nil {
			return "", nil, false, err
		}
		_, _ = c.br.Discard(len(got))
	}
}

// checkPlain holds what a request to a server says of its host against the one
// that the tunnel is for.
func (r *request) checkPlain() error {
	words := strings.Split(r.line, " ")
	if len(words) != 3 || !isToken(words[0]) {
		return bad("malformed request line")
	}
	switch r.method = words[0]; words[2] {
	case "HTTP/1.0":
		r.old = true
	case "HTTP/1.1":
	default:
		return &refusal{505, "want HTTP/1.1"}
	}
	if _, rest, ok := strings.Cut(words[1], "://"); ok && !strings.HasPrefix(words[1], "/") {
		// It counts for more than the Host field, RFC 9112, section 3.2.2.
		authority := request{head: head{fields: []field{{"Host", rest[:strings.IndexAny(rest+"/", "/?#")]}}}, host: r.host, port: r.port}
		if err := authority.checkHost(0); err != nil {
			return err
		}
	}
	return r.checkHost(0)
}

// isRefused says whether an error is that of what a client sent, and not that
// it went away.
func isRefused(err error) bool {
	var failed net.Error
	return err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && (!errors.As(err, &failed) || failed.Timeout())
}

// contradicted tells that a client named one host to us and another inside.
func (c *client) contradicted(l *link, ev *Event, err error) {
	v := l.verdict
	v.Action, v.Reason, v.Detail = rules.Deny, rules.BadMatch, err.Error()
	c.cfg.Event(Event{Kind: Denied, Time: time.Now(), Protocol: ev.Protocol, Verdict: v})
}
