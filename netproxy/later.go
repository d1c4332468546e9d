package netproxy

import (
	"bufio"
	"bytes"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Some protocols begin without TLS and turn to it later: STARTTLS of mail and its like,
// LDAP, XMPP, MySQL. Which they are the server's first bytes tell, on which its client
// has no hand. There a greeting may stand anywhere in what the client sends, and the name
// in it is judged as one that comes first. Each byte goes up as it comes, but for those
// of such a greeting.

// A voice is what is known of how a server speaks.
type voice int32

const (
	silent  voice = iota // so far
	turning              // a protocol that may turn to TLS
	plain                // any other
)

// voiceOf judges a server's first bytes.
func voiceOf(b []byte) voice {
	text := string(b[:min(len(b), 16)])
	switch {
	case len(text) >= 4 && isDigits(text[:3]) && (text[3] == ' ' || text[3] == '-'): // SMTP, FTP, NNTP
	case strings.HasPrefix(text, "* "), strings.HasPrefix(text, "+OK "), strings.HasPrefix(text, "-ERR "): // IMAP, POP3
	case strings.HasPrefix(text, `"IMPL`), strings.HasPrefix(text, "OK"): // ManageSieve
	case strings.HasPrefix(text, "<"), strings.HasPrefix(text, ":"): // XMPP, IRC
	case strings.HasPrefix(text, "0"): // LDAP, a sequence of BER
	case len(text) >= 5 && text[3] == 0 && (text[4] == 10 || text[4] == 0xff): // MySQL
	case strings.HasPrefix(text, "\x03\x00"), strings.HasPrefix(text, "\x04\x01"): // RDP, SQL Server
	case len(text) < 4 && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }): // of which more comes
	default:
		return plain
	}
	return turning
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// heard is a client's connection that notes what its server says first.
type heard struct {
	net.Conn
	voice atomic.Int32
	spoke chan struct{} // closed when it has
}

func (h *heard) Write(b []byte) (int, error) {
	if h.voice.Load() == int32(silent) && len(b) > 0 {
		h.voice.Store(int32(voiceOf(b)))
		close(h.spoke)
	}
	return h.Conn.Write(b)
}

