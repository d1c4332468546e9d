package inspect

import (
	"bufio"
	"compress/gzip"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

var hello200 = func(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Auth", r.Header.Get("Authorization"))
	io.WriteString(w, r.Method+" "+r.Host+" "+r.RequestURI+" auth="+r.Header.Get("Authorization"))
}

func TestRequests(t *testing.T) {
	f := start(t, "GET,HEAD https://git.example.com/acme/**", "POST https://git.example.com/acme/up", "deny https://git.example.com/acme/secrets/**", "https://other.example.com/x")
	f.host("git.example.com", hello200)
	f.both(func(t *testing.T, c *http.Client) {
		for _, r := range []struct {
			method, path string
			status       int
		}{
			{"GET", "/acme/x?q=/../y", 200}, {"HEAD", "/acme/x", 200}, {"POST", "/acme/up", 200}, {"POST", "/acme/x", 403}, {"GET", "/other/x", 403},
			{"GET", "/acme/secrets/k", 403}, {"GET", "/acme/Secrets/k", 403}, {"GET", "/acme/%2e%2e/other", 400}, {"GET", "/acme/@a%2fb", 200}, {"DELETE", "/acme/x", 403},
		} {
			resp, body := do(t, c, r.method, "https://git.example.com"+r.path, nil)
			require.Equal(t, r.status, resp.StatusCode, "%s %s: %s", r.method, r.path, body)
			require.Contains(t, t.Name(), resp.Proto)
		}
		resp, body := do(t, c, "GET", "https://git.example.com/acme/x%20y?q=1", nil)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "GET git.example.com /acme/x%20y?q=1 auth=", body)

		_, body = do(t, c, "POST", "https://git.example.com/acme/x", nil)
		var denied map[string]string
		require.NoError(t, json.Unmarshal([]byte(body), &denied), body)
		require.Equal(t, "denied", denied["error"])
		require.Equal(t, "git.example.com", denied["host"])
		require.Equal(t, "--allow 'POST https://git.example.com/acme/x'", denied["allow_with"])
		_, body = do(t, c, "GET", "https://git.example.com/acme/secrets/k", nil, "User-Agent", "curl/8.0")
		require.Contains(t, body, `pccrun: error="denied" host="git.example.com"`)
		require.Contains(t, body, `rule="deny https://git.example.com/acme/secrets/**"`)
	})
	require.Contains(t, f.told(), decision{f.set.DecideRequest("git.example.com", 443, rules.Request{Scheme: "https", Host: "git.example.com", Method: "GET", Path: "/acme/x"}), "GET https://git.example.com/acme/x", nil})
	require.Equal(t, []string{"git.example.com:443"}, slices.Compact(f.dials()))
}

// TestTraps holds what a proxy would do if it were let: follow the request's own idea of
// where it goes.
func TestTraps(t *testing.T) {
	f := start(t, "api.example.com", "GET https://evil.example.com/**")
	f.host("api.example.com", hello200)
	evil := 0
	f.host("evil.example.com", func(http.ResponseWriter, *http.Request) { evil++ })
	const auth = "Authorization: Bearer " + placeholder + "\n\n"
	for _, c := range []struct {
		request string
		status  int
	}{
		{"GET / HTTP/1.1\nHost: api.example.com\n" + auth, 200}, // the control
		{"GET / HTTP/1.1\nHost: evil.example.com\n" + auth, 421},
		{"GET / HTTP/1.1\nHost: api.example.com:8443\n" + auth, 421},
		{"GET https://evil.example.com/ HTTP/1.1\nHost: evil.example.com\n" + auth, 400},
		{"GET https://evil.example.com/ HTTP/1.1\nHost: api.example.com\n" + auth, 400},
		{"GET https://api.example.com/ HTTP/1.1\nHost: api.example.com\n" + auth, 400},
		{"CONNECT evil.example.com:443 HTTP/1.1\nHost: evil.example.com\n" + auth, 405},
		{"CONNECT api.example.com:443 HTTP/1.1\nHost: api.example.com\n" + auth, 405},
		{"GET / HTTP/1.1\nHost: api.example.com\nHost: evil.example.com\n" + auth, 400},
		{"GET //evil.example.com/x HTTP/1.1\nHost: api.example.com\n" + auth, 200}, // a path, however odd
		{"GET @evil.example.com/x HTTP/1.1\nHost: api.example.com\n" + auth, 400},
		{"GET / HTTP/1.1\nHost: api.example.com@evil.example.com\n" + auth, 400},
		{"GET / HTTP/1.1\nHost: \n" + auth, 421},
		{"OPTIONS * HTTP/1.1\nHost: api.example.com\n" + auth, 400},
		{"GET * HTTP/1.1\nHost: api.example.com\n" + auth, 400},
	} {
		resp, body := f.raw("api.example.com", c.request)
		require.Equal(t, c.status, resp.StatusCode, "%s: %s", c.request, body)
		if c.status == 200 {
			require.Contains(t, body, "api.example.com", c.request)
		}
		require.NotContains(t, body, secret)
	}
	require.Zero(t, evil)
	require.Equal(t, []string{"api.example.com:443"}, slices.Compact(f.dials()))

	resp, _ := do(t, f.client(true), "GET", "https://api.example.com/", nil, "Host", "evil.example.com", "Authorization", "Bearer "+placeholder)
	require.Equal(t, 421, resp.StatusCode, "the :authority of HTTP/2")
	require.Zero(t, evil)

	// What did not come by way of our own handler goes nowhere.
	for method, status := range map[string]int{"GET": 421, "CONNECT": 403} {
		w := httptest.NewRecorder()
		f.proxy.ServeHTTP(w, httptest.NewRequest(method, "https://evil.example.com/", nil))
		require.Equal(t, status, w.Code, method)
		require.Zero(t, evil)
	}
}

