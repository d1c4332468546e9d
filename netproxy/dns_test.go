package netproxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/rules"
)

var fake4, fake6 = netip.MustParsePrefix("198.19.0.0/16"), netip.MustParsePrefix("fd00:1:2:1::/64")

func question(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	require.NoError(t, err)
	return b
}

// resolve asks the responder, and returns its code and what it answers.
func (f *fixture) resolve(name string, kind dnsmessage.Type) (dnsmessage.RCode, string) {
	f.t.Helper()
	var m dnsmessage.Message
	require.NoError(f.t, m.Unpack(f.reply(nil, question(f.t, name, kind), nil)))
	require.EqualValues(f.t, 7, m.ID)
	require.True(f.t, m.Response && m.RecursionAvailable && m.RecursionDesired && !m.Authoritative)
	require.Len(f.t, m.Questions, 1)
	var text []string
	for _, a := range m.Answers {
		require.Equal(f.t, m.Questions[0].Name, a.Header.Name)
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			text = append(text, netip.AddrFrom4(body.A).String())
		case *dnsmessage.AAAAResource:
			text = append(text, netip.AddrFrom16(body.AAAA).String())
		case *dnsmessage.PTRResource:
			text = append(text, body.PTR.String())
		}
	}
	return m.RCode, strings.Join(text, " ")
}

func TestLookUp(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6), Hostname: "own"}, "a.example", "*.wild.example", "host:5432", "deny no.wild.example", ".mozilla.example", "use-application-dns.net")
	const (
		ok, none, failed = dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError, dnsmessage.RCodeServerFailure
		a, aaaa, ptr     = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR
	)
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		code dnsmessage.RCode
		want string
	}{
		{"a.example.", a, ok, "198.19.0.0"},
		{"A.Example.", aaaa, ok, "fd00:1:2:1::"},
		{"x.wild.example.", aaaa, ok, "fd00:1:2:1::1"},
		{"x.wild.example.", a, ok, "198.19.0.1"},
		{"host.pccrun.internal.", a, ok, "198.19.0.2"},
		{"a.example.", a, ok, "198.19.0.0"},
		{"a.example.", dnsmessage.Type(65), ok, ""}, // HTTPS
		{"a.example.", dnsmessage.TypeMX, ok, ""},
		{"a.example.", dnsmessage.TypeTXT, ok, ""},
		{"a.example.", dnsmessage.TypeALL, ok, ""},
		{"www.a.example.", a, none, ""},
		{"evil.example.", dnsmessage.TypeTXT, none, ""},
		{"no.wild.example.", a, none, ""},
		{"wild.example.", a, none, ""},
		{"localhost.", a, ok, "127.0.0.1"},
		{"x.localhost.", aaaa, ok, "::1"},
		{"localhost.", dnsmessage.TypeMX, ok, ""},
		{"Own.", aaaa, ok, ""}, // of the sandbox's own name there is one address
		{"own.", a, ok, "127.0.0.1"},
		{"x.own.example.", aaaa, none, ""},
		{"use-application-dns.net.", a, none, ""},
		{"1.0.19.198.in-addr.arpa.", ptr, ok, "x.wild.example."},
		{"1.0.19.198.in-addr.arpa.", a, ok, ""},
		{"9.0.19.198.in-addr.arpa.", ptr, none, ""},
		{"8.8.8.8.in-addr.arpa.", ptr, none, ""},
		{"8.in-addr.arpa.", ptr, none, ""},
		{"x.1.1.1.in-addr.arpa.", ptr, none, ""},
		{strings.Repeat("0.", 16) + "1.0.0.0.2.0.0.0.1.0.0.0.0.0.d.f.ip6.arpa.", ptr, ok, "a.example."},
		{"1.0.ip6.arpa.", ptr, none, ""},
		{"0x7f.1.", a, none, ""},
		{"a b.example.", a, none, ""},
		{".", a, none, ""},
	} {
		code, text := f.resolve(c.name, c.kind)
		require.Equal(t, c.code, code, "%s %s", c.name, c.kind)
		require.Equal(t, c.want, text, "%s %s", c.name, c.kind)
	}
	require.Empty(t, f.dials())
	denied := map[string]int{}
	for _, e := range f.told() {
		require.Equal(t, Denied, e.Kind)
		require.Equal(t, "dns", e.Protocol)
		denied[e.Verdict.Host+" "+e.Verdict.AllowWith]++
	}
	require.Equal(t, 1, denied["evil.example --allow evil.example"])
	require.NotContains(t, denied, "a.example ")
	require.Equal(t, 1, denied["x.own.example --allow x.own.example"])
	require.NotContains(t, denied, "own ")
	require.NotContains(t, denied, "own --allow own")

	// The control: another's own name is told like any.
	f = build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example", "*.wild.example")
	code, _ := f.resolve("own.", aaaa)
	require.Equal(t, none, code)
	require.Len(t, f.told(), 1)
	f.resolve("a.example.", a)

	// Too many names: those that are there stay.
	f.cfg.Names.list = make([]string, maxNames)
	code, _ = f.resolve("y.wild.example.", a)
	require.Equal(t, failed, code)
	code, text := f.resolve("a.example.", a)
	require.Equal(t, ok, code)
	require.Equal(t, "198.19.0.0", text)

	none4 := build(t, &Config{Names: NewNames(fake4, netip.Prefix{})}, "a.example")
	code, text = none4.resolve("a.example.", aaaa)
	require.Equal(t, ok, code)
	require.Empty(t, text, "no IPv6 inside")
	code, _ = build(t, nil, "a.example").resolve("a.example.", a)
	require.Equal(t, none, code, "no names at all")
}

