package netproxy

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Some protocols begin without TLS and turn to it later: STARTTLS of mail and its like,
// LDAP, XMPP, MySQL. Which they are the server's first bytes tell, on which its client
// has no hand. There a greeting may stand anywhere in what the client sends, and the name
// in it is judged as one that comes first. Each byte goes up as it comes, but for the
// last one of a greeting for another name, without which no server takes it for one.

// A voice is what is known of how a server speaks.
type voice int32

const (
	silent  voice = iota // so far
	turning              // a protocol that may turn to TLS
	packed               // one whose greetings are in packets
	plain                // any other
)

// enough is how much of what a server says first tells how it speaks.
const enough = 5

// voiceOf judges a server's first bytes.
func voiceOf(b []byte) voice {
	text := string(b)
	switch {
	case len(text) < enough: // of which more comes
	case isDigits(text[:3]) && (text[3] == ' ' || text[3] == '-'): // SMTP, FTP, NNTP
	case strings.HasPrefix(text, "* "), strings.HasPrefix(text, "+OK "), strings.HasPrefix(text, "-ERR "): // IMAP, POP3
	case strings.HasPrefix(text, `"IMPL`), strings.HasPrefix(text, "OK"): // ManageSieve
	case strings.HasPrefix(text, "<"), strings.HasPrefix(text, ":"), strings.HasPrefix(text, "NOTIC"): // XMPP, IRC
	case strings.HasPrefix(text, "0") && isMessage(text): // LDAP
	case text[3] == 0 && (text[4] == 10 || text[4] == 0xff || text[4] == 11): // MySQL, its X protocol
	case strings.HasPrefix(text, "AMQP\x02"), strings.HasPrefix(text, "RFB "), strings.HasPrefix(text, "# mun"), strings.HasPrefix(text, "NBDMA"): // AMQP 1.0, VNC, munin, NBD
	case strings.HasPrefix(text, "\x03\x00"): // RDP
	case strings.HasPrefix(text, "\x04\x01"): // SQL Server
		return packed
	default:
		return plain
	}
	return turning
}

// isMessage says whether text may begin as LDAP's messages do: a sequence of BER, its
// length, and a number. Git's server begins with the same character.
func isMessage(text string) bool {
	at := 2 // of the number
	if text[1] > 0x80 {
		at += int(text[1] & 0x7f)
	}
	return at >= len(text) || text[at] == 2
}

func isDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// heard is a client's connection that notes what its server says first.
type heard struct {
	net.Conn
	first []byte // of what it has said, as long as that does not tell
	voice atomic.Int32
	spoke chan struct{} // closed when it has
}

