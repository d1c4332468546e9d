package netproxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/internal/await"
)

// The name server of the sandbox is held here against miekg/dns, which a launch
// cannot afford: its client asks, and its parser reads what we say.

// asked begins a query as that library does, with a letter in upper case where a
// resolver puts one to tell answers from forgeries.
func asked(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg)
	return m.SetQuestion(name, kind)
}

// held checks what holds of every answer, whatever was asked.
func held(t testing.TB, query, raw []byte) *dns.Msg {
	t.Helper()
	r := new(dns.Msg)
	require.NoError(t, r.Unpack(raw), "%x", raw)
	require.LessOrEqual(t, len(raw), dns.MinMsgSize, "nobody need ask again by TCP")
	require.Equal(t, binary.BigEndian.Uint16(query), r.Id)
	bits := binary.BigEndian.Uint16(query[2:])
	require.True(t, r.Response && r.RecursionAvailable, r)
	require.False(t, r.Authoritative || r.Truncated || r.AuthenticatedData || r.Zero, r)
	require.EqualValues(t, bits>>11&15, r.Opcode)
	require.Equal(t, bits&0x100 != 0, r.RecursionDesired)
	require.Equal(t, bits&0x10 != 0, r.CheckingDisabled)
	require.Contains(t, []int{dns.RcodeSuccess, dns.RcodeFormatError, dns.RcodeServerFailure, dns.RcodeNameError, dns.RcodeNotImplemented, dns.RcodeRefused, dns.RcodeBadVers}, r.Rcode)
	require.Empty(t, r.Ns)
	for _, extra := range r.Extra {
		require.IsType(t, &dns.OPT{}, extra)
	}
	require.LessOrEqual(t, len(r.Extra), 1)
	require.LessOrEqual(t, len(r.Question), 1)
	if r.Rcode != dns.RcodeSuccess {
		require.Empty(t, r.Answer)
	}
	for _, rr := range r.Answer {
		h := rr.Header()
		require.Equal(t, r.Question[0].Name, h.Name)
		require.Equal(t, r.Question[0].Qtype, h.Rrtype)
		require.EqualValues(t, dns.ClassINET, h.Class)
		require.EqualValues(t, answerTTL, h.Ttl)
	}
	again, err := r.Pack()
	require.NoError(t, err)
	require.NoError(t, new(dns.Msg).Unpack(again))
	return r
}

// question puts a packed query to the server.
func (f *fixture) question(query []byte) *dns.Msg {
	f.t.Helper()
	raw := f.reply(nil, query, nil)
	require.NotNil(f.t, raw, "no answer to %x", query)
	return held(f.t, query, raw)
}

// referenceServer serves the questions of UDP and of TCP.
func referenceServer(t *testing.T) (f *fixture, udp, tcp string) {
	f = build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example", "*.wild.example", "host:5432", "deny no.wild.example")
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	go f.ServeQuestions(t.Context(), conn)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				f.serveQuestionsOverTCP(c)
				c.Close()
			}()
		}
	}()
	return f, conn.LocalAddr().String(), l.Addr().String()
}

// withEDNS are the ways in which a query may come with EDNS, RFC 6891.
var withEDNS = map[string]func(*dns.Msg){
	"none":    func(*dns.Msg) {},
	"512":     func(m *dns.Msg) { m.SetEdns0(512, false) },
	"4096":    func(m *dns.Msg) { m.SetEdns0(4096, false) },
	"DNSSEC":  func(m *dns.Msg) { m.SetEdns0(1232, true) },
	"options": func(m *dns.Msg) { options(m, 64) },
	"large":   func(m *dns.Msg) { options(m, 3000) },
}

// options puts options into a query: a cookie, the client's network, padding.
func options(m *dns.Msg, padding int) {
	m.SetEdns0(1232, false)
	opt := m.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1223344556"},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IPv4(192, 0, 2, 0)}, &dns.EDNS0_PADDING{Padding: make([]byte, padding)})
}