// TestEnvironmentIsIgnored: Go's client takes proxies from it by default.
func TestEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", hello200)
	resp, _ := do(t, f.client(false), "GET", "https://git.example.com/", nil)
	require.Equal(t, 200, resp.StatusCode)
	require.Nil(t, f.either.Proxy)
	require.False(t, f.either.TLSClientConfig.InsecureSkipVerify)
	require.False(t, f.plain.TLSClientConfig.InsecureSkipVerify)
}

func TestCertificates(t *testing.T) {
	f, g := start(t, "GET https://git.example.com/**", "GET https://140.82.112.3/**"), start(t, "GET https://git.example.com/**")
	require.NotEqual(t, f.Authority(), g.Authority(), "one for each session")
	c := f.secure("git.example.com", "h2")
	leaf := c.ConnectionState().PeerCertificates[0]
	require.Equal(t, []string{"git.example.com"}, leaf.DNSNames)
	require.Less(t, time.Until(leaf.NotAfter), 25*time.Hour)
	require.Greater(t, leaf.SerialNumber.BitLen(), 64)
	require.True(t, f.ca.cert.IsCA)
	require.True(t, f.ca.cert.MaxPathLenZero)
	_, err := leaf.Verify(x509.VerifyOptions{Roots: g.trust})
	require.Error(t, err)

	literal := tls.Client(f.connect("140.82.112.3", 443, ""), &tls.Config{ServerName: "140.82.112.3", RootCAs: f.trust})
	require.NoError(t, literal.Handshake(), "an address is asked for without a name")

	a, err := f.ca.certificate("x.example")
	require.NoError(t, err)
	b, err := f.ca.certificate("x.example")
	require.NoError(t, err)
	require.Same(t, a, b)
	a.Leaf.NotAfter = time.Now().Add(30 * time.Minute)
	b, err = f.ca.certificate("x.example")
	require.NoError(t, err)
	require.NotSame(t, a, b, "made again in time")
}

func TestServerName(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", hello200)
	for name, want := range map[string]string{"git.example.com": "", "evil.example.com": "unrecognized name", "example.com": "unrecognized name", "": ""} {
		c := tls.Client(f.connect("git.example.com", 443, ""), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		err := c.Handshake()
		if want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, want, name)
		last := f.told()[len(f.told())-1]
		require.Equal(t, rules.BadMatch, last.verdict.Reason)
	}
	require.Empty(t, f.dials())
}

