package netproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

const (
	publicAddr  = "140.82.112.3"
	publicAddr6 = "2606:4700::1111"
)

// A fixture is a proxy with a world of its own: a resolver, and routes from
// public addresses to the test's servers on loopback. Nothing else is dialled.
type fixture struct {
	*Proxy
	t    *testing.T
	addr string // of the proxy

	mu     sync.Mutex
	hosts  map[string][]netip.Addr // by name
	routes map[string]string       // by address and port
	dialed []string
	events []Event
}

func parse(t testing.TB, texts ...string) *rules.Set {
	t.Helper()
	var rs []rules.Rule
	for _, text := range texts {
		parse := rules.Parse
		if after, ok := strings.CutPrefix(text, "local "); ok {
			text, parse = after, rules.ParseLocal
		}
		r, err := parse(text)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	set, err := rules.New(rs...)
	require.NoError(t, err)
	return set
}

// start serves a proxy with rules; cfg may be nil.
func start(t *testing.T, cfg *Config, texts ...string) *fixture {
	t.Helper()
	f := build(t, cfg, texts...)
	f.serve()
	return f
}

// build makes a proxy that does not serve yet.
func build(t *testing.T, cfg *Config, texts ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, hosts: map[string][]netip.Addr{}, routes: map[string]string{}}
	if cfg == nil {
		cfg = &Config{}
	}
	cfg.Rules = parse(t, texts...)
	if cfg.Resolver == nil {
		cfg.Resolver = f
	}
	if cfg.IsOwn == nil {
		cfg.IsOwn = func(netip.Addr) bool { return false }
	}
	if cfg.Dial == nil {
		cfg.Dial = f.dial
	}
	cfg.Event = func(e Event) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	}
	if cfg.HTTP == nil {
		cfg.HTTP = reader(t)
	}
	f.Proxy = New(*cfg)
	// A busy machine keeps no test waiting for as long as that: only those that wait for the
	// end of a patience have less.
	f.headTimeout = await.Patience
	return f
}

// reader reads HTTP, in this process.
func reader(t testing.TB) func(*Handover) error {
	t.Helper()
	i, err := inspect.New(inspect.Config{})
	require.NoError(t, err)
	t.Cleanup(i.Close)
	return func(h *Handover) error {
		go i.Here(h.Conn, wire.Begin{Early: h.Early, To: h.To}, h)
		return nil
	}
}

// told returns the events so far.
func (f *fixture) told() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

func (f *fixture) serve() {
	ln := listen(f.t)
	f.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- f.Proxy.Serve(f.t.Context(), ln) }()
	f.t.Cleanup(func() {
		f.Close()
		require.NoError(f.t, <-served)
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	return ln
}

func (f *fixture) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a, ok := f.hosts[strings.TrimSuffix(host, ".")]; ok {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func (f *fixture) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	f.dialed = append(f.dialed, addr)
	to, ok := f.routes[addr]
	f.mu.Unlock()
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// host makes name:port lead to a server, by way of a public address.
func (f *fixture) host(name string, port int, server string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts[name] = []netip.Addr{netip.MustParseAddr(publicAddr)}
	f.routes[fmt.Sprintf("%s:%d", publicAddr, port)] = server
}

func (f *fixture) dials() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.dialed)
}

// waitEvent returns the first event of a kind, which may be yet to come.
func (f *fixture) waitEvent(kind EventKind) Event {
	f.t.Helper()
	var found Event
	await.Until(f.t, fmt.Sprint("an event ", kind), func() bool {
		told := f.told()
		i := slices.IndexFunc(told, func(e Event) bool { return e.Kind == kind })
		if i >= 0 {
			found = told[i]
		}
		return i >= 0
	})
	return found
}

// client returns an HTTP client that uses the proxy and trusts every server.
func (f *fixture) client() *http.Client {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: f.addr}), ForceAttemptHTTP2: true}
	tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	f.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: await.Patience}
}

