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
// names no version of HTTP, or of what is made like it, belongs to another protocol
// and passes, unless it is a request of the oldest kind that names another host.
func (c *client) readPlain(l *link, ev *Event, up *counter) (then, error) {
	line, tail, kind, err := c.passLine(up)
	r := request{host: l.verdict.Host, port: l.verdict.Port}
	refuse := func() { c.refuse(r, err) }
	next := judged
	if err == nil && kind == simpleLine {
		if err = r.checkSimple(line); err == nil {
			if _, err = up.Write(tail); err != nil {
				return judged, err
			}
			switch {
			case strings.HasPrefix(line, "PROXY "):
				return again, nil
			case line == "QUIT" && string(up.last) == proxySignature:
				err, next = c.passProxyHeader(l.verdict, up), again
			case len(words(line)) > 1:
				return another, c.passFields(l, ev, up)
			default:
				return another, nil
			}
		}
	}
	c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
	defer c.conn.SetReadDeadline(time.Time{})
	switch {
	case err != nil, next == again:
	case kind == oddLine:
		c.conn.SetReadDeadline(time.Time{})
		return another, c.passOdd(l, ev, up, line)
	case kind == packetLine:
		if err = c.passPacket(l.verdict, line, up); err == nil {
			c.conn.SetReadDeadline(time.Time{})
			return another, c.passOdd(l, ev, up, line)
		}
		refuse = c.turnGit
	case line == prefaceLine:
		if _, err = up.Write(tail); err == nil {
			err, refuse = c.readStreams(l.verdict, up), c.turnStreams
		}
	default:
		err = c.passHead(&r, line, tail, up)
	}
	if isRefused(err) && up.other.err == nil {
		c.contradicted(l, ev, err)
		refuse()
	}
	return next, err
}

// then is what follows what was read first.
type then uint8

const (
	judged  then = iota // HTTP: the rest is the server's to judge
	again               // as the first: this stood before it
	another             // protocol
)

// A lineKind is what the first line is.
type lineKind uint8

const (
	httpLine   lineKind = iota
	simpleLine          // of a method and a target alone, or of another protocol
	oddLine             // of characters that no method has, read in part
	packetLine          // git's, read up to what names the host
)

// passHead passes a request's head on, with what was kept of its first line, if it
// is for r's host.
func (c *client) passHead(r *request, line string, tail []byte, up io.Writer) (err error) {
	var seen bytes.Buffer
	seen.Write(tail)
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
	got, end, err := r.peekLine()
	if err != nil {
		return 0, err
	}
	n := len(got)
	if end {
		n++
	}
	return r.br.Read(b[:min(n, len(b))])
}

// passLine says whether the first line is that of a request: a method, a blank,
// and a version of HTTP. A client of another protocol, which may send no whole
// line, is not kept waiting: what comes is passed on, but for the tail that comes
// with the line's end, so that no server takes what it has for a line. Where it is
// no line of text the line is what was passed of it.
func (c *client) passLine(up io.Writer) (line string, tail []byte, kind lineKind, err error) {
	var b []byte
	long := false
	whole := func(method bool) lineKind {
		if !method && isLikeHTTP(string(b)) {
			return httpLine
		}
		return simpleLine
	}
	for method := true; ; {
		got, end, err := c.peekLine()
		if err == io.EOF && len(b) > 0 { // which some servers take for the line's
			return string(b), nil, whole(method), nil
		} else if err != nil {
			return "", nil, simpleLine, noEnd(err)
		}
		for i, char := range got {
			switch {
			case char == 0 && isPacket(string(b)+string(got[:i])):
				return string(b), nil, packetLine, nil
			case method && len(b)+i > 0 && isBlank(char):
				method = false
			case method && !isToken(string(char)), char < ' ' && char != '\r' && !isBlank(char):
				return string(b), nil, oddLine, nil
			}
		}
		if b = append(b, got...); !long && len(b) > shortHead {
			if !takeLong() {
				return "", nil, httpLine, errLongHeads
			}
			long = true
			defer giveLong()
		}
		if len(b) > maxHead && (method || isText(string(b))) {
			return "", nil, oddLine, nil
		} else if len(b) > maxHead {
			return "", nil, httpLine, errHeadTooLong
		}
		if end {
			tail = bytes.Clone(got)
			_, _ = c.br.Discard(len(got))
			return string(b), tail, whole(method), nil
		}
		if _, err := up.Write(got); err != nil {
			return "", nil, httpLine, err
		}
		_, _ = c.br.Discard(len(got))
	}
}

