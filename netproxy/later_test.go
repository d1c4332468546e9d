package netproxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// A turn is how a protocol comes to TLS: what its server says first, what a client asks,
// and what the server says to that.
type turn struct{ greeting, wish, yes string }

var turns = map[string]turn{
	"SMTP":    {"220 mail ESMTP\r\n", "EHLO x\r\nSTARTTLS\r\n", "250 x\r\n220 go\r\n"},
	"IMAP":    {"* OK ready\r\n", "a starttls\r\n", "a OK begin\r\n"},
	"POP3":    {"+OK ready\r\n", "STLS\r\n", "+OK begin\r\n"},
	"FTP":     {"220-hello\r\n220 ready\r\n", "AUTH TLS\r\n", "234 go\r\n"},
	"LDAP":    {"", "0\x1d\x02\x01\x01w\x18\x80\x161.3.6.1.4.1.1466.20037", "0\x0c\x02\x01\x01x\x07\n\x01\x00\x04\x00\x04\x00"},
	"XMPP":    {"", "<?xml version='1.0'?><stream:stream to='example.com'><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", "<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"},
	"MySQL":   {"\x4a\x00\x00\x00\x0a8.0.36\x00", "\x20\x00\x00\x01\x85\xae\xff\x19\x00\x00\x00\x01\x2d" + strings.Repeat("\x00", 23), ""},
	"garbage": {"220 mail ESMTP\r\n", "\x00\xff\xff\r\nSTARTTLS\r\n", "500 what\r\n220 go\r\n"},

	"MySQL, of nothing but controls": {"\x4a\x00\x00\x00\x0a8.0.36\x00", "\x20\x00\x00\x01\x05\x0a\x0f\x19\x00\x00\x00\x01\x1c" + strings.Repeat("\x00", 23), ""},
	"MySQL's X":                      {"\x05\x00\x00\x00\x0b\x08\x05\x1a\x00", "\x0f\x00\x00\x00\x02\x0a\x0d\x0a\x0b\x0a\x03tls\x12\x04\x08\x01\x12\x00", "\x01\x00\x00\x00\x00"},
	"AMQP":                           {"", "AMQP\x02\x01\x00\x00", "AMQP\x02\x01\x00\x00"},
	"VNC":                            {"RFB 003.008\n", "RFB 003.008\n\x13", "\x01\x13"},
	"behind a request":               {"220 mail ESMTP\r\n", "X / HTTP/1.1\r\nHost: example.com\r\n\r\nSTARTTLS\r\n", "500 what\r\n220 go\r\n"},
	"behind the preface of HTTP/2":   {"220 mail ESMTP\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + firstFields + "\r\nSTARTTLS\r\n", "500 what\r\n220 go\r\n"},
}

// firstFields is HTTP/2's frame of a request for example.com.
const firstFields = "\x00\x00\x10\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x0bexample.com"

// TestTurns has real TLS behind the beginning of such protocols. The server takes any
// name, and is the control without a proxy.
func TestTurns(t *testing.T) {
	certificates, _ := tlsServer(t, http.NotFoundHandler())
	all := maps.Clone(turns)
	all["within a greeting"] = turn{"220 mail ESMTP\r\n", "x " + string(extended(recorded(t, "example.com"), 21, 14_000)) + "\r\nSTARTTLS\r\n", "500 what\r\n220 go\r\n"}
	all["in a record behind a greeting"] = turn{"220 mail ESMTP\r\n", string(recorded(t, "example.com")) + "\x14\x03\x03\xff\x00\r\nSTARTTLS\r\n", "500 what\r\n220 go\r\n"}
	all["behind a greeting"] = turn{"220 mail ESMTP\r\n", string(recorded(t, "example.com")) + "\r\nSTARTTLS\r\n", "500 what\r\n220 go\r\n"}
	for name, turn := range all {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil, "example.com:25")
			asked := make(chan string, 9)
			srv := server(t, func(c net.Conn) {
				io.WriteString(c, turn.greeting)
				if _, err := io.ReadFull(c, make([]byte, len(turn.wish))); err != nil {
					return
				}
				io.WriteString(c, turn.yes)
				secure := tls.Server(c, &tls.Config{Certificates: certificates.TLS.Certificates, CurvePreferences: []tls.CurveID{tls.CurveP384}, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
					asked <- h.ServerName
					return nil, nil
				}})
				echo(secure)
			})
			f.host("example.com", 25, srv)
			tunnel := func() net.Conn {
				c := f.raw("CONNECT example.com:25 HTTP/1.1\r\n\r\n")
				_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
				require.NoError(t, err)
				return c
			}
			plain := func() net.Conn {
				c, err := net.Dial("tcp", srv)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				return c
			}
			talk := func(c net.Conn, name string) error {
				c.SetDeadline(time.Now().Add(10 * time.Second))
				if _, err := io.ReadFull(c, make([]byte, len(turn.greeting))); err != nil {
					return err
				}
				io.WriteString(c, turn.wish)
				if _, err := io.ReadFull(c, make([]byte, len(turn.yes))); err != nil {
					return err
				}
				secure := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}) // asks twice: the curve is not its first
				if err := secure.Handshake(); err != nil {
					return err
				}
				text := strings.Repeat("x", 100_000) + "\x16\x03\x01\x00\x05\x01end"
				go io.WriteString(secure, text)
				got := make([]byte, len(text))
				_, err := io.ReadFull(secure, got)
				require.Equal(t, text, string(got))
				return err
			}
			require.NoError(t, talk(plain(), "evil.example"))
			require.Equal(t, "evil.example", <-asked)
			require.NoError(t, talk(tunnel(), "example.com"))
			require.Equal(t, "example.com", <-asked)
			require.ErrorContains(t, talk(tunnel(), "evil.example"), "unrecognized name")
			require.Contains(t, f.waitEvent(Denied).Verdict.Detail, `TLS asks for "evil.example"`)

			// All at once, byte by byte, in pieces of records, and behind what looks like one.
			evil := string(recorded(t, "evil.example"))
			pieces := func(version string, text string) (records string) {
				for _, b := range []byte(text) {
					records += "\x16" + version + "\x00\x01" + string([]byte{b})
				}
				return records
			}
			const odd = "\x0f\x00" // a version that Go's servers take
			ofNone := evil[5:9] + odd + evil[11:]
			hellos := []string{evil, pieces(evil[1:3], evil[5:]), evil[:1] + odd + evil[3:], pieces(odd, evil[5:]), evil[:1] + odd + evil[3:5] + ofNone,
				evil[:1] + odd + "\x00\x20" + ofNone[:32] + "\x15" + odd + "\x00\x02\x01\x5a" + pieces(odd, ofNone[32:])}
			for _, hello := range hellos {
				c := plain()
				io.WriteString(c, turn.wish+hello)
				require.Equal(t, "evil.example", <-asked)
				c.Close()
			}
			for _, hello := range append(hellos, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc"+evil) {
				for _, piece := range []int{1, 1 << 20} {
					if piece == 1 && hello != evil {
						continue
					}
					c := tunnel()
					for rest := turn.wish + hello; rest != ""; rest = rest[min(piece, len(rest)):] {
						if _, err := io.WriteString(c, rest[:min(piece, len(rest))]); err != nil {
							break
						}
					}
					c.(*net.TCPConn).CloseWrite()
					io.ReadAll(c)
				}
			}
			require.Empty(t, asked)
		})
	}
}