// TestEncryptedHello: an encrypted greeting is not for us. The name outside has to be
// the host's, and then the connection stands: a client that meant it (as Go's does) is
// told that nobody has its key, and one that only pads with it goes on.
func TestEncryptedHello(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", hello200)
	for outer, stands := range map[string]bool{"git.example.com": true, "evil.example.com": false} {
		err := tls.Client(f.connect("git.example.com", 443, ""), &tls.Config{
			ServerName: "hidden.example.com", RootCAs: f.trust, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(t, outer),
		}).Handshake()
		var rejected *tls.ECHRejectionError
		require.Equal(t, stands, errors.As(err, &rejected), "%s: %v", outer, err)
		if !stands {
			require.ErrorContains(t, err, "unrecognized name")
		}
	}
	require.Empty(t, f.dials())
}

// echConfig is a list of one key for encrypted greetings, of a server whose name
// outside is this (RFC 9849, section 4).
func echConfig(t *testing.T, outer string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	sized := func(b ...byte) []byte { return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...) }
	content := append([]byte{7, 0, 0x20}, sized(key.PublicKey().Bytes()...)...) // X25519
	content = append(content, sized(0, 1, 0, 1)...)                             // HKDF-SHA256, AES-128-GCM
	content = append(append(content, 0, byte(len(outer))), outer...)
	content = append(content, 0, 0)
	return sized(append([]byte{0xfe, 0x0d}, sized(content...)...)...)
}

// TestUntrustedHost: no secret leaves for a host that is not who it should be.
func TestUntrustedHost(t *testing.T) {
	f := start(t, "api.example.com")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request came") }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	f.routes["api.example.com:443"] = srv.Listener.Addr().String()
	resp, body := do(t, f.client(false), "GET", "https://api.example.com/", nil, "Authorization", "Bearer "+placeholder)
	require.Equal(t, 502, resp.StatusCode)
	require.NotContains(t, body, secret)
	require.NotContains(t, body, srv.Listener.Addr().String())
	require.ErrorContains(t, f.told()[len(f.told())-1].err, "certificate")
}

func TestUnreachable(t *testing.T) {
	f := start(t, "GET https://git.example.com/**", "GET https://inner.example.com/**")
	f.routes["inner.example.com:443"] = "guarded"
	resp, body := do(t, f.client(false), "GET", "https://git.example.com/", nil)
	require.Equal(t, 502, resp.StatusCode)
	require.NotContains(t, body, "10.9.8.7", "addresses are not for the sandbox")
	resp, body = do(t, f.client(true), "GET", "https://inner.example.com/", nil)
	require.Equal(t, 403, resp.StatusCode)
	require.Contains(t, body, "resolved-address")
}

// TestPipelined: what comes with the CONNECT is not lost, and a ClientHello may.
func TestPipelined(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", hello200)
	addr := f.behind()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	c.SetDeadline(await.Deadline())
	_, err = io.WriteString(c, "CONNECT git.example.com:443 HTTP/1.1\r\nHost: git.example.com:443\r\n\r\n"+hello(t, "git.example.com"))
	require.NoError(t, err)
	br := bufio.NewReader(c)
	line, err := br.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "200")
	_, err = br.ReadString('\n')
	require.NoError(t, err)
	record, err := br.ReadByte()
	require.NoError(t, err)
	require.Equal(t, byte(recordHandshake), record, "the server's greeting")
}

// TestProxy goes all the way: CONNECT, inspection, and a request for http in
// absolute form, which needs none.
func TestProxy(t *testing.T) {
	f := start(t, "GET https://git.example.com/ok/**", "GET http://plain.example.com/ok/**")
	f.host("git.example.com", hello200)
	addr := f.behind()
	client := &http.Client{Transport: &http.Transport{
		Proxy:           http.ProxyURL(mustURL("http://" + addr)),
		TLSClientConfig: &tls.Config{RootCAs: f.trust}, ForceAttemptHTTP2: true,
	}}
	defer client.CloseIdleConnections()
	resp, body := do(t, client, "GET", "https://git.example.com/ok/x", nil)
	require.Equal(t, 200, resp.StatusCode, body)
	resp, _ = do(t, client, "GET", "https://git.example.com/no", nil)
	require.Equal(t, 403, resp.StatusCode)
	resp, body = do(t, client, "POST", "http://plain.example.com/ok/x", nil)
	require.Equal(t, 403, resp.StatusCode)
	require.Contains(t, body, "POST http://plain.example.com/ok/x")
	resp, _ = do(t, client, "GET", "http://plain.example.com/no", nil)
	require.Equal(t, 403, resp.StatusCode)
	resp, _ = do(t, client, "GET", "http://plain.example.com/ok/x", nil)
	require.Equal(t, 502, resp.StatusCode, "allowed; nobody is there")
}

