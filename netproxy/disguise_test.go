package netproxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// disguises are requests for another host than the tunnel's, in forms that
// servers understand and a reader of first bytes may not.
var disguises = map[string]string{
	"behind empty lines":   "\r\n\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"a method of its own":  "LINK / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"in lower case":        "get / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"two blanks":           "GET  / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"in the target":        "GET http://evil.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n",
	"in the target, ws":    "GET ws://evil.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n",
	"in the target, query": "GET http://evil.example?http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n",
	"another version":      "GET / HTTP/1.2\r\nHost: evil.example\r\n\r\n",
	"a bare CR":            "GET / HTTP/1.1\rHost: evil.example\r\n\r\n",
	"CONNECT":              "CONNECT evil.example:80 HTTP/1.1\r\nHost: ok.example\r\n\r\n",
	"CONNECT, no Host":     "connect evil.example:80 HTTP/1.1\r\n\r\n",
	"HTTP/0.9":             "GET http://evil.example/\r\n",
	"HTTP/0.9, blanks":     "GET  http://evil.example/ \t\r\n",
	"RTSP":                 "GET / RTSP/1.0\r\nHost: evil.example\r\n\r\n",
	"RTSP, in the target":  "OPTIONS rtsp://evil.example/ RTSP/1.0\r\nCSeq: 1\r\n\r\n",
	"Icecast":              "SOURCE / ICE/1.0\r\nHost: evil.example\r\n\r\n",
	"Python's blanks":      "GET\x1c/\xa0HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"behind a control":     "\x01GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"behind controls":      "\x00\x16\x03\x01 GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"behind one of TLS":    "\x15GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"a long method":        strings.Repeat("A", 5000) + " / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"a long target":        "GET /" + strings.Repeat("a", maxHead) + " HTTP/1.1\r\nHost: evil.example\r\n\r\n",
}

// TestDisguised sends each through a tunnel, whole and byte by byte.
func TestDisguised(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80")
	web := hello(t, false).Listener.Addr().String()
	f.host("ok.example", 80, web)
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":80")
	for name, request := range disguises {
		for _, piece := range []int{1 << 20, 1} {
			if piece == 1 && len(request) > 1000 {
				continue
			}
			c := f.raw("")
			go func() {
				for rest := request; rest != ""; rest = rest[min(piece, len(rest)):] {
					if _, err := io.WriteString(c, rest[:min(piece, len(rest))]); err != nil {
						return
					}
				}
			}()
			b, _ := io.ReadAll(c)
			require.NotContains(t, string(b), "hello", "%s: %q", name, b)
			if name == "behind empty lines" {
				continue // the server may be the first to refuse them
			}
			require.Regexp(t, "^HTTP/1.1 (4..|505) ", string(b), name)
		}
	}
	// The control: without a proxy some of them are understood.
	understood := 0
	for _, request := range disguises {
		c, err := net.Dial("tcp", web)
		require.NoError(t, err)
		c.SetDeadline(time.Now().Add(5 * time.Second))
		io.WriteString(c, strings.Replace(request, "Host:", "Connection: close\r\nHost:", 1))
		b, _ := io.ReadAll(c)
		c.Close()
		if strings.Contains(string(b), "hello evil.example") {
			understood++
		}
	}
	require.GreaterOrEqual(t, understood, 4)
}

// TestRefusedUnseen has a server that answers whatever it has when there is no
// more: of a request that is refused it gets nothing.
func TestRefusedUnseen(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80")
	got := make(chan string, 100)
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
		io.WriteString(c, "hello")
	}))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":80")
	for i := range 20 {
		blanks := ""
		if i == 0 {
			blanks = " \t\v\f\x1c\x85\xa0" // some servers take a line for its words
		}
		c := f.raw("")
		io.WriteString(c, blanks+"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		b, _ := io.ReadAll(c)
		require.NotContains(t, string(b), "hello")
		require.Equal(t, blanks, <-got)
	}
}