// Where ports are to be learnt, a name that is denied has an address, and what
// is connected to it is refused with its port.
func TestLearn(t *testing.T) {
	const a = dnsmessage.TypeA
	f := build(t, &Config{Names: NewNames(fake4, fake6), Learn: true}, "a.example", "deny b.example")
	code, address := f.resolve("evil.example.", a)
	require.Equal(t, dnsmessage.RCodeSuccess, code)
	v := f.decide(address, 2222)
	require.Equal(t, rules.Deny, v.Action)
	require.Equal(t, "--allow evil.example:2222", v.AllowWith)
	for _, name := range []string{"b.example.", "x.b.example.", "use-application-dns.net.", "a b.example.", "evil."} {
		code, _ := f.resolve(name, a)
		require.Equal(t, dnsmessage.RCodeNameError, code, name)
	}
	require.Empty(t, f.dials())
	code, _ = build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example").resolve("evil.example.", a)
	require.Equal(t, dnsmessage.RCodeNameError, code, "the control")
}

func TestNames(t *testing.T) {
	n := NewNames(fake4, fake6)
	for i := range maxNames {
		number, ok := n.add(fmt.Sprint("n", i))
		require.True(t, ok)
		require.EqualValues(t, i, number)
	}
	_, ok := n.add("one more")
	require.False(t, ok)
	for text, want := range map[string]string{"198.19.0.0": "n0", "198.19.255.255": "n65535", "198.19.1.2": "n258", "fd00:1:2:1::ffff": "n65535", "::ffff:198.19.0.7": "n7"} {
		name, fake := n.At(netip.MustParseAddr(text))
		require.True(t, fake, text)
		require.Equal(t, want, name)
	}
	for _, text := range []string{"198.18.0.0", "198.20.0.0", "fd00:1:2:1::1:0", "fd00:1:2::1", "::1"} {
		_, fake := n.At(netip.MustParseAddr(text))
		require.False(t, fake, text)
	}
	_, fake := (*Names)(nil).At(fake4.Addr())
	require.False(t, fake)
}

// Questions that are not questions.
func TestReplyOdd(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example")
	q := question(t, "a.example.", dnsmessage.TypeA)
	code := func(b []byte) int {
		answer := f.reply(nil, b, nil)
		if answer == nil {
			return -1
		}
		return int(answer[3] & 15)
	}
	with := func(i int, v byte) []byte {
		b := append([]byte{}, q...)
		b[i] = v
		return b
	}
	require.Equal(t, 0, code(q))
	require.Equal(t, -1, code(nil))
	require.Equal(t, -1, code(q[:11]))
	require.Equal(t, -1, code(with(2, 0x80)), "an answer")
	require.Equal(t, 4, code(with(2, 0x28)), "an update")
	require.Equal(t, 1, code(with(5, 2)), "two questions")
	require.Equal(t, 1, code(with(5, 0)), "none")
	require.Equal(t, 1, code(q[:len(q)-1]))
	require.Equal(t, 5, code(with(len(q)-1, 3)), "CHAOS")
	require.Equal(t, 1, code(with(12, 0xc0)), "a name that is nothing but a pointer to itself")
	require.Equal(t, 0, code(append(with(11, 1), 0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0)), "EDNS")
}

