package netproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/netproxy/rules"
)

const (
	maxQuestion = 4096 // bytes: a name has 255
	answerTTL   = 60   // seconds; an address keeps its name for good
	udpSize     = 1232 // bytes that we say we take by UDP: what fits into a packet of any network
)

// Types and codes that dnsmessage has no name for.
const (
	typeIXFR = dnsmessage.Type(251) // RFC 1995
	badVers  = dnsmessage.RCode(16) // RFC 6891, section 9
)

var errMalformed = errors.New("malformed message")

// ServeQuestions answers the questions of DNS clients that conn receives until
// ctx is done, the proxy closed or conn fails, and then closes conn.
//
// Names that the rules allow have a fake address, which [Config].Names
// remembers; no other name exists, unless [Config].Learn is set. Nothing is ever asked of anybody: what an
// allowed name means is found out when a connection to it is made.
func (p *Proxy) ServeQuestions(ctx context.Context, conn net.PacketConn) {
	if !p.track(conn, nil) {
		return
	}
	defer p.forget(conn)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	buf, out := make([]byte, maxQuestion), make([]byte, 0, maxQuestion)
	for {
		n, from, err := conn.ReadFrom(buf)
		switch {
		case ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(time.Millisecond) // an answer that could not be delivered, or too little memory
			continue
		}
		if answer := p.reply(from, buf[:n], out); answer != nil {
			conn.WriteTo(answer, from)
		}
	}
}

// serveQuestionsOverTCP answers the questions of one connection, RFC 7766.
func (p *Proxy) serveQuestionsOverTCP(c net.Conn) {
	buf, out := make([]byte, maxQuestion), make([]byte, 0, maxQuestion)
	for {
		c.SetDeadline(time.Now().Add(p.headTimeout))
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint16(buf))
		n := min(size, len(buf)) // the rest goes unread, as by UDP
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, c, int64(size-n)); err != nil {
			return
		}
		answer := p.reply(c.RemoteAddr(), buf[:n], out)
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// reply answers one message of a client, in the memory of out; nil is no answer. It
// answers for any bytes.
func (p *Proxy) reply(from net.Addr, message, out []byte) []byte {
	var parser dnsmessage.Parser
	h, err := parser.Start(message)
	if err != nil || h.Response {
		return nil // two responders that answered each other would never end
	}
	h = dnsmessage.Header{ID: h.ID, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, CheckingDisabled: h.CheckingDisabled, Response: true, RecursionAvailable: true}
	q, opt, err := readQuestion(&parser)
	var answers []dnsmessage.ResourceBody
	var code dnsmessage.RCode
	switch {
	case h.OpCode != 0:
		h.RCode, opt = dnsmessage.RCodeNotImplemented, nil
	case err != nil:
		h.RCode = dnsmessage.RCodeFormatError
	case opt != nil && opt.TTL>>16&0xff != 0:
		code = badVers
	case q.Class != dnsmessage.ClassINET, q.Type == dnsmessage.TypeAXFR, q.Type == typeIXFR:
		h.RCode = dnsmessage.RCodeRefused
	default:
		h.RCode, answers = p.lookUp(from, q)
	}
	b := dnsmessage.NewBuilder(out[:0], h)
	b.EnableCompression()
	if h.RCode != dnsmessage.RCodeNotImplemented && h.RCode != dnsmessage.RCodeFormatError {
		if b.StartQuestions() != nil || b.Question(q) != nil || b.StartAnswers() != nil {
			return nil
		}
		rh := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: answerTTL}
		for _, body := range answers {
			switch body := body.(type) {
			case *dnsmessage.AResource:
				err = b.AResource(rh, *body)
			case *dnsmessage.AAAAResource:
				err = b.AAAAResource(rh, *body)
			case *dnsmessage.PTRResource:
				err = b.PTRResource(rh, *body)
			}
			if err != nil {
				return nil
			}
		}
	}
	if opt != nil { // who asks with it wants to hear of it, RFC 6891, section 6.1.1
		var rh dnsmessage.ResourceHeader
		if rh.SetEDNS0(udpSize, code, opt.DNSSECAllowed()) != nil || b.StartAdditionals() != nil || b.OPTResource(rh, dnsmessage.OPTResource{}) != nil {
			return nil
		}
	}
	answer, err := b.Finish()
	if err != nil {
		return nil
	}
	return answer
}