// TestLineWithoutEnd has a server that takes the end of a connection for that of a
// line, as Python's does: of a line for another host it does not hear the end.
func TestLineWithoutEnd(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80")
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		if b, err := io.ReadAll(c); err == nil {
			io.WriteString(c, "hello "+string(b))
		}
	}))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":80")
	for line, passes := range map[string]bool{
		"GET http://evil.example/": false, "GET http://evil.example/ HTTP/1.0": false, "CONNECT evil.example:80": false, "GET / HTTP/1.0": false,
		"GET http://ok.example/": true, "PING": true, "GET key": true,
	} {
		c := f.raw(line)
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		b, _ := io.ReadAll(c)
		require.Equal(t, passes, string(b) == "hello "+line, "%s: %q", line, b)
		require.Equal(t, passes, strings.Contains(string(b), "hello"), line)
	}
}

// TestOtherProtocols has clients that send the beginning of a line and wait.
func TestOtherProtocols(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:25")
	f.host("ok.example", 25, server(t, echo))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":25")
	for _, text := range []string{"x", "PING", "EHLO h", "GET", "GET /key\r\n", "\r\n", "\n\nEHLO x", "0027git-upload-pack /r\x00host=ok.example\x00", "\x15\x00", "user h*\r\nmore", "\x16", "*1\r\n$4\r\nPING\r\n",
		"get http://other.example/key\r\n", "SET http://other.example/key 1\r\n", "GET http://ok.example:25/\r\n", "\x1f\x8b\x08", "OPTIONS rtsp://ok.example/ RTSP/1.0\r\nCSeq: 1\r\n\r\n",
		"\x16\x01\x00\x01\x85\xa2\x3f\x00 MySQL, 278 bytes", "\x14\x00\x00\x01\x85", "\x16\x01\x00\x00\x07\x00\x00\x00 MongoDB", "\x15\x13\x00\x00",
		"\x14\x01\x00\x00\x00\x00\x00\x00 MongoDB", "\x15\x01\x00\x00\x01\x00\x00\x00 MongoDB", "\x16\x01\x00\x00\x00\x00\x00\x00 MongoDB", "\x17\x01\x00\x00\x01\x00\x00\x00 MongoDB",
		"\x00\x00\x00\x08\x04\xd2", "\x00\x00\x00\x08\x04\xd2\x16\x30\x00\x00\x00\x08\x04\xd2\x16\x2f", "\x00\x00\x00\x29\x00\x03\x00\x00user\x00",
		"CONNECT {\"verbose\":false,\"tls_required\":false,\"url\":\"nats://other.example:4222\"}\r\nPING\r\n", "CONNECT\naccept-version:1.2\nhost:other.example\n\n\x00",
		"\x16\x00\xff\x05\x0aok.example\x63\xdd\x01 Minecraft", "OPTIONS sip:x@other.example SIP/2.0\r\n",
		"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab", "\x00\x00\x00\x10{\"a\": 1}\nGET / HTTP/1.1\r\n", "\x00\x09GET a b\r\n\r\n", "\x01\x01\x00\x01\x00\x08\x00\x00\x09\x0bHTTP_HOSTother.example",
		"85 <34>1 2026-11-23T05:44:42Z h app - - - " + strings.Repeat("\"GET / HTTP/1.1\" 200 ", 4000),
		"SET /key 1\r\n", "get /key /other\r\n", "SSH-2.0-OpenSSH_9.9 /etc x\r\n"} {
		if text == "\x16" {
			continue // the beginning of a hello, which is waited for
		}
		c := f.raw(text)
		got := make([]byte, len(text))
		_, err := io.ReadFull(c, got)
		require.NoError(t, err, "%q", text)
		require.Equal(t, text, string(got))
		c.Close()
	}
}