// inPackets is a connection whose handshake is in packets, as SQL Server has it.
type inPackets struct {
	net.Conn
	size, left int
	over       bool
}

func (p *inPackets) Write(b []byte) (int, error) {
	if p.over {
		return p.Conn.Write(b)
	}
	var all []byte
	for part := range slices.Chunk(b, p.size) {
		all = append(append(all, preLogin, 0, byte((8+len(part))>>8), byte(8+len(part)), 0, 0, 1, 0), part...)
	}
	_, err := p.Conn.Write(all)
	return len(b), err
}

func (p *inPackets) Read(b []byte) (int, error) {
	if p.left == 0 && p.over {
		return p.Conn.Read(b)
	}
	if p.left == 0 {
		header := make([]byte, 8)
		if _, err := io.ReadFull(p.Conn, header); err != nil {
			return 0, err
		}
		p.left = int(header[2])<<8 + int(header[3]) - 8
	}
	n, err := p.Conn.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}

// TestPackets has real TLS in packets of SQL Server's. Its server takes any name, and is
// the control without a proxy.
func TestPackets(t *testing.T) {
	certificates, _ := tlsServer(t, http.NotFoundHandler())
	const ask, answer = "\x12\x01\x00\x0c\x00\x00\x01\x00\x00\x01\x02\xff", "\x04\x01\x00\x09\x00\x00\x01\x00\xff"
	f := start(t, nil, "example.com:1433")
	asked := make(chan string, 9)
	srv := server(t, func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, len(ask))); err != nil {
			return
		}
		io.WriteString(c, answer)
		wrapped := &inPackets{Conn: c, size: 4088}
		secure := tls.Server(wrapped, &tls.Config{Certificates: certificates.TLS.Certificates, MaxVersion: tls.VersionTLS12, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			asked <- h.ServerName
			return nil, nil
		}})
		if secure.Handshake() == nil {
			wrapped.over = true
			echo(secure)
		}
	})
	f.host("example.com", 1433, srv)
	talk := func(c net.Conn, name string, size int) error {
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(c, ask)
		if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
			return err
		}
		wrapped := &inPackets{Conn: c, size: size}
		secure := tls.Client(wrapped, &tls.Config{ServerName: name, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		if err := secure.Handshake(); err != nil {
			return err
		}
		wrapped.over = true
		text := "\x12\x01 and more"
		io.WriteString(secure, text)
		got := make([]byte, len(text))
		_, err := io.ReadFull(secure, got)
		require.Equal(t, text, string(got))
		return err
	}
	for _, size := range []int{1, 100, 504, 4088} {
		c, err := net.Dial("tcp", srv)
		require.NoError(t, err)
		require.NoError(t, talk(c, "evil.example", size))
		require.Equal(t, "evil.example", <-asked)

		tunnel := func() net.Conn {
			c := f.raw("CONNECT example.com:1433 HTTP/1.1\r\n\r\n")
			_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
			require.NoError(t, err)
			return c
		}
		require.NoError(t, talk(tunnel(), "example.com", size), size)
		require.Equal(t, "example.com", <-asked)
		require.Error(t, talk(tunnel(), "evil.example", size), size)
		require.Contains(t, f.waitEvent(Denied).Verdict.Detail, `TLS asks for "evil.example"`)
	}
	require.Empty(t, asked)
}

