package inspect

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

const (
	secret      = "sk-live-0123456789abcdefXYZ"
	placeholder = "sk-live-placeholderABCDEFGH"
)

// A decision is one that the inspector told of.
type decision struct {
	verdict rules.Verdict
	request string
	err     error
}

// A fixture is an inspector between the test and real TLS servers on loopback,
// which go by names of the test's own.
type fixture struct {
	*Inspector
	t     testing.TB
	roots *x509.CertPool // what the hosts are checked against
	trust *x509.CertPool // what the clients trust: the inspector's authority
	set   *rules.Set

	mu        sync.Mutex
	routes    map[string]string // host:port to address
	dialed    []string
	decisions []decision
	up, down  int64
	closes    int
}

func parse(t testing.TB, texts ...string) *rules.Set {
	t.Helper()
	var rs []rules.Rule
	for _, text := range texts {
		r, err := rules.Parse(text)
		require.NoError(t, err)
		rs = append(rs, r)
	}
	s, err := rules.New(rs...)
	require.NoError(t, err)
	return s
}

// start makes an inspector whose secret goes to api.example.com.
func start(t testing.TB, texts ...string) *fixture {
	t.Helper()
	return startWith(t, Secret{Placeholder: placeholder, Value: secret, Hosts: parse(t, "https://api.example.com")}, texts...)
}

// startWith makes an inspector with a secret.
func startWith(t testing.TB, s Secret, texts ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, roots: x509.NewCertPool(), trust: x509.NewCertPool(), routes: map[string]string{}, set: parse(t, texts...).Watch(s.Hosts)}
	var err error
	f.Inspector, err = New(Config{Secrets: []Secret{s}, Roots: f.roots})
	require.NoError(t, err)
	require.True(t, f.trust.AppendCertsFromPEM(f.Authority()))
	t.Cleanup(f.Close)
	return f
}

func (f *fixture) dial(ctx context.Context, host string, port uint16) (net.Conn, rules.Verdict, error) {
	v := f.set.Decide(host, port)
	at := net.JoinHostPort(host, strconv.Itoa(int(port)))
	f.mu.Lock()
	f.dialed = append(f.dialed, at)
	to := f.routes[at]
	f.mu.Unlock()
	switch {
	case v.Action == rules.Deny:
		return nil, v, errors.New("denied")
	case to == "":
		return nil, v, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to 10.9.8.7")}
	case to == "guarded":
		v.Action = rules.Allow
		v = f.set.DecideAddr(v, netip.MustParseAddr("169.254.169.254"), false)
		return nil, v, errors.New("denied")
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", to)
	return c, v, err
}

// resolved gives every name one public address.
type resolved struct{}

func (resolved) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("140.82.112.3")}, nil
}

// dialAddr connects to the one host of a test that has a route for the port.
func (f *fixture) dialAddr(ctx context.Context, network, address string) (net.Conn, error) {
	_, port, _ := net.SplitHostPort(address)
	f.mu.Lock()
	to := ""
	for at, route := range f.routes {
		if strings.HasSuffix(at, ":"+port) {
			to = route
		}
	}
	f.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, to)
}

// A launcher answers for a connection as the real one does.
type launcher struct {
	*fixture
	to   rules.Verdict
	done func()
}

func (l *launcher) Ask(ctx context.Context, q wire.Question) (a wire.Answer) {
	if q.Dial {
		a.Conn, a.Verdict, _ = l.dial(ctx, l.to.Host, l.to.Port)
		switch {
		case a.Conn != nil:
		case a.Verdict.Action == rules.Deny:
			l.decided(a.Verdict, q.Request, nil)
		default:
			a.Status, a.Detail = 502, "connection failed"
			l.decided(a.Verdict, q.Request, errors.New("no route to 10.9.8.7"))
		}
		return a
	}
	a.NoTrailers = l.set.SpeaksOfRequests(l.to)
	a.Verdict = l.set.DecideRequest(l.to.Host, l.to.Port, rules.Request{Scheme: q.Scheme, Host: q.Field, Method: q.Method, Path: q.Path})
	if a.NoTrailers && q.Rewrites != "" && a.Verdict.Action != rules.Deny {
		a.Verdict.Action, a.Verdict.Reason, a.Verdict.Rule, a.Verdict.Detail = rules.Deny, rules.BadPath, "", "the field "+q.Rewrites+" may make another request of it"
	}
	l.decided(a.Verdict, q.Request, nil)
	return a
}

func (l *launcher) decided(v rules.Verdict, request string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions = append(l.decisions, decision{v, request, err})
}