// TestRecordBeforeHello: some servers skip a warning before the hello that
// asks for another host. Go's does, which is the control.
func TestRecordBeforeHello(t *testing.T) {
	const warning = "\x15\x03\x01\x00\x02\x01\x5a"
	f := start(t, nil, "example.com:443", "patient.example:443")
	asked := make(chan string, 4)
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		asked <- h.ServerName
		return nil, nil
	}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	f.host("example.com", 443, srv.Listener.Addr().String())
	f.host("patient.example", 443, server(t, func(c net.Conn) { io.Copy(io.Discard, c) }))
	hello := string(recorded(t, "evil.example"))

	// Its version is to be ignored, too, and is.
	const odd = "\x15\x01\x00\x00\x02\x01\x5a"
	another := hello[:1] + "\x0f\x00" + hello[3:]
	for _, text := range []string{warning + hello, odd + hello, another} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		io.WriteString(c, text)
		require.Equal(t, "evil.example", <-asked)
	}

	for _, text := range []string{warning + hello, odd + hello, another, "\x14\x03\x03\x00\x01\x01" + hello, "\x14\x01\x03\x00\x01\x01" + hello, "\x17\x03\x03\x00\x01\x01" + hello} {
		for _, piece := range []int{len(text), 1} {
			c := f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
			for rest := text; rest != ""; rest = rest[min(piece, len(rest)):] {
				if _, err := io.WriteString(c, rest[:min(piece, len(rest))]); err != nil {
					break
				}
			}
			b, _ := io.ReadAll(c)
			require.NotContains(t, string(b), "\x16\x03", "%q: the server's hello", text[:7])
		}
		// Go's ends at some of them, and the client may hear of that before of us.
		c := f.raw("CONNECT patient.example:443 HTTP/1.1\r\n\r\n" + text)
		b, _ := io.ReadAll(c)
		require.Contains(t, string(b), unrecognizedName)
	}
	require.Empty(t, asked)
	// Who sends the first byte and waits is not let through with the rest.
	c := f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n" + odd[:1])
	time.Sleep(f.Proxy.headTimeout + time.Second/2)
	io.WriteString(c, odd[1:]+hello)
	io.ReadAll(c)
	require.Empty(t, asked)
}

// TestWishForTLS has a client of PostgreSQL, which asks for TLS first. The control is
// the server without a proxy.
func TestWishForTLS(t *testing.T) {
	f := start(t, nil, "example.com:5432")
	asked := make(chan string, 4)
	certificates, _ := tlsServer(t, http.NotFoundHandler())
	srv := server(t, func(c net.Conn) {
		b := make([]byte, len(sslRequest))
		for b[7] != sslRequest[7] {
			if _, err := io.ReadFull(c, b); err != nil {
				return
			}
			io.WriteString(c, map[bool]string{true: "S", false: "N"}[b[7] == sslRequest[7]])
		}
		tls.Server(c, &tls.Config{Certificates: certificates.TLS.Certificates, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			asked <- h.ServerName
			return nil, nil
		}}).Handshake()
	})
	f.host("example.com", 5432, srv)
	greet := func(c net.Conn, name string) error {
		for _, wish := range []string{sslRequest[:7] + string(gssRequest), sslRequest} {
			io.WriteString(c, wish[:3])
			io.WriteString(c, wish[3:])
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				return err
			}
		}
		return tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}
	c, err := net.Dial("tcp", srv)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, greet(c, "evil.example"))
	require.Equal(t, "evil.example", <-asked)

	tunnel := func() net.Conn {
		c := f.raw("CONNECT example.com:5432 HTTP/1.1\r\n\r\n")
		_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
		require.NoError(t, err)
		return c
	}
	require.NoError(t, greet(tunnel(), "example.com"))
	require.Equal(t, "example.com", <-asked)
	require.ErrorContains(t, greet(tunnel(), "evil.example"), "unrecognized name")
	require.Empty(t, asked)
}