// TestWithinTheFirst: of a greeting that hides another, and came before its server had said
// anything, nothing follows. The control is a server of TLS alone.
func TestWithinTheFirst(t *testing.T) {
	evil := "\r\nSTARTTLS\r\n" + string(recorded(t, "evil.example"))
	text := string(extended(recorded(t, "example.com"), 21, len(evil))) + evil
	for _, said := range []string{"220 mail ESMTP\r\n", "\x16\x03\x03\x00\x7a"} {
		f := start(t, nil, "example.com:25")
		got := make(chan string, 1)
		f.host("example.com", 25, server(t, func(s net.Conn) {
			b := make([]byte, len(text))
			_, _ = io.ReadFull(s, b)
			io.WriteString(s, said)
			more, _ := io.ReadAll(s)
			got <- string(more)
		}))
		c := f.raw("CONNECT example.com:25 HTTP/1.1\r\n\r\n")
		io.WriteString(c, text+"more")
		c.(*net.TCPConn).CloseWrite()
		if said[0] == recordHandshake {
			require.Equal(t, "more", <-got)
			continue
		}
		require.Empty(t, <-got)
		require.Contains(t, f.waitEvent(Denied).Verdict.Detail, `TLS asks for "evil.example"`)
	}
}

// TestGreetingsInData: what looks like a greeting within what a client uploads passes
// where the server's protocol has none, and in every other shape.
func TestGreetingsInData(t *testing.T) {
	evil := string(recorded(t, "evil.example"))
	for name, c := range map[string]struct {
		said, text string
		ok         bool
	}{
		"a plain protocol":      {"hello\n", "PUT x\n" + evil + evil, true},
		"Redis":                 {"+OK\r\n", "*3\r\n" + evil, true},
		"fields in mail":        {"220 x\r\n", "EHLO a b\r\nDATA\r\nHost: evil.example\r\n\r\n", true},
		"mail":                  {"220 x\r\n", "DATA\r\n" + evil, false},
		"the same host's":       {"220 x\r\n", "DATA\r\n" + string(recorded(t, "example.com")) + "more", true},
		"cut short":             {"220 x\r\n", "DATA\r\n" + evil[:100], true},
		"of another kind":       {"220 x\r\n", "DATA\r\n\x16\x03\x01\x00\x05\x02\x00\x00\x01x", true},
		"an end":                {"220 x\r\n", "DATA\r\n\x16", true},
		"a longer end":          {"220 x\r\n", "DATA\r\n\x16\x03\x01\x02\x00\x01\x00", true},
		"an encrypted message":  {"220 x\r\n", "STARTTLS\r\n\x16\x03\x03\x00\x28\x01\x00\x00\x50" + strings.Repeat("\x99", 36) + "\x17\x03\x03\x00\x05abcde", true}, // TLS 1.2's Finished
		"numbers":               {"", "\x01\x02\x16\x00\x00\x00\x05\x01\x16\x02\x16\x03\x02\x01", true},
		"to a server that says": {"", "x\r\n" + evil, false}, // nothing: it may be going to
		"an upload":             {"", "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 9999\r\n\r\n" + evil + evil + "more", true},
		"early data":            {"", string(recorded(t, "example.com")) + "\x14\x03\x03\x00\x01\x01\r\n" + evil + "more", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := build(t, nil, "example.com:25")
			f.headTimeout = time.Second
			f.serve()
			got := make(chan string, 1)
			f.host("example.com", 25, server(t, func(s net.Conn) {
				io.WriteString(s, c.said)
				b, _ := io.ReadAll(s)
				got <- string(b)
			}))
			conn := f.raw("CONNECT example.com:25 HTTP/1.1\r\n\r\n")
			br := bufio.NewReader(conn)
			_, err := io.ReadFull(br, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")+len(c.said)))
			require.NoError(t, err)
			io.WriteString(conn, c.text)
			conn.(*net.TCPConn).CloseWrite()
			if seen := <-got; c.ok {
				require.Equal(t, c.text, seen)
			} else {
				require.True(t, strings.HasPrefix(c.text, seen))
				require.NotContains(t, seen, evil)
			}
		})
	}
}