// TestPlainInTunnel: TLS or not is the client's choice, and part of the rule.
func TestPlainInTunnel(t *testing.T) {
	f := start(t, "GET http://git.example.com/**", "api.example.com")
	srv := httptest.NewServer(http.HandlerFunc(hello200))
	t.Cleanup(srv.Close)
	f.routes["git.example.com:80"] = srv.Listener.Addr().String()
	f.routes["api.example.com:443"] = srv.Listener.Addr().String()
	c := f.connect("git.example.com", 80, "GET /x HTTP/1.1\r\nHost: git.")
	io.WriteString(c, "example.com\r\n\r\n")
	resp, body := readResponse(t, bufio.NewReader(c), false)
	require.Equal(t, 200, resp.StatusCode)
	require.Contains(t, body, "GET git.example.com /x")
	c = f.connect("api.example.com", 443, "")
	io.WriteString(c, "GET /x HTTP/1.1\r\nHost: api.example.com:443\r\nAuthorization: Bearer "+placeholder+"\r\n\r\n")
	resp, body = readResponse(t, bufio.NewReader(c), false)
	require.Equal(t, 200, resp.StatusCode, body)
	require.Contains(t, body, placeholder, "no secret goes out in the clear")
}

func TestRewritingFields(t *testing.T) {
	f := start(t, "GET https://git.example.com/**", "api.example.com")
	f.host("git.example.com", hello200)
	f.host("api.example.com", hello200)
	for _, name := range []string{"X-HTTP-Method-Override", "X-Original-URL", "X_Http_Method_Override", "x-rewrite-url", "Forwarded", "X-Http-Host-Override", "Destination", "X-Goog-Copy-Source", "X-Ms-Rename-Source", "X-Copy-From"} {
		resp, body := do(t, f.client(false), "GET", "https://git.example.com/x", nil, name, "/admin")
		require.Equal(t, 400, resp.StatusCode, name)
		require.Contains(t, body, "another request")
		resp, _ = do(t, f.client(false), "GET", "https://api.example.com/x", nil, name, "/admin")
		require.Equal(t, 200, resp.StatusCode, "where no rule tells requests apart it does not matter")
	}
}

// TestSmuggling: a request framed in two ways is one request, or none.
func TestSmuggling(t *testing.T) {
	f := start(t, "GET,POST https://git.example.com/ok")
	var paths []string
	f.host("git.example.com", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		paths = append(paths, r.URL.Path)
	})
	for _, request := range []string{
		"POST /ok HTTP/1.1\nHost: git.example.com\nContent-Length: 5\n\n01234", // the controls
		"POST /ok HTTP/1.1\nHost: git.example.com\nTransfer-Encoding: chunked\n\n0\n\n",
	} {
		resp, _ := f.raw("git.example.com", request)
		require.Equal(t, 200, resp.StatusCode)
	}
	require.Equal(t, []string{"/ok", "/ok"}, paths)
	for _, request := range []string{
		"POST /ok HTTP/1.1\nHost: git.example.com\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n\nGET /evil HTTP/1.1\nHost: git.example.com\n\n",
		"POST /ok HTTP/1.1\nHost: git.example.com\nContent-Length: 5\nContent-Length: 6\n\n012345",
		"POST /ok HTTP/1.1\nHost: git.example.com\nTransfer-Encoding: xchunked\n\n0\n\n",
		"POST /ok HTTP/1.1\nHost: git.example.com\nTransfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n",
		"POST /ok HTTP/1.1\nHost: git.example.com\nContent-Length: +5\n\n01234",
		"GET /ok HTTP/1.1\nHost: git.example.com\nX: a\x00b\n\n",
		"GET /ok HTTP/1.1\nHost: git.example.com\nX Y: ab\n\n",
		"GET /ok HTTP/1.1\nHost: git.example.com\nX: " + strings.Repeat("a", 100<<10) + "\n\n",
	} {
		f.raw("git.example.com", request)
	}
	for _, p := range paths {
		require.Equal(t, "/ok", p)
	}
}