// raw connects to the proxy and sends text.
func (f *fixture) raw(text string) net.Conn {
	f.t.Helper()
	c, err := net.Dial("tcp", f.addr)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(await.Deadline())
	_, err = io.WriteString(c, text)
	require.NoError(f.t, err)
	return c
}

// ask sends text and returns all that comes back.
func (f *fixture) ask(text string) string {
	f.t.Helper()
	b, err := io.ReadAll(f.raw(text))
	require.NoError(f.t, err)
	return string(b)
}

// server serves one connection at a time with handle.
func server(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	ln := listen(t)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return ln.Addr().String()
}

func echo(c net.Conn) { io.Copy(c, c) }

func hello(t *testing.T, useTLS bool) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s %s", r.Host, r.Proto)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	if useTLS {
		srv.EnableHTTP2 = true
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestConnectTLS(t *testing.T) {
	f := start(t, nil, "ok.example")
	srv := hello(t, true)
	f.host("ok.example", 443, srv.Listener.Addr().String())
	f.host("no.example", 443, srv.Listener.Addr().String())
	c := f.client()
	status, body := get(t, c, "https://ok.example/")
	require.Equal(t, 200, status)
	require.Equal(t, "hello ok.example HTTP/2.0", body)
	_, err := c.Get("https://no.example/")
	require.ErrorContains(t, err, "Denied by pccrun (to allow: --allow no.example)")
	require.Equal(t, []string{publicAddr + ":443"}, f.dials(), "what is denied is not dialled")

	e := f.waitEvent(Denied)
	require.Equal(t, "no.example", e.Verdict.Host)
	require.Equal(t, "--allow no.example", e.Verdict.AllowWith)
	c.CloseIdleConnections()
	e = f.waitEvent(Closed)
	require.Equal(t, "connect", e.Protocol)
	require.Equal(t, "ok.example", e.Verdict.Rule)
	require.Equal(t, publicAddr, e.Verdict.Addr.String())
	require.Positive(t, e.Up)
	require.Positive(t, e.Down)
	require.Positive(t, e.Duration)
}

// TestPipelined holds that what follows CONNECT in the same packet arrives.
func TestPipelined(t *testing.T) {
	f := start(t, nil, "ok.example:7")
	f.host("ok.example", 7, server(t, echo))
	early := strings.Repeat("early ", 5000)
	c := f.raw("CONNECT ok.example:7 HTTP/1.1\r\nHost: ok.example\r\n\r\n" + early)
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 200 Connection established\r\n\r\n"+early, string(b))
	e := f.waitEvent(Closed)
	require.EqualValues(t, len(early), e.Up)
	require.EqualValues(t, len(early), e.Down)
}

func TestServerFirst(t *testing.T) {
	f := start(t, nil, "ok.example:22")
	f.host("ok.example", 22, server(t, func(c net.Conn) {
		io.WriteString(c, "SSH-2.0-test\r\n")
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c) // after our own end
		require.Equal(t, "late", string(b))
	}))
	c := f.raw("CONNECT ok.example:22 HTTP/1.0\r\n\r\n")
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Contains(t, string(b), "SSH-2.0-test\r\n")
	_, err = io.WriteString(c, "late")
	require.NoError(t, err)
	c.(*net.TCPConn).CloseWrite()
	require.EqualValues(t, 4, f.waitEvent(Closed).Up)
}

