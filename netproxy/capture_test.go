package netproxy

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/pccrun/pccrun/internal/await"
)

// A captured listener's connections were on their way elsewhere.
type captured struct {
	net.Listener
	to *net.TCPAddr
}

type capturedConn struct {
	*net.TCPConn
	to *net.TCPAddr
}

func (c captured) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return capturedConn{conn.(*net.TCPConn), c.to}, nil
}

func (c capturedConn) LocalAddr() net.Addr { return c.to }

// capture makes connections to f.addr look as if they were on their way to an
// address.
func (f *fixture) capture(to string) {
	ln := listen(f.t)
	f.addr = ln.Addr().String()
	go f.ServeCaptured(f.t.Context(), captured{ln, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(to))})
	f.t.Cleanup(f.Close)
}

func TestCaptured(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80,443,22,7", "140.82.112.3:9")
	web := hello(t, false).Listener.Addr().String()
	f.host("ok.example", 80, web)
	f.host("ok.example", 7, server(t, echo))
	f.host("ok.example", 9, server(t, echo))
	f.host("ok.example", 22, server(t, func(c net.Conn) { io.WriteString(c, "banner\n"); io.Copy(c, c) }))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	_, aaaa := f.resolve("ok.example.", dnsmessage.TypeAAAA)

	for _, to := range []string{a + ":80", "[" + aaaa + "]:80", "[::ffff:" + a + "]:80"} {
		f.capture(to)
		require.Contains(t, f.ask("GET / HTTP/1.0\r\nHost: ok.example\r\n\r\n"), "hello ok.example")
	}
	e := f.waitEvent(Opened)
	require.Equal(t, "transparent", e.Protocol)
	require.Equal(t, "ok.example", e.Verdict.Host)

	f.capture(a + ":7")
	c := f.raw("ping")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "ping", string(b))
	f.capture("140.82.112.3:9")
	c = f.raw("HELP\r\n") // no method of HTTP
	c.(*net.TCPConn).CloseWrite()
	b, err = io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "HELP\r\n", string(b))

	f.capture(a + ":22") // the server speaks first
	line := make([]byte, 7)
	_, err = io.ReadFull(f.raw(""), line)
	require.NoError(t, err)
	require.Equal(t, "banner\n", string(line))
}

func TestTurnedAway(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:443,80,81", "10.0.0.0/8:1")
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	for _, c := range []struct{ to, say, want, allow string }{
		{a + ":8080", "GET / HTTP/1.1\r\nHost: ok.example:8080\r\nUser-Agent: curl/8\r\n\r\n", `allow_with="--allow ok.example:8080"`, "--allow ok.example:8080"},
		{a + ":8443", "\x16\x03\x01", accessDenied, "--allow ok.example:8443"},
		{a + ":25", "", "", "--allow ok.example:25"},
		{a + ":26", "EHLO x\r\n", "", "--allow ok.example:26"},
		{a + ":27", "Q", "", "--allow ok.example:27"},
		{a + ":28", "GET / HTTP/9\r\n\r\n", "", "--allow ok.example:28"},
		{"198.19.9.9:443", "", "", ""},
		{"93.184.216.34:443", "", "", "--allow 93.184.216.34"},
		{"[2606:4700::1]:443", "", "", "--allow [2606:4700::1]"},
		{"127.0.0.1:80", "", "", "--local localhost:80"},
		{a + ":81", "GET / HTTP/1.1\r\nHost: ok.example:81\r\n\r\n", "does not resolve", ""}, // allowed, and not to be reached
		{"10.1.2.3:1", "GET / HTTP/1.1\r\nHost: 10.1.2.3:1\r\n\r\n", "connection refused", ""},
	} {
		f.turnAwayTimeout = 2 * await.Patience
		if c.want == "" {
			f.turnAwayTimeout = turnAwayTimeout
		}
		f.capture(c.to)
		before := len(f.told())
		var b []byte
		conn, err := net.Dial("tcp", f.addr)
		if err == nil { // else the reset came before connect had returned
			conn.SetDeadline(await.Deadline())
			_, _ = io.WriteString(conn, c.say)
			b, err = io.ReadAll(conn)
			conn.Close()
		}
		if c.want == "" {
			require.True(t, err == nil && len(b) == 0 || errors.Is(err, syscall.ECONNRESET), "%s: %v %q", c.to, err, b)
		} else {
			require.Contains(t, string(b), c.want, c.to)
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "%s: it waited for what the client says", c.to)
		f.mu.Lock()
		require.Equal(t, c.allow, f.events[before].Verdict.AllowWith, c.to)
		f.mu.Unlock()
	}
}

