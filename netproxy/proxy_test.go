package netproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/netproxy/rules"
)

type resolver map[string][]netip.Addr

func (r resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if a, ok := r[host]; ok {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func TestSmoke(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	defer srv.Close()
	rule, err := rules.Parse("ok.example:443")
	require.NoError(t, err)
	set, err := rules.New(rule)
	require.NoError(t, err)
	p := New(Config{Rules: set,
		Resolver: resolver{"ok.example.": {netip.MustParseAddr("140.82.112.3")}},
		IsOwn:    func(netip.Addr) bool { return false },
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			require.Equal(t, "140.82.112.3:443", addr)
			return net.Dial("tcp", srv.Listener.Addr().String())
		}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go p.Serve(t.Context(), ln)
	defer p.Close()
	tr := srv.Client().Transport.(*http.Transport)
	tr.TLSClientConfig.ServerName = "example.com"
	tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: ln.Addr().String()})
	resp, err := srv.Client().Get("https://ok.example/")
	require.NoError(t, err)
	b, _ := io.ReadAll(resp.Body)
	require.Equal(t, "hello", string(b))
	_, err = srv.Client().Get("https://no.example/")
	require.ErrorContains(t, err, "allow with --allow no.example")
}