// TestResetPassesOn holds that a connection cut short does not look complete.
func TestResetPassesOn(t *testing.T) {
	f := start(t, nil, "ok.example:7")
	f.host("ok.example", 7, server(t, func(c net.Conn) {
		c.Read(make([]byte, 1))
		reset(c)
	}))
	c := f.raw("CONNECT ok.example:7 HTTP/1.1\r\nHost: ok.example:7\r\n\r\nx")
	_, err := io.ReadAll(c)
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestDenial(t *testing.T) {
	f := start(t, nil, "ok.example", "deny bad.example", "private pg.example", "GET https://api.example/v1/**")
	f.hosts["ok.example"] = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}
	resp := f.ask("CONNECT bad.example:443 HTTP/1.1\r\nHost: bad.example:443\r\n\r\n")
	require.Contains(t, resp, "HTTP/1.1 403 Denied by pccrun\r\n")
	_, body, _ := strings.Cut(resp, "\r\n\r\n")
	var got map[string]string
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	require.Equal(t, map[string]string{"error": "denied", "host": "bad.example", "port": "443", "rule": "deny bad.example", "reason": "rule", "allow_with": ""}, got)

	resp = f.ask("GET http://other.example:8080/x HTTP/1.1\r\nHost: other.example:8080\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\n\r\n")
	require.Contains(t, resp, "403 Denied by pccrun (to allow: --allow other.example:8080)\r\n")
	require.Contains(t, resp, "Content-Type: text/plain")
	require.Contains(t, resp, `pccrun: error="denied" host="other.example" port="8080" reason="default" allow_with="--allow other.example:8080"`)
	resp = f.ask("GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\nAccept: text/html, text/plain\r\n\r\n")
	require.Contains(t, resp, "Content-Type: text/plain")
	resp = f.ask("HEAD http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n")
	require.True(t, strings.HasSuffix(resp, "\r\n\r\n"), resp)

	resp = f.ask("CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
	require.Contains(t, resp, "to allow: --allow 'private ok.example'")
	require.Contains(t, resp, `"detail":"10.0.0.1 is guarded: private"`)

	resp = f.ask("CONNECT api.example:443 HTTP/1.1\r\n\r\n")
	require.Contains(t, resp, "403 Denied by pccrun\r\n")
	require.Contains(t, resp, "rules for methods and paths cannot be enforced for this protocol")

	resp = f.ask("CONNECT nowhere\xff.example:443 HTTP/1.1\r\n\r\n")
	require.Contains(t, resp, "HTTP/1.1 400 ")
	resp = f.ask("CONNECT b@d.example:443 HTTP/1.1\r\n\r\n")
	require.Contains(t, resp, `"reason":"invalid-host"`)
	require.Empty(t, f.dials())

	// The control: what only the address kept out.
	f.routes["10.0.0.1:443"] = server(t, echo)
	f.hosts["pg.example"] = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	c := f.raw("CONNECT pg.example:443 HTTP/1.1\r\n\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, " 200 ")
}

func TestUnreachable(t *testing.T) {
	f := start(t, nil, "gone.example", "refused.example", "empty.example")
	f.hosts["refused.example"] = []netip.Addr{netip.MustParseAddr(publicAddr)}
	f.hosts["empty.example"] = nil
	for host, want := range map[string]string{
		"gone.example":    "the name does not resolve",
		"refused.example": "connection refused",
		"empty.example":   "no address",
	} {
		resp := f.ask("CONNECT " + host + ":443 HTTP/1.1\r\n\r\n")
		require.Contains(t, resp, "HTTP/1.1 502 Bad Gateway\r\n")
		require.Contains(t, resp, want)
	}
	require.Error(t, f.waitEvent(Failed).Err)
}

// TestRebinding holds that the address that was checked is the one dialled,
// whatever the name resolves to a moment later.
func TestRebinding(t *testing.T) {
	f := start(t, nil, "rebind.example:7")
	f.host("rebind.example", 7, server(t, echo))
	answers := [][]netip.Addr{
		{netip.MustParseAddr(publicAddr)},
		{netip.MustParseAddr("127.0.0.1")},
		{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(publicAddr)},
	}
	for i, want := range []string{"200", "403", "200"} {
		f.mu.Lock()
		f.hosts["rebind.example"] = answers[i]
		f.mu.Unlock()
		c := f.raw("CONNECT rebind.example:7 HTTP/1.1\r\n\r\n")
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, want)
	}
	for _, d := range f.dials() {
		require.Equal(t, publicAddr+":7", d)
	}
}

func TestOwnAddress(t *testing.T) {
	own := netip.MustParseAddr(publicAddr)
	f := start(t, &Config{IsOwn: func(a netip.Addr) bool { return a == own }}, "a.example:7", "b.example:7")
	f.host("a.example", 7, server(t, echo))
	require.Contains(t, f.ask("CONNECT a.example:7 HTTP/1.1\r\n\r\n"), "the host's own address")
	in := own.As4()
	for _, a := range []string{"64:ff9b::", "2002::"} { // NAT64 and 6to4: what counts is the address inside
		b, at := netip.MustParseAddr(a).As16(), 12
		if a == "2002::" {
			at = 2
		}
		for _, last := range []byte{in[3], in[3] + 1} {
			copy(b[at:], in[:])
			b[at+3] = last
			to := netip.AddrFrom16(b)
			f.mu.Lock()
			f.hosts["b.example"] = []netip.Addr{to}
			f.routes[netip.AddrPortFrom(to, 7).String()] = f.routes[publicAddr+":7"]
			f.mu.Unlock()
			line, err := bufio.NewReader(f.raw("CONNECT b.example:7 HTTP/1.1\r\n\r\n")).ReadString('\n')
			require.NoError(t, err)
			if last == in[3] {
				require.Contains(t, line, " 403 ", to)
			} else {
				require.Contains(t, line, " 200 ", "the control: the address beside it")
			}
		}
	}
	require.True(t, isOwn(netip.MustParseAddr("127.0.0.1")))
	require.True(t, isOwn(netip.MustParseAddr("127.9.9.9")))
	require.False(t, isOwn(netip.MustParseAddr("240.0.0.1")))
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if ip = ip.Unmap(); !ip.IsLinkLocalUnicast() {
			require.True(t, isOwn(ip), ip)
		}
	}
}