func (l *launcher) Report(r wire.Report) {
	switch {
	case r.Refused != nil:
		l.decided(*r.Refused, r.Request, nil)
	case r.Error != "":
		l.decided(l.to, r.Request, errors.New(r.Error))
	case r.Closed:
		l.mu.Lock()
		l.up, l.down, l.closes = l.up+r.Up, l.down+r.Down, l.closes+1
		l.mu.Unlock()
		if l.done != nil {
			l.done()
		}
	}
}

// host starts a TLS server, HTTP/1.1 and 2, for names.
func (f *fixture) host(name string, h http.HandlerFunc, also ...string) *httptest.Server {
	f.t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{}
	ca, err := newAuthority() // as good as any
	require.NoError(f.t, err)
	names := append(also, name)
	for _, name := range names {
		cert, err := ca.certificate(name)
		require.NoError(f.t, err)
		srv.TLS.Certificates = append(srv.TLS.Certificates, *cert)
	}
	srv.StartTLS()
	f.t.Cleanup(srv.Close)
	f.roots.AddCert(ca.cert)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.routes[name+":443"] = srv.Listener.Addr().String()
	}
	return srv
}

// connect is a connection that was made for host, as the launcher hands it over.
func (f *fixture) connect(host string, port uint16, early string) net.Conn {
	f.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(f.t, err)
	f.t.Cleanup(func() { c.Close() })
	served, err := ln.Accept()
	require.NoError(f.t, err)
	v := f.set.Decide(host, port)
	require.Equal(f.t, rules.Inspect, v.Action, host)
	go f.Serve(served, wire.Begin{Early: []byte(early), To: &v}, &launcher{fixture: f, to: v})
	c.SetDeadline(await.Deadline())
	return c
}

// secure is a TLS connection to host by way of the inspector.
func (f *fixture) secure(host string, protocols ...string) *tls.Conn {
	f.t.Helper()
	c := tls.Client(f.connect(host, 443, ""), &tls.Config{ServerName: host, RootCAs: f.trust, NextProtos: protocols})
	require.NoError(f.t, c.Handshake())
	return c
}

// raw sends an HTTP/1.1 request as it stands, and returns the response.
func (f *fixture) raw(host, request string) (*http.Response, string) {
	f.t.Helper()
	c := f.secure(host)
	_, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n"))
	require.NoError(f.t, err)
	return readResponse(f.t, bufio.NewReader(c), strings.HasPrefix(request, "HEAD"))
}

func readResponse(t testing.TB, br *bufio.Reader, head bool) (*http.Response, string) {
	t.Helper()
	method := "GET"
	if head {
		method = "HEAD"
	}
	resp, err := http.ReadResponse(br, &http.Request{Method: method})
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// client is an HTTP client whose connections to any host are made by way of
// the inspector.
func (f *fixture) client(h2 bool) *http.Client {
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			host, port, _ := net.SplitHostPort(address)
			n, _ := strconv.Atoi(port)
			return f.connect(host, uint16(n), ""), nil
		},
		TLSClientConfig: &tls.Config{RootCAs: f.trust}, ForceAttemptHTTP2: h2, DisableCompression: true,
	}
	f.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// both runs a test over HTTP/1.1 and HTTP/2.
func (f *fixture) both(run func(t *testing.T, c *http.Client)) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		f.t.(*testing.T).Run(name, func(t *testing.T) { run(t, f.client(h2)) })
	}
}

func do(t *testing.T, c *http.Client, method, url string, body io.Reader, fields ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, body)
	require.NoError(t, err)
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
			continue
		}
		r.Header.Set(fields[i], fields[i+1])
	}
	resp, err := c.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func (f *fixture) told() []decision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]decision(nil), f.decisions...)
}

func (f *fixture) dials() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.dialed...)
}

// behind puts a whole proxy before the inspector, and returns its address.
func (f *fixture) behind() string {
	f.t.Helper()
	resolver := resolved{}
	p := netproxy.New(netproxy.Config{Rules: f.set, Inspects: true, Resolver: resolver, Dial: f.dialAddr, HTTP: func(h *netproxy.Handover) error {
		go f.Here(h.Conn, wire.Begin{Early: h.Early, To: h.To}, h)
		return nil
	}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f.t, err)
	done := make(chan error, 1)
	go func() { done <- p.Serve(f.t.Context(), ln) }()
	f.t.Cleanup(func() {
		p.Close()
		require.NoError(f.t, <-done)
	})
	return ln.Addr().String()
}

// hello is the ClientHello of a client that asks for a name.
func hello(t *testing.T, name string) string {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go tls.Client(a, &tls.Config{ServerName: name}).Handshake()
	buf := make([]byte, 16<<10)
	n, err := b.Read(buf)
	require.NoError(t, err)
	require.Equal(t, byte(recordHandshake), buf[0])
	return string(buf[:n])
}
