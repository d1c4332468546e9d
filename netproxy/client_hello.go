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

// noEnd takes the end of a connection for none: whoever reads next passes it
// on.
func noEnd(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// noEOF makes the end of a connection within a message an error.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// checkHello passes a ClientHello on that asks for the tunnel's host, and another
// one if the server asks for that.
func (c *client) checkHello(l *link, ev *Event, up io.Writer) error {
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
		if _, err = up.Write(h.raw); err != nil {
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