// TestRace holds that a dead first address costs the head start alone, and
// that the families alternate.
func TestRace(t *testing.T) {
	live := server(t, echo)
	var mu sync.Mutex
	var dialed []string
	f := build(t, &Config{Dial: func(ctx context.Context, _, addr string) (net.Conn, error) {
		mu.Lock()
		dialed = append(dialed, addr)
		mu.Unlock()
		switch {
		case strings.HasPrefix(addr, publicAddr+":"):
			return net.Dial("tcp", live)
		case strings.HasPrefix(addr, "140."):
			return nil, syscall.EHOSTUNREACH
		}
		<-ctx.Done() // a black hole
		return nil, ctx.Err()
	}}, "a.example", "b.example", "c.example")
	f.attemptDelay = 300 * time.Millisecond
	f.serve()
	six, four, bad := netip.MustParseAddr(publicAddr6), netip.MustParseAddr(publicAddr), netip.MustParseAddr("140.0.0.1")
	f.hosts["a.example"] = []netip.Addr{six, six.Next(), four}
	f.hosts["b.example"] = []netip.Addr{bad, four}
	f.hosts["c.example"] = []netip.Addr{bad, bad.Next()}
	begin := time.Now()
	c := f.raw("CONNECT a.example:443 HTTP/1.1\r\n\r\n")
	line, _ := bufio.NewReader(c).ReadString('\n')
	require.Contains(t, line, " 200 ")
	require.GreaterOrEqual(t, time.Since(begin), f.attemptDelay)
	mu.Lock()
	require.Equal(t, []string{"[2606:4700::1111]:443", publicAddr + ":443"}, dialed[:2]) // a third, where the second is slow
	mu.Unlock()
	require.Contains(t, f.ask("CONNECT c.example:443 HTTP/1.1\r\n\r\n"), "no route to host")
	e := f.waitEvent(Opened)
	require.Equal(t, publicAddr, e.Verdict.Addr.String(), "the address that won")

	p := New(Config{Dial: f.cfg.Dial})
	p.attemptDelay = time.Hour
	conn, i, err := p.race(t.Context(), []netip.Addr{bad, four}, 443)
	require.NoError(t, err, "a failure starts the next at once")
	require.Equal(t, 1, i)
	conn.Close()
}