// TestNothingWaits: a client whose bytes may be a greeting's, and who then waits for an
// answer, gets it.
func TestNothingWaits(t *testing.T) {
	f := start(t, nil, "example.com:25")
	f.host("example.com", 25, server(t, echo))
	for _, text := range []string{"x\x16", "x\x16\x03", "x\x16\x03\x01", "x\x16\x03\x01\x02\x00", "x\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", "*1\r\n\x16\x00\x00\x00\x05\x01\x02", "\x04\x16\x03\x09\x00\x00\x01", "(x y z\r\nHos", "CAP LS 302\r\nNICK a\r\n", "(a b c\r\nHost-Of: x\r\n"} {
		c := f.raw("CONNECT example.com:25 HTTP/1.1\r\n\r\n")
		br := bufio.NewReader(c)
		_, err := io.ReadFull(br, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
		require.NoError(t, err)
		_, err = io.WriteString(c, text)
		require.NoError(t, err)
		got := make([]byte, len(text))
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err = io.ReadFull(br, got)
		require.NoError(t, err, "%q", text)
		require.Equal(t, text, string(got))
		c.Close()
	}
}

// TestNothingIsKept: a server that answers what it has the whole of gets that, though it ends
// like a greeting.
func TestNothingIsKept(t *testing.T) {
	f := start(t, nil, "example.com:25")
	hello := string(recorded(t, "evil.example"))[:300]
	for _, text := range []string{"a line\r\n" + hello, "\x01\x02" + hello, "\xff" + hello, "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 300\r\n\r\n" + hello} {
		f.host("example.com", 25, server(t, func(s net.Conn) {
			b := make([]byte, len(text))
			if _, err := io.ReadFull(s, b); err == nil {
				s.Write(b)
			}
		}))
		c := f.raw("CONNECT example.com:25 HTTP/1.1\r\n\r\n")
		for rest := text; rest != ""; rest = rest[min(100, len(rest)):] {
			_, err := io.WriteString(c, rest[:min(100, len(rest))])
			require.NoError(t, err)
		}
		c.SetReadDeadline(time.Now().Add(3 * time.Second))
		br := bufio.NewReader(c)
		_, err := io.ReadFull(br, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
		require.NoError(t, err)
		got := make([]byte, len(text))
		_, err = io.ReadFull(br, got)
		require.NoError(t, err, "%.20q", text)
		require.Equal(t, text, string(got))
		c.Close()
	}
}

// TestLongGreeting: OpenSSL's servers take one of 128 KiB. The control is the same to a
// server of a plain protocol.
func TestLongGreeting(t *testing.T) {
	const name = "evil.example"
	var message bytes.Buffer
	sized := func(b []byte) { message.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...)) }
	message.Write(append([]byte{3, 3}, make([]byte, 32+1)...))
	sized(make([]byte, 40_000))
	message.WriteString("\x01\x00")
	sized(append([]byte("\x00\x00\x00\x11\x00\x0f\x00\x00\x0c"+name+"\xfa\xfa\x75\x30"), make([]byte, 30_000)...))
	body := append([]byte{clientHello, byte(message.Len() >> 16), byte(message.Len() >> 8), byte(message.Len())}, message.Bytes()...)
	records := []byte("STARTTLS\r\n")
	for part := range slices.Chunk(body, 1<<14) {
		records = append(append(records, recordHandshake, 3, 1, byte(len(part)>>8), byte(len(part))), part...)
	}
	for _, v := range []voice{plain, turning} {
		from := &heard{spoke: make(chan struct{})}
		from.voice.Store(int32(v))
		close(from.spoke)
		var up bytes.Buffer
		o := &lookout{Conn: writing{Writer: &up}, from: from, host: "example.com"}
		for part := range slices.Chunk(records, 1000) {
			_, _ = o.Write(part)
		}
		o.forget()
		require.Equal(t, v == turning, o.err != nil)
		require.Equal(t, v == plain, up.Len() == len(records))
	}
}