// TestReferenceClient asks by UDP and TCP for every type, of names that are
// allowed and others.
func TestReferenceClient(t *testing.T) {
	f, udp, tcp := referenceServer(t)
	const ok, none = dns.RcodeSuccess, dns.RcodeNameError
	names := map[string]int{
		"a.example.": ok, "A.eXaMpLe.": ok, "x.wild.example.": ok, "host.pccrun.internal.": ok, "localhost.": ok, "x.localhost.": ok, "0.0.19.198.in-addr.arpa.": ok,
		"evil.example.": none, "no.wild.example.": none, "wild.example.": none, "use-application-dns.net.": none, "8.8.8.8.in-addr.arpa.": none, "9.9.9.9.ip6.arpa.": none, ".": none,
		`\000.a.example.`: none, `a\032b.example.`: none, `\255.a.example.`: none, "xn--bcher-kva.example.": none, "_443._https.a.example.": none,
	}
	f.question(packMsg(t, asked("a.example.", dns.TypeA))) // it is the first to have an address
	types := []uint16{
		dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypePTR, dns.TypeSRV, dns.TypeMX, dns.TypeTXT, dns.TypeANY, dns.TypeCNAME, dns.TypeNS, dns.TypeSOA,
		dns.TypeDS, dns.TypeDNSKEY, dns.TypeCAA, dns.TypeNAPTR, dns.TypeTLSA, dns.TypeNULL, dns.TypeNone, 65280,
	}
	for network, address := range map[string]string{"udp": udp, "tcp": tcp} {
		client := &dns.Client{Net: network, Timeout: await.Patience}
		conn, err := client.Dial(address)
		require.NoError(t, err)
		defer conn.Close()
		for name, rcode := range names {
			for _, kind := range types {
				for how, edns := range withEDNS {
					m := asked(name, kind)
					edns(m)
					about := fmt.Sprint(network, " ", how, " ", m.Question[0].String())
					r, _, err := client.ExchangeWithConn(m, conn)
					require.NoError(t, err, about)
					raw, err := r.Pack()
					require.NoError(t, err, about)
					query := packMsg(t, m)
					held(t, query, raw)
					require.Equal(t, r.String(), f.question(query).String(), "its bytes too, not only what the client made of them")
					back := new(dns.Msg)
					require.NoError(t, back.Unpack(query))
					require.Equal(t, back.Question, r.Question, about) // letter by letter: 0x20
					require.Equal(t, rcode, r.Rcode, about)
					require.Equal(t, m.IsEdns0() != nil, r.IsEdns0() != nil, about)
					if opt := r.IsEdns0(); opt != nil {
						require.Equal(t, m.IsEdns0().Do(), opt.Do(), about)
						require.Zero(t, opt.Version(), about)
						require.Empty(t, opt.Option, "nothing is told of the client")
						require.GreaterOrEqual(t, opt.UDPSize(), uint16(dns.MinMsgSize))
					}
					arpa := strings.HasSuffix(name, "arpa.")
					want := rcode == ok && (kind == dns.TypePTR && arpa || (kind == dns.TypeA || kind == dns.TypeAAAA) && !arpa)
					require.Len(t, r.Answer, map[bool]int{true: 1}[want], about)
					for _, rr := range r.Answer {
						switch rr := rr.(type) {
						case *dns.A:
							require.True(t, fake4.Contains(addrOf(rr.A)) || rr.A.IsLoopback(), rr)
						case *dns.AAAA:
							require.True(t, fake6.Contains(addrOf(rr.AAAA)) || rr.AAAA.IsLoopback(), rr)
						case *dns.PTR:
							require.Equal(t, "a.example.", rr.Ptr)
						}
					}
				}
			}
		}
	}
	require.Empty(t, f.dials())
}

