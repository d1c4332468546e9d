package netproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// corporate is a proxy that speaks first in its tunnels, in the same packet as
// its answer. It tells the first line and the credentials of what it got.
func corporate(t *testing.T, answer string) (addr string, got chan string) {
	got = make(chan string, 10)
	return server(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		h, err := readHead(br)
		if err != nil {
			return
		}
		got <- h.line + " " + strings.Join(append(h.get("Host"), h.get("Proxy-Authorization")...), " ")
		io.WriteString(c, answer)
		io.Copy(c, br)
	}), got
}

func TestUpstream(t *testing.T) {
	addr, got := corporate(t, "HTTP/1.1 200 OK\r\n\r\nbanner ")
	up, err := ParseUpstream("", "http://user:p%40ss@"+addr, "direct.example,10.0.0.0/8")
	require.NoError(t, err)
	f := start(t, &Config{Upstream: up}, "ok.example:22", "direct.example:22", "inside.example:22", "10.0.0.1:22")
	f.routes[addr] = addr
	c := f.raw("CONNECT ok.example:22 HTTP/1.1\r\n\r\nhello")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200 Connection established\r\n\r\nbanner hello", string(b), "though the name does not resolve here")
	require.Equal(t, "CONNECT ok.example:22 HTTP/1.1 ok.example:22 Basic dXNlcjpwQHNz", <-got)
	require.True(t, f.waitEvent(Opened).Upstream)

	require.Contains(t, f.ask("CONNECT no.example:22 HTTP/1.1\r\n\r\n"), " 403 ")
	f.hosts["inside.example"] = []netip.Addr{netip.MustParseAddr("169.254.169.254")}
	require.Contains(t, f.ask("CONNECT inside.example:22 HTTP/1.1\r\n\r\n"), "cloud metadata", "where it resolves here, its address is checked")
	both := []netip.Addr{netip.MustParseAddr(publicAddr), netip.MustParseAddr("10.9.9.9")}
	f.hosts["inside.example"], f.hosts["direct.example"] = both, both
	require.Contains(t, f.ask("CONNECT inside.example:22 HTTP/1.1\r\n\r\n"), "10.9.9.9 is guarded", "which of them the proxy would take nobody knows")
	require.Len(t, f.dials(), 1)
	f.routes[publicAddr+":22"] = server(t, echo)
	line, _ := bufio.NewReader(f.raw("CONNECT direct.example:22 HTTP/1.1\r\n\r\n")).ReadString('\n')
	require.Contains(t, line, " 200 ", "the control: without a proxy it is the one that was checked")

	f.host("direct.example", 22, server(t, echo))
	f.routes["10.0.0.1:22"] = server(t, echo)
	for _, host := range []string{"direct.example", "10.0.0.1"} {
		line, _ := bufio.NewReader(f.raw("CONNECT " + host + ":22 HTTP/1.1\r\n\r\n")).ReadString('\n')
		require.Contains(t, line, " 200 ")
	}
	require.Empty(t, got)
}

func TestUpstreamRefuses(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "nonsense\r\n\r\n"} {
		addr, _ := corporate(t, answer)
		up, err := ParseUpstream("", addr, "")
		require.NoError(t, err)
		f := start(t, &Config{Upstream: up}, "ok.example")
		f.routes[addr] = addr
		c := f.raw("CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		require.Contains(t, string(b), "the host's own proxy: ")
		require.NotContains(t, string(b), addr)
		require.Error(t, f.waitEvent(Failed).Err)
	}
	up, err := ParseUpstream("", "gone.example:3128", "")
	require.NoError(t, err)
	f := start(t, &Config{Upstream: up}, "ok.example")
	require.Contains(t, f.ask("CONNECT ok.example:443 HTTP/1.1\r\n\r\n"), "the host's own proxy: connection refused")
	require.ErrorContains(t, f.waitEvent(Failed).Err, "upstream proxy gone.example:3128: ")
}