// readQuestion reads the rest of a query: one question, and at most one OPT, which is
// the root's. What else it holds must be whole, and means nothing.
func readQuestion(parser *dnsmessage.Parser) (q dnsmessage.Question, opt *dnsmessage.ResourceHeader, err error) {
	if q, err = parser.Question(); err != nil {
		return q, nil, err
	}
	if _, err := parser.Question(); err != dnsmessage.ErrSectionDone {
		return q, nil, errMalformed
	}
	if err := errors.Join(parser.SkipAllAnswers(), parser.SkipAllAuthorities()); err != nil {
		return q, nil, err
	}
	for {
		h, err := parser.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return q, opt, nil
		}
		if err == nil {
			err = parser.SkipAdditional()
		}
		if err == nil && h.Type == dnsmessage.TypeOPT {
			if opt != nil || h.Name.String() != "." {
				err = errMalformed
			}
			opt = &h
		}
		if err != nil {
			return q, nil, err
		}
	}
}

// lookUp answers one question. An allowed name has addresses and nothing else:
// no HTTPS or SVCB, so no keys for an encrypted hello and no hint of QUIC.
func (p *Proxy) lookUp(from net.Addr, q dnsmessage.Question) (dnsmessage.RCode, []dnsmessage.ResourceBody) {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if a, ok := parseReverse(name); ok {
		host, _ := p.cfg.Names.At(a)
		pointer, err := dnsmessage.NewName(host + ".")
		if host == "" || err != nil {
			return dnsmessage.RCodeNameError, nil
		}
		if q.Type != dnsmessage.TypePTR {
			return dnsmessage.RCodeSuccess, nil
		}
		return dnsmessage.RCodeSuccess, []dnsmessage.ResourceBody{&dnsmessage.PTRResource{PTR: pointer}}
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761, section 6.3
		return addressOf(q.Type, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	}
	if name != "" && name == p.cfg.Hostname {
		return addressOf(q.Type, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.Addr{})
	}
	v := p.cfg.Rules.DecideName(name)
	bypass := name == "use-application-dns.net" // a browser's question whether it may pass us by
	if v.Action == rules.Deny && !p.mayAsk(v) || p.cfg.Names == nil || bypass {
		if v.Action == rules.Deny && (v.Reason != rules.BadHost || strings.Contains(name, ".")) && p.recent.first("dns "+name) {
			p.cfg.Event(Event{Kind: Denied, Time: time.Now(), Protocol: "dns", Verdict: p.hinted(from, v)})
		}
		if !p.cfg.Learn || p.cfg.Names == nil || bypass || v.Reason != rules.ByDefault || !strings.Contains(name, ".") {
			return dnsmessage.RCodeNameError, nil
		}
	}
	if q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA {
		return dnsmessage.RCodeSuccess, nil
	}
	number, ok := p.cfg.Names.add(v.Host)
	if !ok {
		return dnsmessage.RCodeServerFailure, nil
	}
	hi, lo := byte(number>>8), byte(number)
	return addressOf(q.Type, nth(p.cfg.Names.four, hi, lo), nth(p.cfg.Names.six, hi, lo))
}

func addressOf(t dnsmessage.Type, four, six netip.Addr) (dnsmessage.RCode, []dnsmessage.ResourceBody) {
	switch {
	case t == dnsmessage.TypeA && four.IsValid():
		return dnsmessage.RCodeSuccess, []dnsmessage.ResourceBody{&dnsmessage.AResource{A: four.As4()}}
	case t == dnsmessage.TypeAAAA && six.IsValid():
		return dnsmessage.RCodeSuccess, []dnsmessage.ResourceBody{&dnsmessage.AAAAResource{AAAA: six.As16()}}
	}
	return dnsmessage.RCodeSuccess, nil
}

// parseReverse reads the address out of a name of in-addr.arpa or ip6.arpa.
// Such a name is never a host's, whether or not it holds an address.
func parseReverse(name string) (a netip.Addr, ok bool) {
	if digits, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(digits, ".")
		var b [4]byte
		for i, l := range labels {
			n, err := strconv.ParseUint(l, 10, 8)
			if err != nil || len(labels) != 4 {
				return a, true
			}
			b[3-i] = byte(n)
		}
		return netip.AddrFrom4(b), true
	}
	if digits, ok := strings.CutSuffix(name, ".ip6.arpa"); ok {
		labels := strings.Split(digits, ".")
		var b [16]byte
		for i, l := range labels {
			n, err := strconv.ParseUint(l, 16, 4)
			if err != nil || len(labels) != 32 {
				return a, true
			}
			b[15-i/2] |= byte(n) << (i % 2 * 4)
		}
		return netip.AddrFrom16(b), true
	}
	return a, false
}
