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
	packed               // one whose greetings are in packets
	plain                // any other
)

// voiceOf judges a server's first bytes.
func voiceOf(b []byte) voice {
	text := string(b[:min(len(b), 16)])
	switch {
	case len(text) >= 4 && isDigits(text[:3]) && (text[3] == ' ' || text[3] == '-'): // SMTP, FTP, NNTP
	case strings.HasPrefix(text, "* "), strings.HasPrefix(text, "+OK "), strings.HasPrefix(text, "-ERR "): // IMAP, POP3
	case strings.HasPrefix(text, `"IMPL`), strings.HasPrefix(text, "OK"): // ManageSieve
	case strings.HasPrefix(text, "<"), strings.HasPrefix(text, ":"), strings.HasPrefix(text, "NOTICE "): // XMPP, IRC
	case strings.HasPrefix(text, "0") && isMessage(text): // LDAP
	case len(text) >= 5 && text[3] == 0 && (text[4] == 10 || text[4] == 0xff || text[4] == 11): // MySQL, its X protocol
	case strings.HasPrefix(text, "AMQP\x02"), strings.HasPrefix(text, "RFB "), strings.HasPrefix(text, "# munin"): // AMQP 1.0, VNC
	case strings.HasPrefix(text, "\x03\x00"): // RDP
	case strings.HasPrefix(text, "\x04\x01"): // SQL Server
		return packed
	case len(text) < 4 && !strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }): // of which more comes
	default:
		return plain
	}
	return turning
}

// isMessage says whether text may begin as LDAP's messages do: a sequence of BER, its
// length, and a number. Git's server begins with the same character.
func isMessage(text string) bool {
	at := 2 // of the number
	if len(text) > 1 && text[1] > 0x80 {
		at += int(text[1] & 0x7f)
	}
	return at >= len(text) || text[at] == 2
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
	judged bool          // what came first was a request or a greeting
	buf    []byte        // what may be the beginning of a greeting
	passed int           // how much of that has gone up
	err    error         // of a greeting that was refused
	deny   func()        // tells the client so

	packets packets
	inside  *lookout // for what is in them
}