func TestServeQuestions(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example")
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() { f.ServeQuestions(t.Context(), conn); close(done) }()
	c, err := net.Dial("udp", conn.LocalAddr().String())
	require.NoError(t, err)
	defer c.Close()
	c.SetDeadline(await.Deadline())
	c.Write([]byte("short"))
	c.Write(question(t, "a.example.", dnsmessage.TypeA))
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	require.NoError(t, err)
	require.Equal(t, []byte{198, 19, 0, 0}, buf[n-4:n])
	f.Close()
	<-done
	f.ServeQuestions(t.Context(), conn) // returns at once

	f = build(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	conn, err = net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	f.ServeQuestions(ctx, conn)
}

func TestQuestionsOverTCP(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "a.example", "140.82.112.3:53")
	f.capture("8.8.8.8:53")
	q := question(t, "a.example.", dnsmessage.TypeA)
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...)
	c := f.raw(string(framed) + string(framed))
	for range 2 {
		var size [2]byte
		_, err := io.ReadFull(c, size[:])
		require.NoError(t, err)
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		_, err = io.ReadFull(c, b)
		require.NoError(t, err)
		require.Equal(t, []byte{198, 19, 0, 0}, b[len(b)-4:])
	}
	for _, broken := range []string{"\x00", "\xff\xff", "\x00\x20short", "\x00\x02xx"} {
		c := f.raw(broken)
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		require.Empty(t, b)
	}
	require.Empty(t, f.dials())
}

// TestHint has a client that says more than the name which it looks up.
func TestHint(t *testing.T) {
	asked := 0
	f := build(t, &Config{Names: NewNames(fake4, fake6), Hint: func(client net.Addr, v rules.Verdict) string {
		asked++
		if client.String() == "127.0.0.1:7" && v.Host == "b.example" {
			return "--allow b.example:22"
		}
		return ""
	}}, "a.example", "deny no.example")
	for _, name := range []string{"a.example.", "no.example.", "b.example.", "c.example."} {
		f.reply(net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:7")), question(t, name, dnsmessage.TypeA), nil)
	}
	hints := map[string]string{}
	for _, e := range f.told() {
		hints[e.Verdict.Host] = e.Verdict.AllowWith
	}
	require.Equal(t, map[string]string{"no.example": "", "b.example": "--allow b.example:22", "c.example": "--allow c.example"}, hints)
	require.Equal(t, 2, asked, "of what no rule speaks of")
}

func FuzzReply(f *testing.F) {
	f.Add(question(f, "a.example.", dnsmessage.TypeA))
	f.Add(question(f, "x.wild.example.", dnsmessage.TypeAAAA))
	f.Add(question(f, "0.0.19.198.in-addr.arpa.", dnsmessage.TypePTR))
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	set := parse(f, "a.example", "*.wild.example", "host:5432")
	f.Fuzz(func(t *testing.T, b []byte) {
		denied := ""
		p := New(Config{Rules: set, Names: NewNames(fake4, fake6), Event: func(e Event) { denied = e.Verdict.Host }})
		answer := p.reply(nil, b, nil)
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("%x: %v", answer, err)
		}
		if m.ID != binary.BigEndian.Uint16(b) || !m.Response || len(answer) > maxQuestion {
			t.Fatalf("%+v", m.Header)
		}
		for name := range p.cfg.Names.index {
			if name != "a.example" && name != "host.pccrun.internal" && !strings.HasSuffix(name, ".wild.example") {
				t.Fatalf("%q has an address", name)
			}
			if denied == name {
				t.Fatalf("%q was denied too", name)
			}
		}
	})
}