// TestBegunGreetings: of many clients that each begin a long greeting the host holds few,
// and what it holds it lets go of.
func TestBegunGreetings(t *testing.T) {
	begun := extended(recorded(t, "example.com"), 21, 13_000)
	begun = append(begun, make([]byte, shortHead)...)
	var all []*lookout
	for range maxLongHeads + 1 {
		from := &heard{spoke: make(chan struct{})}
		from.voice.Store(int32(turning))
		close(from.spoke)
		all = append(all, &lookout{Conn: writing{Writer: io.Discard}, from: from, host: "example.com"})
	}
	for i, o := range all {
		_, err := o.Write(begun)
		require.Equal(t, i == maxLongHeads, err == errLongHeads)
	}
	_, err := all[0].Write(make([]byte, 13_000-shortHead)) // the rest
	require.NoError(t, err)
	all[1].from.voice.Store(int32(plain))
	_, err = all[1].Write([]byte("x"))
	require.NoError(t, err)
	require.EqualValues(t, maxLongHeads-2, longHeads.Load())
	for _, o := range all {
		o.forget()
	}
	require.Zero(t, longHeads.Load())
}

// TestHeardInPieces: how a server speaks does not depend on how its words come.
func TestHeardInPieces(t *testing.T) {
	for text, want := range map[string]voice{
		"220 mail": turning, "* OK ready": turning, "+OK ready": turning, "-ERR no": turning, "\"IMPLEMENTATION\"": turning, "<stream": turning,
		"NOTICE AUTH": turning, "0\x0c\x02\x01\x01x": turning, "0\x84\x00\x00\x00\x0c\x02": turning, turns["MySQL"].greeting: turning, turns["MySQL's X"].greeting: turning,
		"RFB 003.008\n": turning, "# munin node": turning, "NBDMAGICIHAVEOPT": turning, "\x03\x00\x00\x13": turning, "\x04\x01\x00\x30\x00": packed,
		"HTTP/1.1 200 OK": plain, "+OK\r\n": plain, "SSH-2.0-x": plain, "0032want": plain, "S\x16\x03\x03\x00": plain, "\x16\x03\x03\x00\x7a": plain, "S": turning,
	} {
		for _, size := range []int{1, 3, 100} {
			h := &heard{Conn: writing{Writer: io.Discard}, spoke: make(chan struct{})}
			for _, piece := range slices.Collect(slices.Chunk([]byte(text), size)) {
				_, err := h.Write(piece)
				require.NoError(t, err)
				<-h.spoke
			}
			require.Equal(t, want, voice(h.voice.Load()), "%q by %d", text, size)
			require.Equal(t, len(text) < enough, h.first != nil)
		}
	}
}

