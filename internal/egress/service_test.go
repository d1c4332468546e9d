package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// log notes what is decided.
type log struct {
	mu     sync.Mutex
	events []netproxy.Event
}

func (l *log) note(e netproxy.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) has(is func(netproxy.Event) bool) func() bool {
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, e := range l.events {
			if is(e) {
				return true
			}
		}
		return false
	}
}

// greeter says hello to whoever connects to its port of this machine's loopback.
func greeter(t *testing.T) (port string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

func TestPlan(t *testing.T) {
	b := newBench(t)
	p, err := b.plan()
	require.NoError(t, err)
	require.Nil(t, p.Rules)
	require.Empty(t, p.Listen)
	require.NotContains(t, p.Environ, "HTTPS_PROXY=http://127.0.0.1:3128")
	b.sandbox.Learn = true
	p, err = b.plan()
	require.NoError(t, err)
	require.NotNil(t, p.Rules, "what is tried is to be learned")

	b.sandbox = Sandbox{Hostname: "sandbox", IPv6: true}
	b.request.Allow, b.request.Local = []string{"a.example"}, []string{"localhost:5432"}
	b.mine("HTTPS_PROXY=http://192.0.2.1:8080")
	b.environ = []string{"https_proxy=http://192.0.2.1:8080", "OPENAI_BASE_URL=https://b.example/v1", "CANARY=1"}
	b.request.Env = []string{"OPENAI_BASE_URL"}
	p, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, rules.Allow, p.Rules.Decide("a.example", 443).Action)
	require.Equal(t, rules.Deny, p.Rules.Decide("b.example", 443).Action)
	require.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:3128"), netip.MustParseAddrPort("127.0.0.1:5432"), netip.MustParseAddrPort("[::1]:5432")}, p.Listen)
	require.Contains(t, p.Environ, "HTTPS_PROXY=http://127.0.0.1:3128")
	require.NotContains(t, p.Environ, "CANARY=1")
	require.NotEqual(t, p.Environ, p.Uncaptured(p.Environ))
	require.Equal(t, []string{
		"connections go through the proxy 192.0.2.1:8080 of ~/.config/pccrun/environment",
		"OPENAI_BASE_URL names b.example:443, not allowed: --allow b.example opens it",
	}, p.Warnings)
	require.False(t, p.Inspects())
	require.Equal(t, []string{"A=1"}, p.Trusting([]string{"A=1"}))

	b.sandbox = Sandbox{Proxy: 41000}
	p, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:41000"), netip.MustParseAddrPort("127.0.0.1:5432")}, p.Listen)
	require.Contains(t, p.Environ, "HTTPS_PROXY=http://127.0.0.1:41000")

	b.environ, b.request.Env = []string{"https_proxy=http://192.0.2.2:8080", "HTTPS_PROXY=http://192.0.2.2:8080", "http_proxy=http://u:secret@192.0.2.2:8080", "NO_PROXY=*"}, nil
	p, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, []string{
		"https_proxy, HTTPS_PROXY, http_proxy, NO_PROXY of the environment does not count for what pccrun itself sends: the same line in ~/.config/pccrun/environment makes it count",
		"connections go through the proxy 192.0.2.1:8080 of ~/.config/pccrun/environment",
	}, p.Warnings)
	b.mine("")
	p, err = b.plan()
	require.NoError(t, err)
	require.Empty(t, p.upstream.Addresses(), "a proxy of the environment")
	b.request.Local, b.request.Publish = []string{"5432", "53", "41000", "3000", "localhost:8000"}, []string{"8080:3000", "8000"}
	p, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:41000"), netip.MustParseAddrPort("127.0.0.1:5432"), netip.MustParseAddrPort("127.0.0.1:8000")}, p.Listen,
		"but for ports that are another's, unless the rule insists")
	b.request.Publish = nil

	b.environ, b.request.Env = []string{"ALL_PROXY=socks5://192.0.2.1:1080"}, nil
	p, err = b.plan()
	require.NoError(t, err)
	require.Len(t, p.Warnings, 1)
	require.Contains(t, p.Warnings[0], "ALL_PROXY is ignored")
	b.mine("HTTPS_PROXY=:")
	_, err = b.plan()
	require.ErrorContains(t, err, "~/.config/pccrun/environment: HTTPS_PROXY: ")
}