// isText says whether the front of a line is no request's, whatever follows: it has words
// and none is what a request is for. Some protocols, as syslog by lengths, have no lines.
func isText(line string) bool {
	all := words(line)
	return len(all) > 3 && !strings.Contains(all[1], "/") && !strings.EqualFold(all[0], "CONNECT")
}

// blanks are what servers skip before a request, or take for the space between its
// words: Python's take what it calls white space in ISO 8859-1.
const blanks = " \t\v\f\x1c\x1d\x1e\x1f\x85\xa0"

func isBlank(c byte) bool { return strings.IndexByte(blanks, c) >= 0 }

// words splits a line as the least particular server does.
func words(line string) []string {
	b := []byte(line)
	for i, c := range b {
		if isBlank(c) || c == '\r' {
			b[i] = ' '
		}
	}
	return strings.FieldsFunc(string(b), func(c rune) bool { return c == ' ' }) // not at Unicode's
}

// isLikeHTTP says whether a line names a version of HTTP where servers look for one, in
// its third word or its last, or of a protocol that servers of HTTP take for it: node's
// answers requests of RTSP, for AirPlay, and of Icecast. Some, such as uWSGI's, do not
// look at the version at all: of a common method, a path or URL, any third word will do.
// In lower case they are commands of caches. In another place it is a line of a log.
func isLikeHTTP(line string) bool {
	all := words(line)
	if len(all) == 0 {
		return false
	}
	last := strings.ToUpper(all[len(all)-1])
	if strings.Contains(last, "HTTP/") || len(all) > 2 && strings.Contains(strings.ToUpper(all[2]), "HTTP/") {
		return true
	}
	if strings.HasPrefix(last, "RTSP/") || strings.HasPrefix(last, "ICE/") {
		return true
	}
	return len(all) > 2 && isCommon(all[0]) && (strings.HasPrefix(all[1], "/") || strings.Contains(all[1], "://"))
}

// isCommon says whether a word is a method that servers know, in whatever case but the
// lower one.
func isCommon(word string) bool {
	switch strings.ToUpper(word) {
	case "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "PROPFIND", "REPORT", "SEARCH":
		return word != strings.ToLower(word)
	}
	return false
}

// checkPlain holds what a request to a server says of its host against the one
// that the tunnel is for.
func (r *request) checkPlain() error {
	words := strings.Split(r.line, " ")
	if len(words) != 3 || !isToken(words[0]) {
		return bad("malformed request line")
	}
	switch r.method = words[0]; words[2] {
	case "HTTP/1.1":
	case "HTTP/1.0", "RTSP/1.0", "RTSP/2.0", "ICE/1.0":
		r.old = true // which need name no host
	default:
		return &refusal{505, "want HTTP/1.1"}
	}
	if err := r.checkTarget(words[1]); err != nil {
		return err
	}
	return r.checkHost(0)
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
	authority := request{head: head{fields: []field{{"Host", rest[:strings.IndexAny(rest+"/", "/?#")]}}}, host: r.host, port: r.port}
	return authority.checkHost(0)
}

// checkSimple does so for a line of a method and a target alone, which servers as
// common as nginx and Apache's take for a request of HTTP/0.9. Commands of caches,
// whose keys may be URLs, are words in lower case.
func (r *request) checkSimple(line string) error {
	words := words(line)
	if len(words) != 2 || strings.Trim(words[0], "abcdefghijklmnopqrstuvwxyz") == "" || words[1][0] == '{' { // as NATS' CONNECT has it
		return nil
	}
	r.method = words[0]
	return r.checkTarget(words[1])
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
