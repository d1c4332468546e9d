package netproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

var errHello = errors.New("malformed TLS ClientHello")

// TLS record and handshake types, RFC 8446.
const (
	recordFirst     = 20 // change_cipher_spec
	recordAlert     = 21
	recordHandshake = 22
	recordLast      = 23 // application_data
	clientHello     = 1
	serverName      = 0  // extension, and the type of the one kind of name
	earlyData       = 42 // extension
	maxHello        = 64 << 10

	maxEarlyData = 256 << 10 // more no server skips
)

// unrecognizedName is a fatal alert, as RFC 6066 has it for a name that is not
// served.
const unrecognizedName = "\x15\x03\x01\x00\x02\x02\x70"

// forwardFirst passes on what a client sends first in a tunnel. Where that is
// TLS, or a request in HTTP/1 or HTTP/2, it holds the name that the client asks
// its server for against the name that was decided on: one allowed host must
// not be the way to another. Any other protocol passes as it is, as does TLS
// without a name; other says that it was one.
func (c *client) forwardFirst(l *link, ev *Event, o *lookout) (n int64, other bool, err error) {
	up := &counter{w: l, other: o}
	if o != nil {
		up.w = o // what comes first may be a protocol's that turns to TLS, whatever it looks like
	}
	if other, err = c.checkFirst(l, ev, up); err == nil && o == nil {
		early, _ := c.br.Peek(c.br.Buffered())
		_, err = up.Write(early)
	}
	return up.n, other, err
}

func (c *client) checkFirst(l *link, ev *Event, up *counter) (other bool, err error) {
	if up.other == nil { // there is no name
		_, err := c.br.Peek(1)
		return false, noEnd(err)
	}
	for skipped := false; ; {
		if _, err := c.br.Peek(1); err != nil {
			return false, noEnd(err)
		}
		got, _ := c.br.Peek(c.br.Buffered())
		n := 0 // bytes that servers skip before a request
		for n < len(got) && (got[n] == '\r' || got[n] == '\n' || isBlank(got[n]) || skipped && got[n] < ' ') {
			n++
		}
		switch {
		case n > 0:
			if _, err := up.Write(got[:n]); err != nil {
				return false, err
			}
			_, _ = c.br.Discard(n)
		case isToken(string(got[:1])):
			next, err := c.readPlain(l, ev, up)
			if err != nil || next != again {
				return next == another, err
			}
			skipped = false
		case skipped || got[0] >= ' ':
			return true, c.passOdd(l, ev, up, "")
		case got[0] >= recordFirst && got[0] <= recordLast:
			is, err := c.startsTLS(up)
			if err == errHello {
				c.denyHello(l, ev, err)
			}
			if err != nil {
				return false, err
			}
			if is {
				return false, c.checkHello(l, ev, up)
			}
			skipped = true
		case got[0] == sslRequest[0]:
			asked, err := c.passWish(up)
			if err != nil {
				return false, err
			}
			skipped = !asked
		default: // some servers, as old ones of Jetty, skip any control character
			skipped = true
		}
	}
}

// sslRequest is a client of PostgreSQL's question whether the server speaks TLS, and,
// with gssRequest for its last byte, GSSAPI. After a yes a ClientHello comes next.
const (
	sslRequest = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	gssRequest = '\x30'
)

// passWish passes on what a client sends as long as it is such a question, and says
// whether it was one.
func (c *client) passWish(up io.Writer) (asked bool, err error) {
	for n := 0; n < len(sslRequest); {
		if _, err := c.br.Peek(1); err != nil {
			return false, noEnd(err)
		}
		got, _ := c.br.Peek(min(c.br.Buffered(), len(sslRequest)-n))
		for i, char := range got {
			if char != sslRequest[n+i] && (n+i < len(sslRequest)-1 || char != gssRequest) {
				return false, nil
			}
		}
		if _, err := up.Write(got); err != nil {
			return false, err
		}
		n += len(got)
		_, _ = c.br.Discard(len(got))
	}
	return true, nil
}

// noEnd takes the end of a connection for none: whoever reads next passes it
// on.
func noEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// maxMajor is more than any server takes for the first half of a record's version,
// which is to be ignored (RFC 8446, section 5.1): most want a 3, Go's less than 16.
const maxMajor = 16