// TestStreams serves connections that no listener of this machine has accepted.
func TestStreams(t *testing.T) {
	port := greeter(t)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	b := newBench(t)
	b.request.Local = []string{"localhost:" + port}
	p, err := b.plan()
	require.NoError(t, err)
	var seen log
	s, err := p.Open(seen.note)
	require.NoError(t, err)
	defer s.Close()
	s.Begin(nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var listeners []net.Listener
	for _, at := range p.Listen {
		listeners = append(listeners, NewStreams(at))
	}
	require.Equal(t, "127.0.0.1:"+port, listeners[1].Addr().String())
	require.Equal(t, "stream", listeners[1].Addr().Network())
	s.Listeners(ctx, listeners)

	ours, theirs := net.Pipe()
	require.NoError(t, listeners[1].(*Streams).Hand(ctx, theirs))
	text, err := io.ReadAll(ours)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	await.Until(t, "it is told", seen.has(func(e netproxy.Event) bool { return e.Kind == netproxy.Closed && e.Verdict.Port == uint16(number) }))

	for host, want := range map[string]int{"localhost:" + port: http.StatusOK, "localhost:9": http.StatusForbidden, "b.example:443": http.StatusForbidden} {
		ours, theirs := net.Pipe()
		require.NoError(t, listeners[0].(*Streams).Hand(ctx, theirs))
		go io.WriteString(ours, "CONNECT "+host+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		from := bufio.NewReader(ours)
		answer, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
		require.NoError(t, err)
		require.Equal(t, want, answer.StatusCode, host)
		if want == http.StatusOK {
			text, err := io.ReadAll(from)
			require.NoError(t, err)
			require.Equal(t, "hello", string(text), "the tunnel carries what comes")
		}
		ours.Close()
	}
	s.Refused("tcp", netip.MustParseAddrPort("192.0.2.1:80"))
	await.Until(t, "it is told", seen.has(func(e netproxy.Event) bool { return e.Kind == netproxy.Denied && e.Verdict.Host == "192.0.2.1" }))

	listeners[0].Close()
	_, theirs = net.Pipe()
	require.ErrorIs(t, listeners[0].(*Streams).Hand(ctx, theirs), net.ErrClosed)
	cancel()
	_, theirs = net.Pipe()
	require.Error(t, NewStreams(p.Listen[0]).Hand(ctx, theirs))
}

// TestQuestions answers names, and tells of those that are denied, with and without a network.
func TestQuestions(t *testing.T) {
	query := []byte("\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01b\x07example\x00\x00\x01\x00\x01")
	for _, allow := range [][]string{nil, {"a.example"}} {
		b := newBench(t)
		b.request.Allow = allow
		p, err := b.plan()
		require.NoError(t, err)
		var seen log
		s, err := p.Open(seen.note)
		require.NoError(t, err)
		s.Begin(netproxy.NewNames(netip.MustParsePrefix("198.18.0.0/15"), netip.Prefix{}))
		server, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		s.Questions(t.Context(), server)
		c, err := net.Dial("udp", server.LocalAddr().String())
		require.NoError(t, err)
		_, err = c.Write(query)
		require.NoError(t, err)
		answer := make([]byte, 512)
		n, err := c.Read(answer)
		require.NoError(t, err)
		require.Greater(t, n, 12)
		require.EqualValues(t, 3, answer[3]&0xf, "no such name")
		await.Until(t, "it is told", seen.has(func(e netproxy.Event) bool { return e.Kind == netproxy.Denied && e.Verdict.Host == "b.example" }))
		s.Close()
		server.Close()
		c.Close()
	}
}

func TestPublished(t *testing.T) {
	inside := greeter(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	outside := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	b := newBench(t)
	b.request.Publish = []string{outside + ":" + inside}
	p, err := b.plan()
	require.NoError(t, err)
	_, err = p.Open(func(netproxy.Event) {})
	var told *profiles.Error
	require.ErrorAs(t, err, &told, "the port is taken")
	require.Equal(t, "--publish FREE:"+inside+" uses a free port of this machine", told.Hint)
	free.Close()
	var seen log
	s, err := p.Open(seen.note)
	require.NoError(t, err)
	s.Published(t.Context(), func(port uint16) (net.Conn, error) {
		return net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	})
	c, err := net.Dial("tcp", "127.0.0.1:"+outside)
	require.NoError(t, err)
	text, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	s.Close()
	_, err = net.Dial("tcp", "127.0.0.1:"+outside)
	require.Error(t, err, "given back")
}

// server is a TLS server at an address of this machine that is not its loopback, and the
// file of its certificate. It says what it was asked.
func server(t *testing.T) (hostPort, ca string) {
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP.To4()
		if ip == nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		ca = filepath.Join(t.TempDir(), "ca.pem")
		der, key := writeCertificate(t, ca, &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{ip},
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		})
		ln, err := tls.Listen("tcp", net.JoinHostPort(ip.String(), "0"), &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
		require.NoError(t, err)
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.Header.Get("X-Key"))
		})}
		go srv.Serve(ln)
		t.Cleanup(func() { srv.Close() })
		return ln.Addr().String(), ca
	}
	t.Skip("needs an address that is not loopback's")
	return "", ""
}

// writeCertificate writes what a template says, signed with its own key.
func writeCertificate(t *testing.T, path string, template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	return der, key
}