func TestLocal(t *testing.T) {
	srv := hello(t, false)
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	f := start(t, &Config{Dial: new(net.Dialer).DialContext}, "host:"+port)
	c := f.client()
	status, body := get(t, c, "http://host.pccrun.internal:"+port+"/")
	require.Equal(t, 200, status)
	require.Contains(t, body, "hello host.pccrun.internal")
	for _, denied := range []string{"127.0.0.1:" + port, "127.0.0.1.:" + port, "0.0.0.0:" + port, "[::1]:" + port, "[::ffff:127.0.0.1]:" + port, "127.1:" + port, "a.localhost:" + port, "host.pccrun.internal:1"} {
		require.Contains(t, f.ask("CONNECT "+denied+" HTTP/1.1\r\n\r\n"), "HTTP/1.1 403 ", denied)
	}

	f = start(t, &Config{Dial: new(net.Dialer).DialContext}, "local "+port)
	status, _ = get(t, f.client(), "http://127.0.0.1:"+port+"/")
	require.Equal(t, 200, status)
	require.Contains(t, f.ask("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n"), "HTTP/1.1 403 ")
}

func TestLocalIPv6(t *testing.T) {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skip("needs IPv6 on the loopback: ", err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "six")
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	f := start(t, &Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "127.") {
			return nil, syscall.ECONNREFUSED
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}, "local "+port)
	if strings.HasSuffix(f.addr, ":"+port) {
		t.Skip("needs two ports: the proxy got the same one on the other loopback")
	}
	b, err := io.ReadAll(f.raw("CONNECT host.pccrun.internal:" + port + " HTTP/1.1\r\n\r\n"))
	require.NoError(t, err)
	require.Contains(t, string(b), "\r\n\r\nsix")
}

func TestServeLocal(t *testing.T) {
	target := server(t, echo)
	f := start(t, nil, "local localhost:5432")
	f.routes["127.0.0.1:5432"] = target
	for port, want := range map[uint16]string{5432: "ping", 5433: ""} {
		ln := listen(t)
		go f.ServeLocal(t.Context(), ln, port)
		c, err := net.Dial("tcp", ln.Addr().String())
		if want == "" && err != nil {
			continue // the reset came before connect had returned
		}
		require.NoError(t, err)
		io.WriteString(c, "ping")
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		require.Equal(t, want, string(b), port)
		c.Close()
	}
	require.Equal(t, "local", f.waitEvent(Closed).Protocol)
	require.Equal(t, rules.ByDefault, f.waitEvent(Denied).Verdict.Reason)
}

// TestExplain holds that a client hears nothing of the host's network.
func TestExplain(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(192, 168, 7, 7), Port: 53}
	op := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Source: at, Addr: at, Err: err} }
	for want, err := range map[string]error{
		"the name does not resolve":               &net.DNSError{Err: "no such host", Name: "a", Server: at.String()},
		"timed out":                               op(context.DeadlineExceeded),
		"connection refused":                      op(syscall.ECONNREFUSED),
		"no route to host":                        op(syscall.ENETUNREACH),
		"connection cut short":                    op(syscall.ECONNRESET),
		"connection failed":                       op(syscall.EADDRNOTAVAIL),
		"the host's own proxy: connection failed": &upstreamError{at.String(), op(syscall.EACCES)},
		"malformed first line":                    errFirstLine,
	} {
		require.Equal(t, want, explain(err))
	}
}

func TestSelfLoop(t *testing.T) {
	ln := listen(t)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	p := New(Config{Rules: parse(t, "local localhost:"+port), HTTP: reader(t)})
	defer p.Close()
	go p.Serve(t.Context(), ln)
	for _, host := range []string{"127.0.0.1", "localhost", rules.HostName} {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		fmt.Fprintf(c, "CONNECT %s:%s HTTP/1.1\r\n\r\n", host, port)
		b, _ := io.ReadAll(c)
		require.Contains(t, string(b), "the port is the proxy's own")
		c.Close()
	}
}