// lookOut returns the lookout for a tunnel; nil for one that is to no name, against which
// another could be held, and for a websocket, whose request went where it was to.
func (c *client) lookOut(l *link, ev *Event) *lookout {
	if l.verdict.Local || l.verdict.IsLiteral() || ev.Protocol == "websocket" {
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
	says := voice(o.from.voice.Load())
	if says == plain {
		if err := o.flush(); err != nil {
			return 0, err
		}
		return o.Conn.Write(b)
	}
	n := 0
	if !o.packets.over {
		var err error
		if n, err = o.unwrap(b, says); err != nil {
			return 0, err
		}
	}
	if n < len(b) {
		if err := o.judge(b[n:], says); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// judge passes on what is in no packets.
func (o *lookout) judge(b []byte, says voice) error {
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
			return err
		}
		at += size
	}
	// What has begun goes up as far as it does not tell that it is a greeting. A server
	// that has said nothing may be one for which it is none, and that waits for it: of
	// such a greeting no more is kept from it than the end.
	end := at
	if _, sure := mayGreet(data[at:]); !sure || says == silent {
		end = len(data)
	}
	if end > o.passed {
		if _, err := o.Conn.Write(data[o.passed:end]); err != nil {
			return err
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
	return nil
}

// unwrap looks for the greetings in packets, and passes on those of a server that speaks
// so. It returns how much of b needs no other look.
func (o *lookout) unwrap(b []byte, says voice) (n int, err error) {
	text, n := o.packets.open(b)
	if len(text) > 0 {
		if o.inside == nil {
			from := &heard{spoke: o.from.spoke}
			from.voice.Store(int32(turning))
			o.inside = &lookout{Conn: nowhere{}, from: from, host: o.host, packets: packets{over: true}}
		}
		if err := o.inside.judge(text, turning); err != nil && o.turns() {
			o.err = err
			return 0, err
		}
	}
	holds := o.inside != nil && len(o.inside.buf) > o.inside.passed
	if o.packets.over {
		o.inside, holds = nil, false
	}
	if says != packed {
		return 0, nil
	}
	if o.passed == len(o.buf) {
		o.buf, o.passed = nil, 0
	}
	if o.buf = append(o.buf, b[:n]...); !holds {
		return n, o.flush()
	}
	if len(o.buf) > 2*maxHello {
		o.err = errHello
	}
	return n, o.err
}

// nowhere is a connection that takes what it gets.
type nowhere struct{ net.Conn }

func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// packets are those of SQL Server, in which its clients' part of the TLS handshake is, a
// greeting often in several. They begin with the connection.
type packets struct {
	header [8]byte
	have   int  // of the header
	left   int  // to come of what is in the packet
	over   bool // other bytes have come
}

// preLogin is the type of such a packet.
const preLogin = 0x12

// open returns what is in the packets of b, and how many of its bytes are of them.
func (p *packets) open(b []byte) (text []byte, n int) {
	for n < len(b) {
		if p.left > 0 {
			part := b[n:min(n+p.left, len(b))]
			text, n, p.left = append(text, part...), n+len(part), p.left-len(part)
			continue
		}
		p.header[p.have] = b[n]
		p.have++
		size := int(p.header[2])<<8 | int(p.header[3])
		if p.header[0] != preLogin || p.have == len(p.header) && size < len(p.header) {
			p.over = true
			break
		}
		n++
		if p.have == len(p.header) {
			p.have, p.left = 0, size-p.have
		}
	}
	return text, n
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
// sent to it before may already ask it to turn. One that has nothing to say to a request
// or a greeting takes what follows for the rest of that, and is waited for once.
func (o *lookout) turns() bool {
	t := time.NewTimer(o.wait)
	defer t.Stop()
	select {
	case <-o.from.spoke:
	case <-t.C:
		if o.judged {
			o.wait = 0
		}
	}
	says := voice(o.from.voice.Load())
	return says != plain && (says != silent || !o.judged)
}

// mayGreet says whether the front of b may be that of a greeting, as far as it goes: of
// its first record, and of the message in it; and whether so much has come that it is
// one, which begins to be held. Numbers in binary data look much like the front of a
// record whose version there is not. Of such a one the rest has to fit, too.
func mayGreet(b []byte) (may, sure bool) {
	at := func(i int, may func(c byte) bool) bool { return i >= len(b) || may(b[i]) }
	if !at(1, func(c byte) bool { return c < maxMajor }) || !at(5, func(c byte) bool { return c == clientHello }) {
		return false, false
	}
	if len(b) < 5 {
		return true, false
	}
	known, length := b[1] == 3 && b[2] <= 4, int(b[3])<<8|int(b[4])
	if length >= 6 { // not in pieces
		if length > 1<<14 || !at(6, func(c byte) bool { return c <= 2 }) { // OpenSSL's take 128 KiB
			return false, false
		}
		if len(b) < 11 {
			return true, false
		}
		size := int(b[6])<<16 | int(b[7])<<8 | int(b[8])
		if size < 38 || length > 4+size {
			return false, false
		}
		known = known || b[9] == 3 && b[10] <= 4 || length == 4+size
	}
	if known {
		return length > 0, len(b) >= 6
	}
	next := b[min(5+length, len(b)):]
	if length == 0 || len(next) > 0 && next[0] != recordHandshake && next[0] != recordAlert || len(next) > 1 && next[1] >= maxMajor {
		return false, false
	}
	return true, len(next) > 1
}

// greets says whether a greeting may stand at the front of b, and how long it is once it
// is whole; 0 before.
func greets(b []byte) (is bool, size int) {
	if may, _ := mayGreet(b); !may {
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