func TestUpstreamForward(t *testing.T) {
	addr, got := corporate(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	up, err := ParseUpstream("http://u@"+addr+"/", "", "")
	require.NoError(t, err)
	f := start(t, &Config{Upstream: up}, "ok.example", "ok.example:8080", "[2606:4700::1111]")
	f.routes[addr] = addr
	for request, want := range map[string]string{
		"GET http://ok.example/x?y HTTP/1.1\r\nHost: ok.example\r\nProxy-Authorization: Basic mine\r\n":  "GET http://ok.example/x?y HTTP/1.1 ok.example Basic dTo=",
		"GET http://ok.example:8080/ HTTP/1.1\r\nHost: ok.example:8080\r\n":                              "GET http://ok.example:8080/ HTTP/1.1 ok.example:8080 Basic dTo=",
		"OPTIONS http://ok.example HTTP/1.1\r\nHost: ok.example\r\n":                                     "OPTIONS http://ok.example/ HTTP/1.1 ok.example Basic dTo=",
		"GET http://[2606:4700::1111]/ HTTP/1.1\r\nHost: [2606:4700::1111]\r\n":                          "GET http://[2606:4700::1111]/ HTTP/1.1 [2606:4700::1111] Basic dTo=",
		"GET http://ok.example/ws HTTP/1.1\r\nHost: ok.example\r\nConnection: upgrade\r\nUpgrade: x\r\n": "GET http://ok.example/ws HTTP/1.1 ok.example Basic dTo=",
	} {
		resp, err := http.ReadResponse(bufio.NewReader(f.raw(request+"\r\n")), nil)
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "ok", string(b))
		require.Equal(t, want, <-got)
	}
}

func TestParseUpstream(t *testing.T) {
	for _, text := range []string{"socks5://127.0.0.1:1080", "https://proxy.example:443", "http://", "http://us er:secret@x:1", "http://h:port:secret/"} {
		_, err := ParseUpstream(text, "", "")
		require.ErrorContains(t, err, "HTTP_PROXY: ")
		require.NotContains(t, err.Error(), "secret")
		_, err = ParseUpstream("", text, "")
		require.ErrorContains(t, err, "HTTPS_PROXY: ")
	}
	u, err := ParseUpstream("proxy.example", "http://[::1]:3128", "a.example, .b.example,*.c.example,D.example.,8.8.8.8,9.9.9.9:53,[2606::1]:443,2606:1::/32,e.example:8080,,")
	require.NoError(t, err)
	require.Equal(t, "proxy.example:80", u.http.addr)
	require.Equal(t, "[::1]:3128", u.https.addr)
	require.Empty(t, u.http.auth)
	for target, direct := range map[string]bool{
		"a.example:443": true, "x.a.example:443": true, "xa.example:443": false,
		"b.example:443": true, "x.b.example:443": true, "c.example:443": true, "x.c.example:443": true, "d.example:443": true,
		"8.8.8.8:443": true, "8.8.8.9:443": false, "9.9.9.9:53": true, "9.9.9.9:54": false, "[2606::1]:443": true, "[2606::1]:80": false, "[2606:1::5]:80": true,
		"e.example:8080": true, "e.example:443": false, "f.example:443": false,
	} {
		host, port, ok := rules.SplitAuthority(target, 0)
		require.True(t, ok)
		v := rules.Verdict{Host: host, Port: port}
		v.Addr, _ = netip.ParseAddr(host)
		require.Equal(t, direct, u.proxyFor(v, "connect") == nil, target)
		require.Equal(t, direct, u.proxyFor(v, "http") == nil, target)
	}
	require.Nil(t, u.proxyFor(rules.Verdict{Host: "x.example", Local: true}, "connect"))
	u, err = ParseUpstream("", "x:1", "*")
	require.NoError(t, err)
	require.Nil(t, u.proxyFor(rules.Verdict{Host: "x.example", Port: 443}, "connect"))
	require.Nil(t, new(Upstream).proxyFor(rules.Verdict{Host: "x.example", Port: 443}, "connect"))
}