// TestEndpoints names servers that an agent would be sent to, and cannot reach.
func TestEndpoints(t *testing.T) {
	for entry, want := range map[string][]string{
		"ANTHROPIC_BASE_URL=https://b.example":      {"ANTHROPIC_BASE_URL names b.example:443, not allowed: --allow b.example opens it"},
		"ANTHROPIC_BASE_URL=http://b.example":       {"ANTHROPIC_BASE_URL names b.example:80, not allowed: --allow b.example opens it"},
		"ANTHROPIC_BASE_URL=https://denied.example": {"ANTHROPIC_BASE_URL names denied.example:443, which denied.example denies"},
		"OLLAMA_HOST=0.0.0.0":                       {"OLLAMA_HOST names 127.0.0.1:11434, not allowed: --local localhost:11434 opens it"},
		"ANTHROPIC_BASE_URL=https://a.example":      nil, // the control: it is reached
		"ANTHROPIC_BASE_URL=a.example":              nil, // no URL
	} {
		b := newBench(t)
		b.environ, b.request.Env = []string{entry}, []string{entry[:strings.IndexByte(entry, '=')]}
		b.request.Allow, b.request.Deny = []string{"a.example"}, []string{"denied.example"}
		p, err := b.plan()
		require.NoError(t, err)
		require.Equal(t, want, p.Warnings, entry)
	}
	b := newBench(t)
	b.request.Profile, b.environ = "claude", []string{"ANTHROPIC_BEDROCK_BASE_URL=https://api.anthropic.com", "OPENAI_API_BASE=https://b.example"}
	p, err := b.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"ANTHROPIC_BEDROCK_BASE_URL names api.anthropic.com:443, and is not passed: --env ANTHROPIC_BEDROCK_BASE_URL passes it"}, p.Warnings)
}

// TestServersOfSettings names servers of this machine that an agent's own settings name, where that agent runs.
func TestServersOfSettings(t *testing.T) {
	for text, want := range map[string]string{
		"model_provider = 'lm'\n[model_providers.lm]\nbase_url = 'http://localhost:1234/v1'":                                                     "localhost:1234",
		"[model_providers.lm]\nbase_url = 'http://127.0.0.1:1234/v1'\n[model_providers.x]\nbase_url = 'http://127.0.0.1:1234/v1'":                "127.0.0.1:1234",
		"model_provider = 'x'\n[model_providers.lm]\nbase_url = 'http://localhost:1234/v1'\n[model_providers.x]\nbase_url = 'https://x.example'": "",
		"model_provider = 'lm'\n[model_providers.lm]\nbase_url = 'http://localhost:5432'":                                                        "", // the control: it is reached
		"openai_base_url = 'http://localhost:1234'\nnotify = ['base_url']":                                                                       "localhost:1234",
		"[mcp_servers.a]\nurl = 'http://localhost:1234'":                                                                                         "",
		"[": "",
	} {
		for _, profile := range []string{"codex", "default"} {
			b := newBench(t)
			require.NoError(t, os.Mkdir(filepath.Join(b.home, ".codex"), 0o700))
			config := filepath.Join(b.home, ".codex/config.toml")
			require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
			b.request.Profile, b.request.Local = profile, []string{"localhost:5432"}
			p, err := b.plan()
			require.NoError(t, err)
			if want == "" || profile == "default" {
				require.Empty(t, p.Warnings, text)
			} else {
				require.Equal(t, []string{config + " names " + want + ", not allowed: --local localhost:1234 opens it"}, p.Warnings)
			}
		}
	}
	b := newBench(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.home, ".config/opencode"), 0o700))
	config := filepath.Join(b.home, ".config/opencode/opencode.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"model": "lm/a", "provider": {"lm": {"options": {"baseURL": "http://localhost:1234/v1"}}, "x": {"options": {"baseURL": "http://localhost:1235/v1"}}}}`), 0o600))
	b.request.Profile = "opencode"
	p, err := b.plan()
	require.NoError(t, err)
	require.Equal(t, []string{config + " names localhost:1234, not allowed: --local localhost:1234 opens it"}, p.Warnings)
}

// TestTrustDirectory trusts what a directory has that a variable names, and nothing of a project.
func TestTrustDirectory(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Mkdir(filepath.Join(b.home, "certs"), 0o755))
	require.NoError(t, os.Chmod(filepath.Join(b.home, "certs"), 0o775)) // not root's alone, whoever is asking
	b.write("certs/one.pem", "")
	b.write("work/two.pem", "")
	require.NoError(t, os.Symlink(filepath.Join(b.workspace, "two.pem"), filepath.Join(b.home, "certs/two.pem")))
	b.environ = []string{"SSL_CERT_DIR=/etc/ssl/certs:" + filepath.Join(b.home, "certs")}
	b.request.Allow, b.request.Deny = []string{"GET https://a.example/x"}, []string{"@github"}
	p, err := b.plan()
	require.NoError(t, err)
	require.Empty(t, p.reader.setup.Certificates, "of the environment")
	line, file, _ := strings.Cut(strings.Join(p.Warnings, "\n"), " in ~/")
	file, _, _ = strings.Cut(file, " makes it count")
	require.Equal(t, outgoing.File, file)
	_, line, _ = strings.Cut(line, "itself sends: ")
	b.mine(line)
	p, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(b.home, "certs/one.pem")}, p.reader.setup.Certificates)
	require.Contains(t, p.Trusting(nil), nodeTrust+"="+bundlePath)
	b.request.Allow = nil
	p, err = b.plan()
	require.NoError(t, err, "a group that is denied")
	require.Nil(t, p.Rules)
}