// TestOtherNames: a PROXY header, a request of uWSGI's and one of git's name a host too,
// or hide one. The control is a server that takes what comes.
func TestOtherNames(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80")
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "hello %q", b)
	}))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":80")
	request := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	packet := func(text string) string { return fmt.Sprintf("%04x%s", 4+len(text), text) }
	v2 := proxySignature + "\n"
	tlv := func(host string) string { return "\x02\x00" + string([]byte{byte(len(host))}) + host }
	inet := "\x01\x02\x03\x04\x05\x06\x07\x08\x00\x01\x00\x02"
	named := func(host string) string {
		return v2 + "\x21\x11\x00" + string([]byte{byte(len(inet + tlv(host)))}) + inet + tlv(host)
	}
	for text, passes := range map[string]bool{
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + request("ok.example"):            true,
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + request("evil.example"):          false,
		"PROXY UNKNOWN\r\n" + request("evil.example"):                           false,
		"PROXY UNKNOWN\r\nPROXY UNKNOWN\r\n" + request("evil.example"):          false,
		"PROXY UNKNOWN\r\n" + string(recorded(t, "evil.example")):               false,
		"PROXY UNKNOWN\r\n" + string(recorded(t, "ok.example")):                 true,
		"PROXY UNKNOWN\r\n" + v2 + "\x20\x00\x00\x00" + request("evil.example"): false,
		v2 + "\x20\x00\x00\x00" + request("evil.example"):                       false,
		v2 + "\x20\x00\x00\x00" + request("ok.example"):                         true,
		v2 + "\x21\x11\x00\x0c" + inet + string(recorded(t, "evil.example")):    false,
		v2 + "\x21\x11\x00\x0c" + inet + string(recorded(t, "ok.example")):      true,
		named("evil.example") + "x":                                             false, named("ok.example") + "x": true,
		v2 + "\x21\x11\x00\x0e" + inet + "\x02\x00": false,
		"QUIT\n" + "x": true, "QUIT\r\n": true,

		packet("git-upload-pack /r\x00host=ok.example\x00"):                              true,
		packet("git-upload-pack /r\x00host=ok.example:80\x00\x00version=2\x00") + "0000": true,
		packet("git-upload-pack /r\x00host=evil.example\x00"):                            false,
		packet("git-upload-pack /r\x00HOST=evil.example\x00\x00version=2\x00"):           false,
		packet("git-receive-pack /r"):                                                    true,

		"(GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":                             false,
		"\xffGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":                          false,
		"G\x01T / x\r\nA: b\r\nhost:evil.example\r\n\r\n":                           false,
		"FOO / bar\r\nHost: evil.example\r\n\r\n":                                   false,
		"GET x y\r\nHost:\r\n evil.example\r\n\r\n":                                 false,
		"GET x y\r\nHost: ok.example\r\n .evil.example\r\n\r\n":                     false,
		"GET x y\r\nHost: ok.example\r\nX: y\r\n Host: evil.example\r\n\r\n":        false,
		"GET x y\r\nHost: ok.example\r\nHost: evil.example\r\n\r\n":                 false,
		"FOO / bar\r\nX: " + strings.Repeat("y", 20000) + "\r\nHost: e.example\r\n": false,
		"FOO / bar\r\nHost: ok.example\r\n\r\nHost: evil.example":                   true, // a body
		"CONNECT\nhost:other.example\n\n":                                           true,
		"CAP LS 302\r\nNICK a\r\n":                                                  true,

		"(GET foo://evil.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n": false,
		"(GET foo://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n":   true,

		// Lines of logs, as they are shipped.
		"[info] redis://other.example:6379 is up\n":                                               true,
		"1.2.3.4 - - [23/Nov/2026:05:44:42 +0000] \"GET / HTTP/1.1\" 200 12\n":                    true,
		"<34>1 2026-11-23T05:44:42Z h app - - - \"GET / HTTP/1.1\" 200\n":                         true,
		"{\"message\": \"GET / HTTP/1.1\", \"status\": 200}\n{\"message\": \"GET / HTTP/1.1\"}\n": true,
	} {
		for _, piece := range []int{1 << 20, 1} {
			if piece == 1 && len(text) > 1000 {
				continue
			}
			c := f.raw("")
			go func() {
				for rest := text; rest != ""; rest = rest[min(piece, len(rest)):] {
					if _, err := io.WriteString(c, rest[:min(piece, len(rest))]); err != nil {
						return
					}
				}
				c.(*net.TCPConn).CloseWrite()
			}()
			b, _ := io.ReadAll(c)
			require.Equal(t, passes, string(b) == fmt.Sprintf("hello %q", text), "%.90q: %q", text, b[:min(len(b), 200)])
			if strings.Contains(string(b), "hello") && !passes {
				require.NotContains(t, string(b), "example", text)
			}
		}
	}
}