// TestNoVersion has a server that does not look at the version, as uWSGI's does not.
// The control is that server without a proxy.
func TestNoVersion(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80")
	lax := server(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		line, _ := br.ReadString('\n')
		host, _ := br.ReadString('\n')
		if words := strings.Split(line, " "); len(words) == 3 && strings.HasPrefix(host, "Host: ") {
			io.WriteString(c, "hello "+host[6:])
		}
	})
	f.host("ok.example", 80, lax)
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":80")
	for _, line := range []string{"GET / FOO\r\n", "POST /x /\r\n", "Get http://ok.example/ 1.1\r\n"} {
		c, err := net.Dial("tcp", lax)
		require.NoError(t, err)
		io.WriteString(c, line+"Host: evil.example\r\n\r\n")
		b, _ := io.ReadAll(c)
		c.Close()
		require.Contains(t, string(b), "hello evil.example")

		c = f.raw(line + "Host: evil.example\r\n\r\n")
		b, _ = io.ReadAll(c)
		require.Contains(t, string(b), "HTTP/1.1 505 ", line)
	}
}

// TestStreamsWithoutTLS has HTTP/2 with prior knowledge in a tunnel: a real
// client reaches a real server by its name, and no other.
func TestStreamsWithoutTLS(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "hello "+r.Host+" "+r.Proto)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	f.host("ok.example", 80, srv.Listener.Addr().String())
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":80")

	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	tr.DialContext = func(_ context.Context, _, _ string) (net.Conn, error) { return net.Dial("tcp", f.addr) }
	t.Cleanup(tr.CloseIdleConnections)
	client := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	for _, body := range []io.Reader{nil, strings.NewReader(strings.Repeat("x", 1<<20))} {
		tr.CloseIdleConnections()
		resp, err := client.Post("http://ok.example/", "text/plain", body)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, "hello ok.example HTTP/2.0", string(text))
	}
	resp, err := client.Get("http://evil.example/")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 421, resp.StatusCode)
	e := f.waitEvent(Denied)
	require.Equal(t, "ok.example", e.Verdict.Host)
	require.Equal(t, "the Host field is not the host of the request", e.Verdict.Detail)

	request := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/"}}
	for name, c := range map[string]struct {
		fields []hpack.HeaderField
		ok     bool
	}{
		"one":          {[]hpack.HeaderField{{Name: ":authority", Value: "ok.example"}}, true},
		"host":         {[]hpack.HeaderField{{Name: "host", Value: "ok.example"}}, true},
		"none":         {nil, false},
		"two":          {[]hpack.HeaderField{{Name: ":authority", Value: "ok.example"}, {Name: "host", Value: "evil.example"}}, false},
		"two, swapped": {[]hpack.HeaderField{{Name: ":authority", Value: "evil.example"}, {Name: "host", Value: "ok.example"}}, false},
		"twice":        {[]hpack.HeaderField{{Name: ":authority", Value: "ok.example"}, {Name: ":authority", Value: "evil.example"}}, false},
	} {
		for _, cut := range []bool{false, true} {
			conn := f.raw(http2.ClientPreface)
			fr := http2.NewFramer(conn, conn)
			require.NoError(t, fr.WriteSettings())
			frame, err := fr.ReadFrame() // a client may wait for these
			require.NoError(t, err)
			require.Equal(t, http2.FrameSettings, frame.Header().Type)
			require.NoError(t, fr.WriteSettingsAck())
			var b strings.Builder
			e := hpack.NewEncoder(&b)
			for _, h := range append(request[:3:3], c.fields...) {
				e.WriteField(h)
			}
			block := []byte(b.String())
			if cut {
				require.NoError(t, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:3], PadLength: 3, EndStream: true, Priority: http2.PriorityParam{Weight: 3}}))
				require.NoError(t, fr.WriteContinuation(1, true, block[3:]))
			} else {
				require.NoError(t, fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndHeaders: true, EndStream: true}))
			}
			fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			status := ""
			for status == "" {
				frame, err := fr.ReadFrame()
				require.NoError(t, err, name)
				if h, ok := frame.(*http2.MetaHeadersFrame); ok {
					status = h.PseudoValue("status")
				}
			}
			if c.ok {
				require.Equal(t, "200", status, name)
			} else {
				require.Equal(t, "421", status, name)
			}
			conn.Close()
		}
	}
	for name, text := range map[string]string{
		"no preface":             "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
		"a push":                 http2.ClientPreface + "\x00\x00\x04\x05\x04\x00\x00\x00\x01\x00\x00\x00\x02",
		"a continuation first":   http2.ClientPreface + "\x00\x00\x00\x09\x04\x00\x00\x00\x01",
		"fields without end":     http2.ClientPreface + strings.Repeat("\x00\x40\x00\x01\x00\x00\x00\x00\x01"+strings.Repeat("x", 1<<14), 1) + strings.Repeat("\x00\x40\x00\x09\x00\x00\x00\x00\x01"+strings.Repeat("x", 1<<14), 5),
		"another between":        http2.ClientPreface + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"fields that mean none":  http2.ClientPreface + "\x00\x00\x02\x01\x04\x00\x00\x00\x01\xff\xff",
		"padding beyond":         http2.ClientPreface + "\x00\x00\x02\x01\x0c\x00\x00\x00\x01\x09\x82",
		"priority beyond":        http2.ClientPreface + "\x00\x00\x02\x01\x24\x00\x00\x00\x01\x09\x82",
		"padded without padding": http2.ClientPreface + "\x00\x00\x00\x01\x0c\x00\x00\x00\x01",
	} {
		b, _ := io.ReadAll(f.raw(text))
		require.Contains(t, string(b), "421", name)
		require.NotContains(t, string(b), "hello", name)
	}
}

