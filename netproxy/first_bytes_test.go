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
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/rules"
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
		c.SetDeadline(await.Deadline())
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
			blanks = " \t\r\n"
		}
		c := f.raw("")
		io.WriteString(c, blanks+"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
		b, _ := io.ReadAll(c)
		c.Close() // else what more it says is waited for
		require.NotContains(t, string(b), "hello")
		require.Equal(t, blanks, <-got)
	}
}

// TestOtherProtocols has clients that send the beginning of a line and wait.
func TestOtherProtocols(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:25")
	f.host("ok.example", 25, server(t, echo))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	f.capture(a + ":25")
	for _, text := range []string{"x", "PING", "EHLO h", "GET", "GET /key\r\n", "\r\n", "\n\nEHLO x", "user h*\r\nmore", "*1\r\n$4\r\nPING\r\n", "EHLO h\r\nSTARTTLS\r\n\x16\x03\x01",
		"0027git-upload-pack /r\x00host=ok.example\x00", "get http://other.example/key\r\n", "SET http://other.example/key 1\r\n", "\x1f\x8b\x08", "OPTIONS rtsp://ok.example/ RTSP/1.0\r\nCSeq: 1\r\n\r\n",
		"\x16\x01\x00\x01\x85\xa2\x3f\x00 MySQL, 278 bytes", "\x16\x01\x00\x00\x07\x00\x00\x00 MongoDB", "\x15\x13",
		"\x14\x01\x00\x00\x00\x00\x00\x00 MongoDB", "\x15\x01\x00\x00\x01\x00\x00\x00 MongoDB", "\x16\x01\x00\x00\x00\x00\x00\x00 MongoDB", "\x17\x01\x00\x00\x01\x00\x00\x00 MongoDB",
		"\x00\x00\x00\x08\x04\xd2", "\x00\x00\x00\x29\x00\x03\x00\x00user\x00",
		"CONNECT {\"verbose\":false,\"tls_required\":false,\"url\":\"nats://other.example:4222\"}\r\nPING\r\n", "CONNECT\naccept-version:1.2\nhost:other.example\n\n\x00",
		"\x16\x00\xff\x05\x0aok.example\x63\xdd\x01 Minecraft", "OPTIONS sip:x@other.example SIP/2.0\r\n",
		"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02ab", "\x00\x00\x00\x10{\"a\": 1}\nGET / HTTP/1.1\r\n", "\x00\x09GET a b\r\n\r\n",
		"85 <34>1 2026-11-23T05:44:42Z h app - - - " + strings.Repeat("\"GET / HTTP/1.1\" 200 ", 4000), "[info] redis://other.example:6379 is up\n",
		"1.2.3.4 - - [23/Nov/2026:05:44:42 +0000] \"GET / HTTP/1.1\" 200 12\n", "{\"message\": \"GET / HTTP/1.1\", \"status\": 200}\n{\"message\": \"GET / HTTP/1.1\"}\n",
		"SET /key 1\r\n", "get /key /other\r\n", "SSH-2.0-OpenSSH_9.9 /etc x\r\n"} {
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
	f := build(t, nil, "example.com:443", "patient.example:443")
	f.headTimeout = 200 * time.Millisecond // which some of them wait for
	f.serve()
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

	for _, text := range []string{warning + hello, odd + hello, another, "\x14\x03\x03\x00\x01\x01" + hello, "\x17\x03\x03\x00\x01\x01" + hello} {
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
	_, err := io.ReadAll(c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it has waited long enough")
	io.WriteString(c, odd[1:]+hello)
	require.Empty(t, asked)
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

// TestHTTP2WithoutTLS holds that HTTP/2 with prior knowledge, whose names nobody reads, is
// refused in words that a client understands, and passes to an address, which has no name:
// the control.
func TestHTTP2WithoutTLS(t *testing.T) {
	f := start(t, nil, "ok.example:80", publicAddr+":81")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Proto) }))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	f.host("ok.example", 80, srv.Listener.Addr().String())
	f.routes[publicAddr+":81"] = srv.Listener.Addr().String()
	get := func(to string) (string, error) {
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			c := f.raw("CONNECT " + to + " HTTP/1.1\r\n\r\n")
			_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
			return c, err
		}
		defer tr.CloseIdleConnections()
		resp, err := tr.RoundTrip(httptest.NewRequest("GET", "http://"+to+"/", nil))
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	text, err := get(publicAddr + ":81")
	require.NoError(t, err)
	require.Equal(t, "hello HTTP/2.0", text)
	_, err = get("ok.example:80")
	require.ErrorContains(t, err, "HTTP_1_1_REQUIRED")
	require.Contains(t, f.ask("CONNECT ok.example:80 HTTP/1.1\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), cleartextHTTP2)
	require.Equal(t, cleartextHTTP2, f.waitEvent(Denied).Verdict.Detail)
}

// sent is the connection of a client that has said all that it will, and hears nothing.
type sent struct{ net.Conn }

func (sent) Read([]byte) (int, error)         { return 0, io.EOF }
func (sent) Write(b []byte) (int, error)      { return len(b), nil }
func (sent) SetDeadline(time.Time) error      { return nil }
func (sent) SetReadDeadline(time.Time) error  { return nil }
func (sent) SetWriteDeadline(time.Time) error { return nil }

// FuzzFirst: whatever a client sends first to a name goes up as it came, and no server
// that reads as Go's does takes it for a request to another host.
func FuzzFirst(f *testing.F) {
	for _, text := range disguises {
		if len(text) < 1000 {
			f.Add([]byte(text))
		}
	}
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n", "GET http://ok.example:80/ HTTP/1.0\r\n\r\n", "GET /\r\n", "EHLO h\r\nSTARTTLS\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"\x15\x03\x01\x00\x02\x01\x00GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Add(recorded(f, "ok.example"))
	f.Add(recorded(f, "evil.example"))
	set := parse(f, "ok.example")
	f.Fuzz(func(t *testing.T, b []byte) {
		told := false
		p := New(Config{Rules: set, Event: func(e Event) { told = told || e.Kind == Denied }})
		defer p.Close()
		p.headTimeout = time.Millisecond
		c := newClient(p, t.Context(), sent{}, 0)
		c.br.Reset(bytes.NewReader(b))
		var up bytes.Buffer
		l, ev := &link{Conn: writing{Writer: &up}, verdict: set.Decide("ok.example", 80)}, &Event{}
		_, err := c.forwardFirst(l, ev)
		if err == nil { // as the tunnel goes on
			_, _ = c.br.Discard(c.br.Buffered())
			_, err = io.Copy(&up, c.br)
		}
		c.release()
		require.Zero(t, longHeads.Load())
		require.True(t, bytes.HasPrefix(b, up.Bytes()), "passed on as it came")
		if err == nil {
			require.Equal(t, len(b), up.Len(), "all of it")
			require.False(t, told)
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(strings.TrimLeft(up.String(), blanks))))
		if err != nil || r.Host == "" {
			return
		}
		host, _, ok := rules.SplitAuthority(r.Host, 80)
		require.True(t, ok, r.Host)
		require.Equal(t, "ok.example", strings.ToLower(strings.TrimSuffix(host, ".")))
	})
}

// writing is a connection that is only written to.
type writing struct {
	net.Conn
	io.Writer
}

func (w writing) Write(b []byte) (int, error) { return w.Writer.Write(b) }