// TestHostContradicted has a tunnel to one name whose client asks for another
// by http: captured, and by CONNECT.
func TestHostContradicted(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:80,8080")
	web := hello(t, false).Listener.Addr().String()
	f.host("ok.example", 80, web)
	f.host("ok.example", 8080, web)
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	tunnels := map[string]string{"captured": "", "connect": "CONNECT ok.example:80 HTTP/1.1\r\n\r\n"}
	for way, begin := range tunnels {
		t.Run(way, func(t *testing.T) {
			if way == "captured" {
				f.capture(a + ":80")
			} else {
				f.serve()
			}
			for request, want := range map[string]string{
				"GET / HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n":     "hello ok.example",
				"GET / HTTP/1.1\r\nHost: OK.Example.:80\r\nConnection: close\r\n\r\n": "hello OK.Example",
				"GET / HTTP/1.0\r\n\r\n": "hello ",
				"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n":                        "hello ok.example",
				"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                                            "421 Misdirected",
				"GET / HTTP/1.1\r\nHost: ok.example:81\r\n\r\n":                                                           "421 Misdirected",
				"POST / HTTP/1.1\r\nHost: ok.example\r\nhost: evil.example\r\n\r\n":                                       "400 Bad",
				"PROPFIND / HTTP/1.1\r\nX: y\r\n\r\n":                                                                     "400 Bad",
				"GET / HTTP/1.1\nHost: evil.example\n\n":                                                                  "400 Bad",
				"GET / HTTP/1.1\r\nHost : evil.example\r\n\r\n":                                                           "400 Bad",
				"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", maxHead) + "\r\nHost: ok.example\r\n\r\n":                   "431 ",
				"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 9000) + "\r\nHost: ok.example\r\nConnection: close\r\n\r\n": "hello ok.example",
			} {
				answer := f.ask(begin + request)
				require.Contains(t, answer, want, "%.60q", request)
				if !strings.HasPrefix(want, "hello") {
					require.NotContains(t, answer, "hello")
				}
			}
			c := f.raw(begin + "GE") // and nothing more
			c.(*net.TCPConn).CloseWrite()
			b, _ := io.ReadAll(c)
			require.NotContains(t, string(b), "hello")
		})
	}
	var contradicted int
	for _, e := range f.told() {
		if e.Kind == Denied {
			contradicted++
			require.Equal(t, "ok.example", e.Verdict.Host)
			require.NotEmpty(t, e.Verdict.Detail)
		}
	}
	require.Equal(t, 14, contradicted)
}

// TestFakeByProxy has clients that look a name up and give the proxy what they
// found.
func TestFakeByProxy(t *testing.T) {
	f := start(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example:7")
	f.host("ok.example", 7, server(t, echo))
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	c := f.raw("CONNECT " + a + ":7 HTTP/1.1\r\n\r\nping")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(b), "ping")
	require.Equal(t, "ok.example", f.waitEvent(Opened).Verdict.Host)
	require.Contains(t, f.ask("CONNECT 198.19.77.77:7 HTTP/1.1\r\n\r\n"), "403 Denied")
}

func TestRefused(t *testing.T) {
	f := build(t, &Config{Names: NewNames(fake4, fake6)}, "ok.example", "10.0.0.0/8:5432")
	_, a := f.resolve("ok.example.", dnsmessage.TypeA)
	to := netip.MustParseAddrPort
	for range 3 {
		f.Refused("tcp", to("8.8.8.8:443"))
		f.Refused("udp", to("8.8.8.8:443"))
		f.Refused("icmp", netip.AddrPortFrom(netip.MustParseAddr("8.8.8.8"), 0))
		f.Refused("udp", to(a+":443"))         // QUIC, which goes on by TCP
		f.Refused("udp", to(a+":123"))         // nothing does
		f.Refused("udp", to("198.19.9.9:443")) // of nobody
		f.Refused("icmp", netip.AddrPortFrom(netip.MustParseAddr(a), 0))
		f.Refused("tcp", to("10.1.1.1:5432"))    // for want of a sign of life
		f.Refused("udp", to("224.0.0.251:5353")) // looking around
		f.Refused("udp", to("255.255.255.255:67"))
		f.Refused("udp", to("[ff02::fb]:5353"))
		f.Refused("udp", to("10.1.1.1:5432"))
	}
	var told []string
	for _, e := range f.told() {
		require.Equal(t, Denied, e.Kind)
		require.Empty(t, e.Verdict.Rule, "no rule denies it")
		told = append(told, strings.Join([]string{e.Verdict.Host, e.Verdict.AllowWith, e.Verdict.Detail}, "|"))
	}
	require.Equal(t, []string{"8.8.8.8|--allow 8.8.8.8|", "8.8.8.8||only TCP is allowed", "8.8.8.8||only TCP is allowed",
		"ok.example||only TCP is allowed", "198.19.9.9||only TCP is allowed", "ok.example||only TCP is allowed", "10.1.1.1||only TCP is allowed"}, told)
}

func TestRecentForgets(t *testing.T) {
	var r recent
	require.True(t, r.first("a"))
	require.False(t, r.first("a"))
	r.since = time.Now().Add(-2 * time.Minute)
	require.True(t, r.first("a"))
	told := 0
	for i := range 3000 {
		if r.first(strings.Repeat("x", i)) {
			told++
		}
	}
	require.Equal(t, maxRecent-1, told)
}

func TestServePublished(t *testing.T) {
	f := build(t, nil)
	ln := listen(t)
	to := server(t, echo)
	nobody := errors.New("nobody listens")
	var gone atomic.Bool
	go f.ServePublished(t.Context(), ln, 3000, func() (net.Conn, error) {
		if gone.Load() {
			return nil, nobody
		}
		return net.Dial("tcp", to)
	})
	f.addr = ln.Addr().String()
	c := f.raw("ping")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "ping", string(b))
	e := f.waitEvent(Closed)
	require.Equal(t, "publish", e.Protocol)
	require.EqualValues(t, 4, e.Up)
	require.EqualValues(t, 4, e.Down)
	gone.Store(true)
	if c, err := net.Dial("tcp", f.addr); err == nil {
		_, err = io.ReadAll(c)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
	require.ErrorIs(t, f.waitEvent(Failed).Err, nobody)
	f.Close()
}