func FuzzParseUpstream(f *testing.F) {
	f.Add("http://u:p@h:1", "a,.b,*,10.0.0.0/8,[::1]:443,c:80")
	f.Fuzz(func(t *testing.T, proxy, exceptions string) {
		u, err := ParseUpstream(proxy, proxy, exceptions)
		if err != nil {
			return
		}
		p := u.proxyFor(rules.Verdict{Host: "a.example", Port: 443}, "connect")
		if p == nil {
			return
		}
		_, port, err := net.SplitHostPort(p.addr)
		require.NoError(t, err)
		require.NotEmpty(t, port)
		require.NotContains(t, p.auth, "\n")
	})
}

func TestEnviron(t *testing.T) {
	env := Environ("http://127.0.0.1:3128", "extra.example")
	for _, want := range []string{
		"http_proxy=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128", "no_proxy=localhost,127.0.0.1,::1,extra.example",
		"NODE_USE_ENV_PROXY=1", "CLOUDSDK_PROXY_ADDRESS=127.0.0.1", "CLOUDSDK_PROXY_PORT=3128",
	} {
		require.Contains(t, env, want)
	}
	seen := map[string]bool{}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		require.False(t, seen[name], name)
		seen[name] = true
	}
	require.False(t, seen["ALL_PROXY"])
	require.False(t, seen["all_proxy"])
}

var _ Resolver = (*net.Resolver)(nil)

// TestDefaults holds that a proxy without a test's world dials for itself.
func TestDefaults(t *testing.T) {
	_, port, _ := net.SplitHostPort(server(t, echo))
	p := New(Config{Rules: parse(t, "local "+port, "localhost.example", "127.0.0.1.example"), HTTP: reader(t)})
	defer p.Close()
	require.Positive(t, p.cfg.MaxConns)
	ln := listen(t)
	go p.Serve(t.Context(), ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	io.WriteString(c, "CONNECT "+rules.HostName+":"+port+" HTTP/1.1\r\n\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, " 200 ")
	_, err = p.cfg.Resolver.LookupNetIP(context.Background(), "ip", "127.0.0.1")
	require.NoError(t, err)
}

// A proxy on this machine's own loopback may be anything that listens there.
func TestUpstreamRestrict(t *testing.T) {
	none := func(string) bool { return false }
	for _, own := range []string{"http://127.0.0.1:3128", "localhost:3128", "http://LOCALHOST:3128", "[::1]:3128", "[::ffff:127.0.0.1]:3128", "169.254.169.254:3128", "0.0.0.0:3128"} {
		for _, both := range [][2]string{{own, ""}, {"", own}, {"http://proxy.example:1", own}} {
			u, err := ParseUpstream(both[0], both[1], "")
			require.NoError(t, err)
			var refused *hint.Error
			require.ErrorAs(t, u.Restrict(none), &refused, own)
			require.Contains(t, refused.Hint(), "--local 3128")
			require.NoError(t, u.Restrict(func(port string) bool { return port == "3128" }), "named")
		}
	}
	u, err := ParseUpstream("http://u:secret@proxy.example:1", "http://proxy.example:1", "")
	require.NoError(t, err)
	require.NoError(t, u.Restrict(none))
	require.Equal(t, []string{"proxy.example:1"}, u.Addresses())

	// A name that leads there is known for what it is when it has led there.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	c, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.ErrorContains(t, u.check(c, "proxy.example:1"), "on this machine")
	require.NoError(t, u.Restrict(func(port string) bool { return port == "1" }))
	require.NoError(t, u.check(c, "proxy.example:1"), "named")
	require.NoError(t, (&Upstream{}).check(c, "proxy.example:1"), "control: without the restriction")
}