// startsTLS says whether what comes first is TLS: a hello, or an alert or its like,
// which some servers skip before one. A record of another version than any that there
// is, which some take, is refused. Messages of MySQL and MongoDB may begin alike, with
// their length; of what may be another protocol's few bytes only the one that tells is
// held back.
func (c *client) startsTLS(up io.Writer) (bool, error) {
	c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
	b, err := c.br.Peek(2)
	if err == nil && b[0] == recordHandshake && b[1] != 3 && b[1] < maxMajor {
		b, err = c.br.Peek(6)
	}
	c.conn.SetReadDeadline(time.Time{})
	switch {
	case err == io.EOF:
		return false, nil
	case err != nil:
		return false, errHello
	case b[1] == 3:
		return true, nil
	case b[1] >= maxMajor:
		return false, nil
	case b[0] == recordHandshake:
		if b[5] == clientHello || b[3] == 0 && b[4] == 0 && isRecord(b[5]) {
			return false, errHello
		}
		return false, nil
	}
	var header [6]byte
	for n := 0; n < len(header); {
		if _, err := c.br.Peek(1); err != nil {
			return false, noEnd(err)
		}
		b, _ := c.br.Peek(min(c.br.Buffered(), len(header)-n))
		n += copy(header[n:], b)
		if n == len(header) {
			b = b[:len(b)-1]
		}
		if _, err := up.Write(b); err != nil {
			return false, err
		}
		_, _ = c.br.Discard(len(b))
	}
	length := int(header[3])<<8 | int(header[4])
	if length == 0 && isRecord(header[5]) || 0 < length && length <= 2 && (header[5] == 1 || header[5] == 2) { // an alert's level, or what changes a cipher
		return false, errHello
	}
	return false, nil
}

func isRecord(c byte) bool { return c >= recordFirst && c <= recordLast }

// checkHello passes a ClientHello on that asks for the tunnel's host, and another
// one if the server asks for that.
func (c *client) checkHello(l *link, ev *Event, up *counter) error {
	for again, early := true, 0; again; {
		c.conn.SetReadDeadline(time.Now().Add(c.headTimeout))
		h, err := readHello(c.br)
		c.conn.SetReadDeadline(time.Time{})
		if err == nil {
			err = h.check(l.verdict.Host)
		}
		if err != nil {
			c.denyHello(l, ev, err)
			return err
		}
		up.w = l // since pieces of one may look like another: that is for review
		if _, err = up.Write(h.raw); err != nil {
			return err
		}
		up.w = up.other
		if err = up.other.review(h.raw); err != nil {
			return err
		}
		if h.early {
			early = maxEarlyData
		}
		if again, err = c.passToHello(up, early, h.version); err != nil {
			return err
		}
	}
	return nil
}

// passToHello passes on what may stand between a ClientHello and the one that a
// server asks for with a HelloRetryRequest (RFC 8446, section 4.1.4), and says whether
// that is next. It is the client's to ask for another name there, and some servers
// take it. In every other handshake what comes next is of another type, or encrypted.
func (c *client) passToHello(up io.Writer, early int, version [2]byte) (again bool, err error) {
	for {
		first, err := c.br.Peek(1)
		if err != nil {
			return false, noEnd(err)
		}
		if first[0] < recordFirst || first[0] > recordLast {
			return false, nil
		}
		header, err := c.br.Peek(5)
		if err != nil {
			return false, noEnd(err)
		}
		length := int(header[3])<<8 | int(header[4])
		switch {
		case header[0] == recordHandshake && length > 0: // some servers skip an empty one
			b, err := c.br.Peek(5 + min(length, 6))
			return err == nil && isHello(b[5:], version), noEnd(err)
		case header[0] == recordLast:
			if early -= length; early < 0 {
				return false, nil
			}
		}
		if _, err := io.CopyN(up, c.br, int64(5+length)); err != nil {
			return false, noEnd(err)
		}
	}
}

// isHello tells the beginning of a ClientHello from that of another message, and from
// one of TLS 1.2 that is encrypted, which is longer than a hello's pieces may be. The
// second has the version of the first, whatever that was.
func isHello(b []byte, version [2]byte) bool {
	return len(b) > 0 && b[0] == clientHello && (len(b) < 6 || b[4] == 3 && b[5] <= 4 || b[4] == version[0] && b[5] == version[1])
}

// A counter counts what is written through it.
type counter struct {
	w    io.Writer
	n    int64
	last []byte // so much of its end as [proxySignature] has bytes

	other *lookout // the way for another protocol
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.last = append(c.last, b[max(0, n-len(proxySignature)):n]...)
	c.last = append(c.last[:0], c.last[max(0, len(c.last)-len(proxySignature)):]...)
	return n, err
}