func (h *heard) Write(b []byte) (int, error) {
	if was := voice(h.voice.Load()); len(b) > 0 && (was == silent || h.first != nil) {
		h.first = append(h.first, b[:min(len(b), 16)]...)
		h.voice.Store(int32(voiceOf(h.first)))
		if len(h.first) >= enough {
			h.first = nil
		}
		if was == silent {
			close(h.spoke)
		}
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
	err    error         // of a greeting that was refused
	deny   func()        // tells the client so

	said    search
	packets packets
	inside  search // for what is in them
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

// end tells the client of a greeting that was refused, if one was.
func (o *lookout) end() {
	o.forget()
	if o.err != nil {
		o.deny()
	}
}

// forget lets go of what was begun.
func (o *lookout) forget() {
	o.said.forget()
	o.inside.forget()
}

// Write passes on all but the end of a greeting for another name, and what follows that.
// What comes before, the server may need to say something.
func (o *lookout) Write(b []byte) (n int, err error) {
	before, refused := o.look(b)
	if refused != nil {
		if n, err = o.Conn.Write(b[:before]); err != nil {
			return n, err
		}
		if o.turns() {
			o.err = refused
			return n, refused
		}
		o.forget()
	}
	m, err := o.Conn.Write(b[n:])
	return n + m, err
}

// review looks for what may hide within a greeting that came first and has gone up: a
// server that answers that speaks TLS, and any other hears no more than this.
func (o *lookout) review(greeting []byte) error {
	_, err := o.said.look(greeting[1:], o.host)
	if err == nil {
		return nil
	}
	o.forget()
	o.judged = true
	if o.turns() {
		o.err = err
		return err
	}
	return nil
}

// look looks for the first greeting for another name that is whole with b, and returns
// how much of b comes before its end.
func (o *lookout) look(b []byte) (before int, err error) {
	says := voice(o.from.voice.Load())
	if says == plain {
		o.forget()
		return 0, nil
	}
	text, n := o.packets.open(b)
	if _, err := o.inside.look(text, o.host); err != nil {
		return 0, err
	}
	if says != packed {
		n = 0 // they may as well be none
	}
	before, err = o.said.look(b[n:], o.host)
	return n + before, err
}

// A search looks for greetings in what comes in pieces. One may hide another that begins
// within it, so each is judged.
type search struct {
	begun  []byte // from where the first begins that is not whole
	starts []int  // of those in it
	long   bool   // one of the long heads is for it
}

// maxGreetings is how many may stand in what is looked at together.
const maxGreetings = 64

// look is [lookout.look] for one search.
func (s *search) look(b []byte, host string) (before int, err error) {
	data := b // which is not kept
	at := len(s.begun)
	if at > 0 {
		data = append(s.begun, b...)
	}
	for ; at < len(data); at++ {
		i := bytes.IndexByte(data[at:], recordHandshake)
		if i < 0 {
			break
		}
		if at += i; !mayGreet(data[at:]) {
			continue
		}
		if s.starts = append(s.starts, at); len(s.starts) > maxGreetings {
			return 0, errHello
		}
	}
	open, end := s.starts[:0], len(data)
	for _, at := range s.starts {
		is, size := greets(data[at:])
		switch {
		case !is:
			continue
		case size == 0: // more has to come
			open = append(open, at)
			continue
		}
		h, malformed := readHello(bufio.NewReader(bytes.NewReader(data[at:])))
		if refused := cmp.Or(malformed, h.check(host)); refused != nil && at+size <= end {
			end, err = at+size, refused // of several, the one that ends first
		}
	}
	if err != nil {
		return max(0, end-1-(len(data)-len(b))), err
	}
	return 0, s.keep(data, open)
}

// keep keeps what is begun. A long beginning is one of the long heads: each client could
// else make the host hold as much.
func (s *search) keep(data []byte, starts []int) error {
	if len(starts) == 0 {
		s.forget() // an idle connection holds nothing
		return nil
	}
	first := starts[0]
	if first > 0 || len(s.begun) == 0 {
		data = bytes.Clone(data[first:])
	}
	for i := range starts {
		starts[i] -= first
	}
	s.begun, s.starts = data, starts
	if !s.long && len(data) > shortHead {
		s.long = takeLong()
		if !s.long {
			return errLongHeads
		}
	}
	return nil
}

// forget lets go of what is begun.
func (s *search) forget() {
	s.begun, s.starts = nil, nil
	if s.long {
		s.long = false
		giveLong()
	}
}

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
	for n < len(b) && !p.over {
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
		if n++; p.have == len(p.header) {
			p.have, p.left = 0, size-p.have
		}
	}
	return text, n
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
// its first record, of the message in it, and, if that is not whole, of the next record.
// Of the versions only so much counts as servers look at.
func mayGreet(b []byte) bool {
	at := func(i int, may func(c byte) bool) bool { return i >= len(b) || may(b[i]) }
	if !at(1, func(c byte) bool { return c < maxMajor }) || !at(5, func(c byte) bool { return c == clientHello }) {
		return false
	}
	if len(b) < 5 {
		return true
	}
	length := int(b[3])<<8 | int(b[4])
	if length == 0 || length > 1<<14 {
		return false
	}
	if length >= 4 { // the length of the message is in it
		if len(b) < 9 {
			return at(6, func(c byte) bool { return c <= 2 }) // OpenSSL's take 128 KiB
		}
		size := int(b[6])<<16 | int(b[7])<<8 | int(b[8])
		if size < 38 || size >= 3<<16 || length > 4+size {
			return false
		}
		if length == 4+size {
			return true
		}
	}
	next := b[min(5+length, len(b)):]
	return len(next) == 0 || recordFirst <= next[0] && next[0] <= recordHandshake && (len(next) == 1 || next[1] < maxMajor)
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