func TestTooMany(t *testing.T) {
	f := start(t, &Config{MaxConns: 2}, "ok.example:7")
	f.host("ok.example", 7, server(t, echo))
	const request = "CONNECT ok.example:7 HTTP/1.1\r\n\r\n"
	var conns []net.Conn
	for range 2 {
		c := f.raw(request)
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "200")
		conns = append(conns, c)
	}
	c, err := net.Dial("tcp", f.addr)
	if err == nil { // else the reset came before connect had returned
		defer c.Close()
		c.SetDeadline(await.Deadline())
		_, err = io.ReadAll(c)
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	f.waitEvent(Full)
	conns[0].Close()
	f.waitEvent(Closed)
	await.Until(t, "there is room again", func() bool {
		c, err := net.Dial("tcp", f.addr)
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(await.Deadline())
		io.WriteString(c, request)
		line, _ := bufio.NewReader(c).ReadString('\n')
		return strings.Contains(line, "200")
	})
}

func TestSlowHead(t *testing.T) {
	f := build(t, nil, "ok.example")
	f.headTimeout = 50 * time.Millisecond
	f.serve()
	for _, text := range []string{"", "\x05", "\x05\x01", "\x05\x01\x00\x05\x01\x00\x03\xff"} {
		resp := f.ask(text)
		require.NotContains(t, resp, "200")
	}
	// A drop at a time does not help.
	c := f.raw("")
	go func() {
		for {
			if _, err := c.Write([]byte("G")); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	_, err := io.ReadAll(c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
}

// TestClose holds that nothing outlives a proxy: neither goroutine nor
// connection, whatever state they are in.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("", func(t *testing.T) {
		silent := server(t, func(c net.Conn) { io.Copy(io.Discard, c) })
		f := build(t, nil, "ok.example", "hole.example")
		f.host("ok.example", 443, silent)
		f.host("ok.example", 80, silent)
		f.cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if strings.HasSuffix(addr, ":443") {
				return f.dial(ctx, network, addr)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		f.serve()
		f.raw("")
		f.raw("GET ")
		f.raw("CONNECT ok.example:443 HTTP/1.1\r\n\r\n")
		f.raw("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n")
		f.waitEvent(Opened)
		await.Until(t, "all are served", func() bool { return len(f.slots) == 4 })
		closed := make(chan struct{})
		go func() {
			f.Close()
			close(closed)
		}()
		await.Closed(t, "the proxy", closed)
		f.Close()
		require.NoError(t, f.Serve(t.Context(), listen(t)), "closed for good")
	})
	t.Cleanup(func() {
		if t.Failed() {
			stacks := make([]byte, 1<<20)
			t.Logf("%s", stacks[:runtime.Stack(stacks, true)])
		}
	})
	await.Until(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

func TestContextEnds(t *testing.T) {
	p := New(Config{Rules: parse(t, "ok.example")})
	defer p.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ln := listen(t)
	served := make(chan error, 1)
	go func() { served <- p.Serve(ctx, ln) }()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	await.Until(t, "the client is served", func() bool { return len(p.slots) == 1 })
	cancel()
	require.NoError(t, <-served)
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
}

type brokenListener struct {
	net.Listener
	errs []error
}

func (b *brokenListener) Accept() (net.Conn, error) {
	err := b.errs[0]
	b.errs = b.errs[1:]
	return nil, err
}

func TestAcceptErrors(t *testing.T) {
	p := New(Config{})
	defer p.Close()
	broken := errors.New("broken")
	err := p.Serve(t.Context(), &brokenListener{listen(t), []error{syscall.EMFILE, syscall.ECONNABORTED, broken}})
	require.Equal(t, broken, err)
}

// TestIdleProxy holds that a proxy without clients is one waiting goroutine.
func TestIdleProxy(t *testing.T) {
	before := runtime.NumGoroutine()
	p := New(Config{})
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
	ln := listen(t)
	go p.Serve(t.Context(), ln)
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	await.Until(t, "it serves", func() bool { return len(p.slots) == 1 })
	c.Close()
	await.Until(t, "one goroutine waits", func() bool { return runtime.NumGoroutine() <= before+1 })
	p.Close()
}