// FuzzFields: whatever the fields are, only those that a server's own decoder
// reads the tunnel's host in are taken.
func FuzzFields(f *testing.F) {
	f.Add([]byte("\x82\x86\x84\x41\x0aok.example"))
	f.Add([]byte("\x82\x86\x84\x41\x0aok.example\x66\x0cevil.example"))
	v := parse(f, "ok.example").Decide("ok.example", 80)
	f.Fuzz(func(t *testing.T, block []byte) {
		if checkFields(v, block) != nil {
			return
		}
		d := hpack.NewDecoder(4096, nil)
		d.SetAllowedMaxDynamicTableSize(maxHead)
		fields, err := d.DecodeFull(block)
		if err != nil {
			return // a server may be stricter
		}
		named := false
		for _, h := range fields {
			if h.Name == ":authority" || h.Name == "host" {
				host, _, ok := splitAuthority(h.Value, 80)
				require.True(t, ok)
				require.Equal(t, "ok.example", strings.ToLower(strings.TrimSuffix(host, ".")))
				named = true
			}
		}
		require.True(t, named)
	})
}

// FuzzStreams: whatever a client sends as HTTP/2, what has gone up when its
// first request is passed is what came, and names the tunnel's host to a server.
func FuzzStreams(f *testing.F) {
	request := "\x00\x00\x0f\x01\x04\x00\x00\x00\x01" + "\x82\x86\x84\x41\x0aok.example"
	f.Add([]byte(prefaceRest + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + request))
	f.Add([]byte(prefaceRest + "\x00\x00\x0f\x01\x00\x00\x00\x00\x01" + "\x82\x86\x84\x41\x0aok.example" + "\x00\x00\x00\x09\x04\x00\x00\x00\x01"))
	f.Add([]byte(prefaceRest + "\x00\x00\x15\x01\x2c\x00\x00\x00\x01\x00" + "\x00\x00\x00\x00\x01" + "\x82\x86\x84\x41\x0aok.example"))
	v := parse(f, "ok.example").Decide("ok.example", 80)
	f.Fuzz(func(t *testing.T, b []byte) {
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		var up bytes.Buffer
		c := &client{conn: here, br: bufio.NewReader(bytes.NewReader(b))}
		if c.readStreams(v, &up) != nil {
			return
		}
		require.True(t, bytes.HasPrefix(b, up.Bytes()), "passed on as it came")
		framer := http2.NewFramer(io.Discard, bytes.NewReader(up.Bytes()[len(prefaceRest):]))
		framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		framer.SetMaxReadFrameSize(1<<24 - 1)
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				return // a server may be stricter
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok {
				host, _, ok := splitAuthority(h.PseudoValue("authority"), 80)
				if !ok || h.PseudoValue("authority") == "" {
					return // then its Host field names it, which FuzzFields holds
				}
				require.Equal(t, "ok.example", strings.ToLower(strings.TrimSuffix(host, ".")))
				return
			}
		}
	})
}

