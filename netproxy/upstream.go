package netproxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// An Upstream is the proxy that the host itself has to use. Names that the
// rules allow go to it, and it resolves them: the addresses are checked only
// of names that resolve on the host too. The zero value is none.
type Upstream struct {
	http, https *upstreamProxy
	noProxy     []noProxy
	local       func(port string) bool // which ports of this machine a proxy may have; nil: any
}

// Addresses returns where the proxies are, as host:port, each once.
func (u *Upstream) Addresses() []string {
	var list []string
	for _, p := range [...]*upstreamProxy{u.http, u.https} {
		if p != nil && !slices.Contains(list, p.addr) {
			list = append(list, p.addr)
		}
	}
	return list
}

// Restrict refuses a proxy on this machine's own loopback, or at an address that
// is meaningful on this link only, whose port is not one of those allowed: what
// the payload sends to an allowed name would arrive there as it is, at whatever
// listens. An address is refused at once, and a name when
// it leads there.
func (u *Upstream) Restrict(allowed func(port string) bool) error {
	u.local = allowed
	for _, addr := range u.Addresses() {
		host, port, _ := net.SplitHostPort(addr)
		ip, err := netip.ParseAddr(host)
		if own := err == nil && isOwnLink(ip) || strings.EqualFold(host, "localhost"); own && !allowed(port) {
			return ownProxy(addr, port)
		}
	}
	return nil
}

func isOwnLink(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast()
}

// ownProxy is the error where the host's proxy is on the host itself, and nobody has named its port.
func ownProxy(addr, port string) error {
	return hint.Errorf(fmt.Sprintf("--local %s allows it; without that line connections are direct", port),
		"the proxy %s of ~/.config/pccrun/environment is on this machine, where another program could be listening", addr)
}

// check refuses a proxy whose name has led to this machine itself.
func (u *Upstream) check(c net.Conn, addr string) error {
	to, ok := c.RemoteAddr().(*net.TCPAddr)
	if u.local == nil || !ok || !isOwnLink(to.AddrPort().Addr()) {
		return nil
	}
	if _, port, _ := net.SplitHostPort(addr); !u.local(port) {
		return ownProxy(addr, port)
	}
	return nil
}

// An upstreamProxy is one HTTP proxy.
type upstreamProxy struct {
	addr string // host:port
	auth string // the credentials for Proxy-Authorization, "" for none
}

// A noProxy is one element of NO_PROXY.
type noProxy struct {
	all    bool
	name   string // it and what lies below
	prefix netip.Prefix
	port   string // "" for all
}

// ParseUpstream reads the user's HTTP_PROXY, HTTPS_PROXY and NO_PROXY, each
// "" where it is not set. A proxy has to be an http:// URL, or host:port. The
// forms of NO_PROXY are those of curl and Go: names with what lies below them,
// addresses, CIDRs, each with or without a port, and *.
func ParseUpstream(httpProxy, httpsProxy, exceptions string) (Upstream, error) {
	var u Upstream
	var err error
	if u.http, err = parseUpstreamProxy(httpProxy); err != nil {
		return Upstream{}, fmt.Errorf("HTTP_PROXY: %w", err)
	}
	if u.https, err = parseUpstreamProxy(httpsProxy); err != nil {
		return Upstream{}, fmt.Errorf("HTTPS_PROXY: %w", err)
	}
	for e := range strings.SplitSeq(exceptions, ",") {
		if e = strings.ToLower(strings.TrimSpace(e)); e != "" {
			u.noProxy = append(u.noProxy, parseNoProxy(e))
		}
	}
	return u, nil
}

// parseUpstreamProxy never puts the text in an error: it may hold a password.
func parseUpstreamProxy(text string) (*upstreamProxy, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("not the URL of a proxy")
	}
	if u.Scheme != "http" {
		return nil, fmt.Errorf("a proxy by %s:// cannot be used, want http://", u.Scheme)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	p := &upstreamProxy{addr: net.JoinHostPort(u.Hostname(), port)}
	if u.User != nil {
		password, _ := u.User.Password()
		p.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password))
	}
	return p, nil
}

func parseNoProxy(e string) noProxy {
	if e == "*" {
		return noProxy{all: true}
	}
	if prefix, err := netip.ParsePrefix(e); err == nil {
		return noProxy{prefix: prefix.Masked()}
	}
	var n noProxy
	if host, port, err := net.SplitHostPort(e); err == nil {
		e, n.port = host, port
	}
	if a, err := netip.ParseAddr(strings.Trim(e, "[]")); err == nil {
		n.prefix = netip.PrefixFrom(a, a.BitLen())
		return n
	}
	n.name = strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(e, "*"), "."), ".")
	return n
}

// proxyFor returns the proxy for a connection, nil for none.
func (u *Upstream) proxyFor(v rules.Verdict, protocol string) *upstreamProxy {
	p := u.https
	if protocol == "http" || protocol == "websocket" {
		p = u.http
	}
	if p == nil || v.Local {
		return nil
	}
	for _, n := range u.noProxy {
		if n.matches(v) {
			return nil
		}
	}
	return p
}

func (n noProxy) matches(v rules.Verdict) bool {
	switch {
	case n.all:
		return true
	case n.port != "" && n.port != fmt.Sprint(v.Port):
		return false
	case n.prefix.IsValid():
		return v.Addr.IsValid() && n.prefix.Contains(v.Addr)
	}
	return v.Host == n.name || strings.HasSuffix(v.Host, "."+n.name)
}

// connect asks the proxy for a tunnel.
func (p *upstreamProxy) connect(ctx context.Context, c net.Conn, v rules.Verdict) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	target := hostPort(v)
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if p.auth != "" {
		request += "Proxy-Authorization: " + p.auth + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return &upstreamError{p.addr, err}
	}
	// Read byte by byte: what follows the head is the tunnel's.
	h, err := readHead(bufio.NewReader(byteReader{c}))
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return &upstreamError{p.addr, err}
	}
	version, status, _ := strings.Cut(h.line, " ")
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return &upstreamError{p.addr, errFirstLine}
	}
	if status != "200" && !strings.HasPrefix(status, "200 ") {
		return &upstreamError{p.addr, errors.New(status)}
	}
	return nil
}

// An upstreamError is what the host's own proxy, or the way to it, failed with.
type upstreamError struct {
	addr string
	err  error
}

func (e *upstreamError) Error() string { return "upstream proxy " + e.addr + ": " + e.err.Error() }
func (e *upstreamError) Unwrap() error { return e.err }

// A byteReader reads one byte at a time.
type byteReader struct{ r io.Reader }

func (b byteReader) Read(p []byte) (int, error) { return b.r.Read(p[:min(len(p), 1)]) }