// TestReferenceOdd puts what a client seldom puts, packed by the library.
func TestReferenceOdd(t *testing.T) {
	f, udp, tcp := referenceServer(t)
	with := func(change func(*dns.Msg)) []byte {
		m := asked("a.example.", dns.TypeA)
		m.Id = 4711
		change(m)
		return packMsg(t, m)
	}
	opt := func() dns.RR { return &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT, Class: 1232}} }
	for what, c := range map[string]struct {
		query []byte
		want  int
	}{
		"a question":   {with(func(*dns.Msg) {}), dns.RcodeSuccess},
		"no recursion": {with(func(m *dns.Msg) { m.RecursionDesired = false }), dns.RcodeSuccess},
		"no checking":  {with(func(m *dns.Msg) { m.CheckingDisabled = true }), dns.RcodeSuccess},
		"what only answers have": {with(func(m *dns.Msg) {
			m.Authoritative, m.Truncated, m.AuthenticatedData, m.Zero, m.Rcode = true, true, true, true, 5
		}), dns.RcodeSuccess},
		"two questions":  {with(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		"many questions": {with(func(m *dns.Msg) { m.Question = slices.Repeat(m.Question, 100) }), dns.RcodeFormatError},
		"no question":    {with(func(m *dns.Msg) { m.Question = nil }), dns.RcodeFormatError},
		"a cookie alone": {with(func(m *dns.Msg) { m.Question = nil; options(m, 0) }), dns.RcodeFormatError},
		"CHAOS": {with(func(m *dns.Msg) {
			m.Question[0] = dns.Question{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}
		}), dns.RcodeRefused},
		"Hesiod":              {with(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassHESIOD }), dns.RcodeRefused},
		"NONE":                {with(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassNONE }), dns.RcodeRefused},
		"any class":           {with(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		"a transfer":          {with(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }), dns.RcodeRefused},
		"part of one":         {with(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeIXFR }), dns.RcodeRefused},
		"an inverse query":    {with(func(m *dns.Msg) { m.Opcode = dns.OpcodeIQuery }), dns.RcodeNotImplemented},
		"status":              {with(func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus }), dns.RcodeNotImplemented},
		"notify":              {with(func(m *dns.Msg) { m.SetNotify("a.example.") }), dns.RcodeNotImplemented},
		"update":              {with(func(m *dns.Msg) { m.SetUpdate("a.example.") }), dns.RcodeNotImplemented},
		"no operation":        {with(func(m *dns.Msg) { m.Opcode = 15 }), dns.RcodeNotImplemented},
		"EDNS of a later day": {with(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers},
		"EDNS twice":          {with(func(m *dns.Msg) { m.Extra = []dns.RR{opt(), opt()} }), dns.RcodeFormatError},
		"EDNS of a name":      {with(func(m *dns.Msg) { m.SetEdns0(1232, false); m.Extra[0].Header().Name = "a.example." }), dns.RcodeFormatError},
		"a signature":         {with(func(m *dns.Msg) { m.SetTsig("key.", dns.HmacSHA256, 300, 0) }), dns.RcodeSuccess},
		"answers beside it": {with(func(m *dns.Msg) {
			rr, err := dns.NewRR("a.example. 60 IN A 192.0.2.1")
			require.NoError(t, err)
			m.Compress, m.Answer, m.Ns, m.Extra = true, []dns.RR{rr, rr}, []dns.RR{rr}, []dns.RR{rr, opt()}
		}), dns.RcodeSuccess},
		"the longest name":   {packMsg(t, asked(longName(255), dns.TypeA)), dns.RcodeNameError},
		"a dot in a label":   {packMsg(t, asked(`a\.example.`, dns.TypeA)), dns.RcodeFormatError},
		"a name in a circle": {patched(packMsg(t, asked("a.example.", dns.TypeA)), 12, 0xc0, 12), dns.RcodeFormatError},
		"a name by pointers": {compressedQuestion(), dns.RcodeSuccess},
		"cut short":          {with(func(*dns.Msg) {})[:20], dns.RcodeFormatError},
		"a header alone":     {with(func(*dns.Msg) {})[:12], dns.RcodeFormatError},
		"EDNS cut short":     {with(func(m *dns.Msg) { options(m, 9) })[:60], dns.RcodeFormatError},
		"more than is said":  {append(with(func(*dns.Msg) {}), "more"...), dns.RcodeSuccess},
		"too large":          {with(func(m *dns.Msg) { options(m, 6000) }), dns.RcodeFormatError},
	} {
		t.Run(what, func(t *testing.T) {
			for network, address := range map[string]string{"udp": udp, "tcp": tcp} {
				raw, err := putBytes(network, address, c.query)
				require.NoError(t, err, network)
				r := held(t, c.query, raw)
				require.Equal(t, c.want, r.Rcode, "%s: %s", network, dns.RcodeToString[r.Rcode])
			}
		})
	}
	for what, query := range map[string][]byte{
		"an answer": with(func(m *dns.Msg) { m.Response = true }), // two servers that answer each other would never end
		"no header": with(func(*dns.Msg) {})[:11],
	} {
		require.Nil(t, f.reply(nil, query, nil), what)
	}
	require.Empty(t, f.dials())
}

// TestReferenceRandom: nothing that comes makes an answer that cannot be read.
func TestReferenceRandom(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example", "*.wild.example")
	random := rand.New(rand.NewPCG(1, 2))
	var seeds [][]byte
	for _, name := range []string{"a.example.", "x.wild.example.", "evil.example.", "1.0.19.198.in-addr.arpa."} {
		for _, edns := range withEDNS {
			m := asked(name, dns.TypeA)
			edns(m)
			seeds = append(seeds, packMsg(t, m))
		}
	}
	parsed := 0
	for range 20000 {
		b := bytes.Clone(seeds[random.IntN(len(seeds))])
		for range random.IntN(4) {
			b[random.IntN(len(b))] = byte(random.Uint32())
		}
		if random.IntN(8) == 0 {
			b = b[:random.IntN(len(b)+1)]
		}
		if random.IntN(16) == 0 {
			for i := range b {
				b[i] = byte(random.Uint32())
			}
		}
		if agree(t, f.Proxy, b) {
			parsed++
		}
	}
	require.Greater(t, parsed, 2000, "most of it is no question")
}