// TestStoredSecret has a host keep what it was sent and hand it out in parts.
func TestStoredSecret(t *testing.T) {
	f := start(t, "api.example.com", "GET https://git.example.com/**")
	var stored atomic.Pointer[string]
	serve := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/keep":
			key := r.Header.Get("X-Api-Key")
			stored.Store(&key)
		case "/kept":
			http.ServeContent(w, r, "kept", time.Time{}, strings.NewReader(*stored.Load()))
		case "/part": // unasked
			w.WriteHeader(http.StatusPartialContent)
			io.WriteString(w, (*stored.Load())[:8])
		}
	}
	f.host("api.example.com", serve)
	f.host("git.example.com", serve)
	for _, two := range []bool{false, true} {
		c := f.client(two)
		do(t, c, "GET", "https://api.example.com/keep", nil, "X-Api-Key", placeholder)
		require.Equal(t, secret, *stored.Load())
		for _, field := range []string{"Range", "Request-Range", "X-Range", "X-Ms-Range"} {
			resp, body := do(t, c, "GET", "https://api.example.com/kept", nil, field, "bytes=0-7")
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, placeholder, body, "all of it, without the secret")
		}
		resp, body := do(t, c, "GET", "https://api.example.com/part", nil)
		require.Equal(t, 502, resp.StatusCode)
		require.NotContains(t, body, secret[:8])
		resp, body = do(t, c, "GET", "https://git.example.com/kept", nil, "Range", "bytes=0-7")
		require.Equal(t, 206, resp.StatusCode, "the control: a host that knows no secret is asked as the client asks")
		require.Equal(t, secret[:8], body)
	}
}

func TestHopByHop(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	var got http.Header
	f.host("git.example.com", func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	f.raw("git.example.com", "GET / HTTP/1.1\nHost: git.example.com\nConnection: keep-alive, X-Drop\nX-Drop: 1\nUpgrade: h2c\nHTTP2-Settings: x\nProxy-Authorization: y\nTE: trailers, gzip\nAccept-Encoding: br\nX-Keep: 1\n\n")
	require.Equal(t, "1", got.Get("X-Keep"))
	require.Equal(t, "br", got.Get("Accept-Encoding"), "kept as the client has it")
	require.Equal(t, "trailers", got.Get("Te"))
	for _, name := range []string{"X-Drop", "Upgrade", "Http2-Settings", "Proxy-Authorization", "Connection"} {
		require.Empty(t, got[name], name)
	}
}

func TestRedirect(t *testing.T) {
	f := start(t, "api.example.com", "GET https://evil.example.com/**")
	f.host("api.example.com", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://evil.example.com/?k="+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), http.StatusFound)
	})
	f.host("evil.example.com", func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	resp, _ := do(t, f.client(true), "GET", "https://api.example.com/", nil, "Authorization", "Bearer "+placeholder)
	require.Equal(t, 302, resp.StatusCode)
	require.Equal(t, "https://evil.example.com/?k="+placeholder, resp.Header.Get("Location"))
}

// TestSecret holds that the secret reaches its host, and nothing else.
func TestSecret(t *testing.T) {
	f := start(t, "api.example.com", "GET https://other.example.com/**")
	var got http.Header
	var query string
	answer := func(w http.ResponseWriter, r *http.Request) {
		got, query = r.Header, r.URL.RawQuery
		w.Header().Set("X-Echo", r.Header.Get("X-Api-Key"))
		w.Header().Set("Alt-Svc", `h3=":443"`)
		w.Header().Set("Trailer", "X-Tail")
		text := r.Header.Get("X-Api-Key") + "|" + r.Header.Get("Authorization") + "|" + r.URL.RawQuery + "|" + base64.StdEncoding.EncodeToString([]byte("a"+r.Header.Get("X-Api-Key")))
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, text)
			z.Close()
		case "/br":
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, text)
		case "/pieces":
			for i := range len(text) {
				io.WriteString(w, text[i:i+1])
				w.(http.Flusher).Flush()
			}
		default:
			io.WriteString(w, text)
		}
		w.Header().Set("X-Tail", r.Header.Get("X-Api-Key"))
	}
	f.host("api.example.com", answer)
	f.host("other.example.com", answer)
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + placeholder))
	f.both(func(t *testing.T, c *http.Client) {
		for _, path := range []string{"/", "/gzip", "/pieces"} {
			resp, body := do(t, c, "GET", "https://api.example.com"+path+"?key="+placeholder, nil, "X-Api-Key", placeholder, "Authorization", "Basic "+basic, "Range", "bytes=0-3", "Accept-Encoding", "br, gzip")
			require.Equal(t, 200, resp.StatusCode, body)
			require.Equal(t, secret, got.Get("X-Api-Key"))
			require.Equal(t, "key="+secret, query)
			require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+secret)), got.Get("Authorization"))
			require.Equal(t, "identity", got.Get("Accept-Encoding"))
			require.Empty(t, got.Get("Range"), "half of a secret in each piece")
			all := body
			for name, values := range resp.Header {
				all += name + strings.Join(values, " ")
			}
			for _, values := range resp.Trailer {
				all += strings.Join(values, " ")
			}
			require.NotContains(t, all, secret)
			require.NotContains(t, all, base64.StdEncoding.EncodeToString([]byte("user:"+secret)))
			decoded, _ := base64.StdEncoding.DecodeString(body[strings.LastIndex(body, "|")+1:])
			require.NotContains(t, string(decoded), secret[4:24])
			if path != "/pieces" { // there the part in base64 is seen first, and a busy machine makes pauses
				require.Contains(t, body, placeholder)
				require.Contains(t, body, basic)
			}
			require.Contains(t, body, placeholder[16:])
			require.Equal(t, placeholder, resp.Header.Get("X-Echo"))
			require.Equal(t, placeholder, resp.Trailer.Get("X-Tail"))
			require.Empty(t, resp.Header.Get("Alt-Svc"))
		}
		resp, body := do(t, c, "GET", "https://api.example.com/br", nil, "X-Api-Key", placeholder)
		require.Equal(t, 502, resp.StatusCode)
		require.NotContains(t, body, secret)

		resp, _ = do(t, c, "GET", "https://other.example.com/", nil, "X-Api-Key", placeholder)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, placeholder, got.Get("X-Api-Key"), "not a host of the secret's")
	})
	for _, d := range f.told() {
		require.NotContains(t, d.request, placeholder)
		require.NotContains(t, d.request, secret)
	}
}