// CloseWrite passes an end on.
func (h *heard) CloseWrite() error { return closeWrite(h.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// A lookout is a connection to a server that looks for the greetings in what its client
// says.
type lookout struct {
	net.Conn
	from   *heard
	host   string
	wait   time.Duration // for a server's first word
	buf    []byte        // what may be the beginning of a greeting
	passed int           // how much of that has gone up
	err    error         // of a greeting that was refused
	deny   func()        // tells the client so
}

// lookOut returns the lookout for a tunnel; nil for one that is to no name, against which
// another could be held.
func (c *client) lookOut(l *link, ev *Event) *lookout {
	if l.verdict.Local || l.verdict.IsLiteral() {
		return nil
	}
	from := &heard{Conn: c.conn, spoke: make(chan struct{})}
	o := &lookout{Conn: l.Conn, from: from, host: l.verdict.Host, wait: c.headTimeout}
	o.deny = func() { c.denyHello(l, ev, o.err) }
	return o
}

// take passes on what was read already.
func (o *lookout) take(br *bufio.Reader) (int, error) {
	early, _ := br.Peek(br.Buffered())
	return o.Write(early)
}

// CloseWrite passes an end on.
func (o *lookout) CloseWrite() error { return closeWrite(o.Conn) }

// end passes on what is held at the end of what the client says, if that is one.
func (o *lookout) end(err error) error {
	if err == nil {
		return o.flush()
	}
	o.tell()
	return err
}

// tell tells the client of a greeting that was refused, if one was.
func (o *lookout) tell() {
	if o.err != nil {
		o.deny()
	}
}

// Write passes on all but a greeting that is not whole yet.
func (o *lookout) Write(b []byte) (int, error) {
	if voice(o.from.voice.Load()) == plain {
		if err := o.flush(); err != nil {
			return 0, err
		}
		return o.Conn.Write(b)
	}
	held := len(o.buf) > 0
	data := b // which is not kept
	if held {
		data = append(o.buf, b...)
	}
	at := 0 // from where on nothing is judged yet
	for at < len(data) {
		i := bytes.IndexByte(data[at:], recordHandshake)
		if i < 0 {
			at = len(data)
			break
		}
		at += i
		is, size := greets(data[at:])
		if !is {
			at++
			continue
		}
		if size == 0 {
			break // more has to come
		}
		h, err := readHello(bufio.NewReader(bytes.NewReader(data[at:])))
		if err == nil {
			err = h.check(o.host)
		}
		if err != nil && o.turns() {
			o.err = err
			return 0, err
		}
		at += size
	}
	// What has begun goes up as far as it does not tell that it is a greeting.
	end := at
	if !isHead(data[at:]) {
		end = len(data)
	}
	if end > o.passed {
		if _, err := o.Conn.Write(data[o.passed:end]); err != nil {
			return 0, err
		}
	}
	o.passed = max(0, max(o.passed, end)-at)
	switch {
	case at == len(data):
		o.buf = nil // an idle connection holds nothing
	case held:
		o.buf = data[:copy(data, data[at:])]
	default:
		o.buf = bytes.Clone(data[at:])
	}
	return len(b), nil
}

// flush passes on what is held.
func (o *lookout) flush() error {
	rest := o.buf[o.passed:]
	o.buf, o.passed = nil, 0
	if len(rest) == 0 {
		return nil
	}
	_, err := o.Conn.Write(rest)
	return err
}

// turns says whether the server speaks such a protocol. It is waited for, since what was
// sent to it before may already ask it to turn.
func (o *lookout) turns() bool {
	t := time.NewTimer(o.wait)
	defer t.Stop()
	select {
	case <-o.from.spoke:
	case <-t.C:
	}
	return voice(o.from.voice.Load()) != plain
}

// mayGreet says whether the front of b may be that of a greeting, as far as it goes: of
// its first record, and of the message in it.
func mayGreet(b []byte) bool {
	at := func(i int, may func(c byte) bool) bool { return i >= len(b) || may(b[i]) }
	known := at(1, func(c byte) bool { return c == 3 }) && at(2, func(c byte) bool { return c <= 4 })
	if !at(1, func(c byte) bool { return c < maxMajor }) || !at(5, func(c byte) bool { return c == clientHello }) {
		return false
	}
	if len(b) < 5 {
		return true
	}
	length := int(b[3])<<8 | int(b[4])
	if length < 6 { // in pieces
		return length > 0 && known
	}
	if !at(6, func(c byte) bool { return c == 0 }) {
		return false
	}
	if len(b) < 11 {
		return true
	}
	size := int(b[7])<<8 | int(b[8])
	return size >= 38 && length <= 1<<14 && length <= 4+size && (known || b[9] == 3 && b[10] <= 4)
}

// isHead says whether so much of a greeting has come that it is one, which begins to be
// held.
func isHead(b []byte) bool {
	return len(b) >= 11 || len(b) >= 6 && b[3] == 0 && b[4] < 6
}

// greets says whether a greeting may stand at the front of b, and how long it is once it
// is whole; 0 before.
func greets(b []byte) (is bool, size int) {
	if !mayGreet(b) {
		return false, 0
	}
	var message []byte // its type and length
	for at, have := 0, 0; ; {
		if len(b) < at+5 {
			return true, 0
		}
		length := int(b[at+3])<<8 | int(b[at+4])
		if b[at] != recordHandshake || length == 0 || length > 1<<14 || at > maxHello {
			return true, len(b) // which is refused
		}
		if len(b) < at+5+length {
			return true, 0
		}
		message = append(message, b[at+5:at+5+min(length, 4-len(message))]...)
		at, have = at+5+length, have+length
		if len(message) == 4 && have >= 4+int(message[1])<<16+int(message[2])<<8+int(message[3]) {
			return true, at
		}
	}
}