// FuzzReference: for any bytes our answer can be read, and where both read a
// question, it is the same.
func FuzzReference(f *testing.F) {
	for _, edns := range withEDNS {
		m := asked("x.wild.example.", dns.TypeAAAA)
		edns(m)
		f.Add(packMsg(f, m))
	}
	f.Add(packMsg(f, asked(longName(255), dns.TypeANY)))
	f.Add(packMsg(f, asked(`\000\255\..a.example.`, dns.TypeHTTPS)))
	f.Add(compressedQuestion())
	f.Add(packMsg(f, new(dns.Msg).SetUpdate("a.example.")))
	set := parse(f, "a.example", "*.wild.example", "host:5432")
	f.Fuzz(func(t *testing.T, b []byte) {
		agree(t, New(Config{Rules: set, Names: NewNames(fake4, fake6), Event: func(Event) {}}), b)
	})
}

// agree holds the server's answer to any bytes against the library, and reports
// whether that took them for one question.
func agree(t testing.TB, p *Proxy, b []byte) bool {
	t.Helper()
	m, raw := new(dns.Msg), p.reply(nil, b, nil)
	theirs := m.Unpack(b)
	if raw == nil {
		require.True(t, len(b) < 12 || b[2]&0x80 != 0, "no answer to %x", b)
		return false
	}
	r := held(t, b, raw)
	// What a message lacks at its end the library takes for zeros, or for not there.
	if theirs != nil || len(m.Question) != 1 || m.Question[0].Qclass == 0 || binary.BigEndian.Uint16(b[4:]) != 1 {
		return false
	}
	var parser dnsmessage.Parser
	_, err := parser.Start(b)
	require.NoError(t, err)
	q, err := parser.Question()
	if err != nil { // it takes no dot within a label, and ten pointers at most
		require.True(t, strings.Contains(m.Question[0].Name, `\.`) || bytes.Count(b, []byte{0xc0}) > 10, "%x: %v", b, err)
		return true
	}
	wire := make([]byte, 256)
	n, err := dns.PackDomainName(m.Question[0].Name, wire, 0, nil, false)
	require.NoError(t, err)
	require.Equal(t, wire[:n], wireName(q.Name), "%x", b)
	require.EqualValues(t, m.Question[0].Qtype, q.Type)
	require.EqualValues(t, m.Question[0].Qclass, q.Class)
	if len(r.Question) == 1 {
		require.Equal(t, m.Question, r.Question)
	}
	opts := 0
	for _, extra := range m.Extra {
		if extra.Header().Rrtype == dns.TypeOPT {
			opts++
		}
	}
	if m.Opcode == dns.OpcodeQuery && r.Rcode == dns.RcodeFormatError {
		// What is not understood of the rest is a fault too, of which the library makes
		// a record, or nothing.
		require.True(t, opts > 1 || opts == 1 && m.IsEdns0().Hdr.Name != "." || !bytes.Equal(b[6:12], make([]byte, 6)), "%x", b)
	}
	return true
}

// wireName writes a name as it is on the wire.
func wireName(n dnsmessage.Name) (b []byte) {
	for label := range bytes.SplitSeq(bytes.TrimSuffix(n.Data[:n.Length], []byte(".")), []byte(".")) {
		if len(label) > 0 {
			b = append(append(b, byte(len(label))), label...)
		}
	}
	return append(b, 0)
}

func packMsg(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	require.NoError(t, err)
	return b
}

// patched returns a message with bytes of it replaced.
func patched(b []byte, at int, by ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[at:], by)
	return b
}

// compressedQuestion asks for a.example with a pointer in place of the name's end.
// Pointers lead back, so into the header, whose first byte is none then.
func compressedQuestion() []byte {
	b := []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	b = append(b, "\x01a\x07example"...)
	return append(b, 0xc0, 0, 0, 1, 0, 1)
}

// longName is a name that takes so many bytes on the wire.
func longName(size int) string {
	name := strings.Repeat(strings.Repeat("a", 63)+".", 3)
	return name + strings.Repeat("b", size-len(name)-2) + "."
}

// putBytes puts bytes to a server and returns what comes.
func putBytes(network, address string, query []byte) ([]byte, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(await.Deadline())
	if network == "tcp" {
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
			return nil, err
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return nil, errors.New("it was closed without an answer")
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		_, err = io.ReadFull(c, b)
		return b, err
	}
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	b := make([]byte, dns.MaxMsgSize)
	n, err := c.Read(b)
	return b[:n], err
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