// TestLength: a program that shows progress still sees the length.
func TestLength(t *testing.T) {
	f := start(t, "api.example.com")
	f.host("api.example.com", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, strings.Repeat("x", 100))
	})
	f.both(func(t *testing.T, c *http.Client) {
		for _, method := range []string{"GET", "HEAD"} {
			resp, _ := do(t, c, method, "https://api.example.com/", nil)
			require.Equal(t, int64(100), resp.ContentLength, method)
		}
	})
}

// TestStreams: what a host sends arrives as it is sent, in both directions.
func TestStreams(t *testing.T) {
	f := start(t, "api.example.com", "POST https://git.example.com/**")
	for _, host := range []string{"api.example.com", "git.example.com"} {
		f.host(host, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			w.Header().Set("Trailer", "Grpc-Status")
			http.NewResponseController(w).EnableFullDuplex()
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			br := bufio.NewReader(r.Body)
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					break
				}
				io.WriteString(w, "echo "+line)
				w.(http.Flusher).Flush()
			}
			w.Header().Set("Grpc-Status", "0")
		})
		for _, kind := range []string{"text/event-stream", "application/x-ndjson", "application/grpc", "application/vnd.amazon.eventstream"} {
			f.both(func(t *testing.T, c *http.Client) {
				in, out := io.Pipe()
				r, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+host+"/stream", in)
				require.NoError(t, err)
				r.Header.Set("Accept", kind)
				r.Header.Set("TE", "trailers")
				resp, err := c.Do(r)
				require.NoError(t, err)
				defer resp.Body.Close()
				br := bufio.NewReader(resp.Body)
				for _, line := range []string{"one\n", "two\n", "three\n"} {
					_, err := io.WriteString(out, line)
					require.NoError(t, err)
					got, err := br.ReadString('\n')
					require.NoError(t, err)
					require.Equal(t, "echo "+line, got, "answered before the request is over")
				}
				out.Close()
				_, err = br.ReadByte()
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, "0", resp.Trailer.Get("Grpc-Status"))
			})
		}
	}
}