// FuzzLookout: whatever a client sends passes as it is, and no greeting that names
// another host is whole.
func FuzzLookout(f *testing.F) {
	evil := recorded(f, "evil.example")
	f.Add(evil, 3)
	f.Add(append([]byte("STARTTLS\r\n\x16\x03\x01\x02"), evil...), 7)
	f.Add(append(extended(recorded(f, "example.com"), 21, 9000), evil...), 1000)
	f.Add(slices.Concat(extended(recorded(f, "other.example"), 21, 9000), evil, make([]byte, 9000)), 20_000)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 1 {
			return
		}
		for _, v := range []voice{plain, silent, turning} {
			from := &heard{spoke: make(chan struct{})}
			from.voice.Store(int32(v))
			close(from.spoke)
			var up bytes.Buffer
			o := &lookout{Conn: writing{Writer: &up}, from: from, host: "example.com"}
			for rest := b; len(rest) > 0 && o.err == nil; rest = rest[min(size, len(rest)):] {
				_, _ = o.Write(rest[:min(size, len(rest))])
			}
			o.forget()
			require.Zero(t, longHeads.Load())
			if o.err == nil {
				require.True(t, bytes.Equal(b, up.Bytes()))
			} else {
				require.NotEqual(t, plain, v)
				require.True(t, bytes.HasPrefix(b, up.Bytes()))
			}
			if v != plain {
				require.False(t, bytes.Contains(up.Bytes(), evil))
			}
		}
	})
}

// writing is a connection that is only written to.
type writing struct {
	net.Conn
	io.Writer
}

func (w writing) Write(b []byte) (int, error) { return w.Writer.Write(b) }