// TestRewrittenByProxy: what may make another request of one is refused by the
// proxy too, and its trailers are dropped.
func TestRewrittenByProxy(t *testing.T) {
	f := start(t, nil, "GET,POST http://ok.example/public/**", "free.example")
	var trailer http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		trailer = r.Trailer
		io.WriteString(w, "hello "+r.RequestURI)
	}))
	t.Cleanup(srv.Close)
	f.host("ok.example", 80, srv.Listener.Addr().String())
	f.host("free.example", 80, srv.Listener.Addr().String())
	for _, c := range []struct{ host, field, want string }{
		{"ok.example", "X-Other: /admin", "hello /public/x"}, {"ok.example", "X-Original-URL: /admin", "another request"}, {"ok.example", "X_HTTP_Method_Override: DELETE", "another request"},
		{"free.example", "X-Original-URL: /admin", "hello /public/x"},
	} {
		require.Contains(t, f.ask("GET http://"+c.host+"/public/x HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n"+c.field+"\r\n\r\n"), c.want)
	}
	for host, passes := range map[string]bool{"ok.example": false, "free.example": true} {
		f.ask("POST http://" + host + "/public/x HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Http-Method-Override: DELETE\r\n\r\n")
		require.Equal(t, passes, trailer.Get("X-Http-Method-Override") != "", host)
	}
}

// TestLongWords: what the sandbox makes up is cut before it is told.
func TestLongWords(t *testing.T) {
	f := start(t, nil, "example.com:443")
	f.host("example.com", 443, server(t, echo))
	io.ReadAll(f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n" + string(recorded(t, strings.Repeat("a", 15000)))))
	e := f.waitEvent(Denied)
	require.Contains(t, e.Verdict.Detail, "TLS asks for")
	require.Less(t, len(e.Verdict.Detail), 2000)
	f.ask("CONNECT " + strings.Repeat("a", 60000) + ":443 HTTP/1.1\r\n\r\n")
	for _, e := range f.told() {
		require.Less(t, len(e.Verdict.Host)+len(e.Verdict.Detail)+len(e.Verdict.AllowWith), 5000)
	}
}

// TestUnpack holds our reading of Huffman's code against the library's.
func TestUnpack(t *testing.T) {
	for first := range 256 {
		for _, text := range []string{string([]byte{byte(first)}), string([]byte{byte(first), 'a', byte(255 - first)}), strings.Repeat(string([]byte{byte(first)}), 9)} {
			got, ok := unpack(hpack.AppendHuffmanString(nil, text))
			require.True(t, ok)
			require.Equal(t, text, got)
		}
	}
	for _, bad := range []string{"\x00", "\xff", "\xff\xff\xff\xff", "\x1f\xff"} { // zeroes behind, a byte of ones, the end of all
		_, ok := unpack([]byte(bad))
		require.False(t, ok, "%x", bad)
	}
}

// FuzzUnpack does so for any bytes.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x9c\x50\x7f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		theirs, err := hpack.HuffmanDecodeToString(b)
		ours, ok := unpack(b)
		require.Equal(t, err == nil, ok)
		if ok {
			require.Equal(t, theirs, ours)
		}
	})
}