func TestLargeBody(t *testing.T) {
	f := start(t, "POST https://git.example.com/**")
	f.host("git.example.com", func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})
	f.both(func(t *testing.T, c *http.Client) {
		const size = 16 << 20
		resp, err := c.Post("https://git.example.com/x", "x/y", io.LimitReader(zeros{}, size))
		require.NoError(t, err)
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// TestWebsocket: with the first frame in the packet of the request.
func TestWebsocket(t *testing.T) {
	f := start(t, "GET https://git.example.com/ws")
	f.host("git.example.com", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			w.WriteHeader(400)
			return
		}
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		io.Copy(c, rw)
	})
	c := f.secure("git.example.com")
	io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: git.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, &http.Request{Method: "GET"})
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	got := make([]byte, 5)
	_, err = io.ReadFull(br, got)
	require.NoError(t, err)
	require.Equal(t, "first", string(got))
	io.WriteString(c, "again")
	_, err = io.ReadFull(br, got)
	require.NoError(t, err)
	require.Equal(t, "again", string(got))
	resp, _ = f.raw("git.example.com", "GET /other HTTP/1.1\nHost: git.example.com\nConnection: Upgrade\nUpgrade: websocket\n\n")
	require.Equal(t, 403, resp.StatusCode)
}

// TestUnaskedSwitch: what follows a 101 that nobody asked for would be read by
// nobody.
func TestUnaskedSwitch(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nmore")
			c.Close()
		}
	})
	resp, _ := f.raw("git.example.com", "GET / HTTP/1.1\nHost: git.example.com\n\n")
	require.Equal(t, 502, resp.StatusCode)
}

// FuzzRequest: whatever a client sends, nothing is dialled but the host of its
// connection, and nothing arrives there that the rules do not allow.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET /ok/x HTTP/1.1\r\nHost: git.example.com\r\n\r\n", "GET http://evil.example.com/ok/x HTTP/1.1\r\nHost: git.example.com\r\n\r\n",
		"POST /ok/x HTTP/1.1\r\nHost: git.example.com\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /no HTTP/1.1\r\nHost: git.example.com\r\n\r\n",
		"CONNECT evil.example.com:80 HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /ok/%2e%2e/no HTTP/1.0\r\nHost: git.example.com\r\n\r\n",
	} {
		f.Add(s)
	}
	fx := start(f, "GET,POST http://git.example.com/ok/**")
	var mu sync.Mutex
	var wrong []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.RequestURI, "/ok/") || r.Host != "git.example.com" || r.Method != "GET" && r.Method != "POST" {
			mu.Lock()
			wrong = append(wrong, r.Method+" "+r.Host+" "+r.RequestURI)
			mu.Unlock()
		}
	}))
	f.Cleanup(srv.Close)
	fx.routes["git.example.com:80"] = srv.Listener.Addr().String()
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) == 0 || text[0] == recordHandshake {
			return
		}
		client, served := net.Pipe()
		done := make(chan struct{})
		to := fx.set.Decide("git.example.com", 80)
		fx.Serve(served, wire.Begin{Early: []byte(text), To: &to}, &launcher{fixture: fx, to: to, done: func() { close(done) }})
		soon := time.Now().Add(20 * time.Millisecond)
		client.SetDeadline(soon)
		io.Copy(io.Discard, client)
		client.Close()
		<-done
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, wrong)
		for _, d := range fx.dials() {
			require.Equal(t, "git.example.com:80", d)
		}
	})
}

func TestClosed(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", hello200)
	c := f.client(false)
	do(t, c, "GET", "https://git.example.com/", nil)
	c.CloseIdleConnections()
	idle := f.connect("git.example.com", 443, "")
	idle.Close()
	await.Until(t, "both ends are told", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.closes == 2 && f.up > 500 && f.down > 500
	})
}

func mustURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u
}

// BenchmarkRequest asks one small thing after the other over one connection.
func BenchmarkRequest(b *testing.B) {
	f := start(b, "GET https://git.example.com/**")
	srv := f.host("git.example.com", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello\n") })
	direct := srv.Client()
	for name, c := range map[string]struct {
		client *http.Client
		url    string
	}{"direct": {direct, srv.URL}, "HTTP/1.1": {f.client(false), "https://git.example.com/"}, "HTTP/2.0": {f.client(true), "https://git.example.com/"}} {
		if name == "direct" {
			tr := c.client.Transport.(*http.Transport)
			tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
			tr.ForceAttemptHTTP2 = false
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				resp, err := c.client.Get(c.url)
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