// denyHello ends a tunnel with an alert, before its server has heard anything.
func (c *client) denyHello(l *link, ev *Event, err error) {
	c.contradicted(l, ev, err)
	io.WriteString(c.conn, unrecognizedName)
	c.linger()
}

// A greeting is a ClientHello in its records.
type greeting struct {
	raw     []byte
	version [2]byte
	name    string // of the server, if any
	early   bool   // data may follow at once
}

// check holds the name of a greeting, if it has one, against that of a tunnel's host.
func (h greeting) check(host string) error {
	if h.name == "" || strings.EqualFold(strings.TrimSuffix(h.name, "."), host) {
		return nil
	}
	return fmt.Errorf("TLS asks for %q in a tunnel to %s", h.name, host)
}

// readHello reads a ClientHello. Nothing else may stand in its last record.
func readHello(br *bufio.Reader) (h greeting, err error) {
	var message cursor
	long := false
	for size := 4; len(message) < size; {
		if !long && len(h.raw) > shortHead {
			if !takeLong() {
				return h, errLongHeads
			}
			long = true
			defer giveLong()
		}
		header := len(h.raw)
		h.raw = append(h.raw, make([]byte, 5)...)
		if _, err := io.ReadFull(br, h.raw[header:]); err != nil {
			return h, noEOF(err)
		}
		length := int(h.raw[header+3])<<8 | int(h.raw[header+4])
		if h.raw[header] != recordHandshake || h.raw[header+1] != 3 || length == 0 || length > 1<<14 || len(h.raw) > maxHello {
			return h, errHello
		}
		body := len(h.raw)
		h.raw = append(h.raw, make([]byte, length)...)
		if _, err := io.ReadFull(br, h.raw[body:]); err != nil {
			return h, noEOF(err)
		}
		message = append(message, h.raw[body:]...)
		if len(message) >= 4 {
			size = 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
		}
		if message[0] != clientHello || size > maxHello || len(message) > size {
			return h, errHello
		}
	}
	if len(message) >= 6 {
		h.version = [2]byte(message[4:6])
	}
	h.name, h.early, err = message.extensions()
	return h, err
}

// A cursor reads the fields of a TLS message from its front.
type cursor []byte

// take returns the next n bytes; at the end of the message, not ok.
func (c *cursor) take(n int) (cursor, bool) {
	if n > len(*c) {
		return nil, false
	}
	head := (*c)[:n]
	*c = (*c)[n:]
	return head, true
}

// vector returns the bytes behind a length of the given size.
func (c *cursor) vector(lengthSize int) (cursor, bool) {
	b, ok := c.take(lengthSize)
	n := 0
	for _, d := range b {
		n = n<<8 | int(d)
	}
	if !ok {
		return nil, false
	}
	return c.take(n)
}

// extensions returns the one host name of a ClientHello, or "", and whether it offers
// early data.
func (c *cursor) extensions() (name string, early bool, err error) {
	c.take(1) // the type
	hello, ok := c.vector(3)
	_, ok1 := hello.take(2 + 32) // version, random
	_, ok2 := hello.vector(1)    // session
	_, ok3 := hello.vector(2)    // cipher suites
	_, ok4 := hello.vector(1)    // compression
	if !(ok && ok1 && ok2 && ok3 && ok4) {
		return "", false, errHello
	}
	if len(hello) == 0 {
		return "", false, nil // as TLS 1.0 may have it, without extensions
	}
	extensions, ok := hello.vector(2)
	if !ok {
		return "", false, errHello
	}
	for len(extensions) > 0 {
		kind, ok1 := extensions.take(2)
		body, ok2 := extensions.vector(2)
		if !ok1 || !ok2 {
			return "", false, errHello
		}
		early = early || kind[0] == 0 && kind[1] == earlyData
		if kind[0] != 0 || kind[1] != serverName {
			continue
		}
		list, ok1 := body.vector(2)
		kind, ok2 = list.take(1)
		host, ok3 := list.vector(2)
		if !(ok1 && ok2 && ok3) || kind[0] != serverName || len(host) == 0 || len(list) > 0 || name != "" {
			return "", false, errHello // two names, or none: which one counts?
		}
		name = string(host)
	}
	return name, early, nil
}
