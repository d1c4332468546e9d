package inspect

import (
	"bufio"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// A response is what a host sends, as it stands.
func (f *fixture) answers(name, response string) {
	f.host(name, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, strings.NewReplacer("\n", "\r\n", "SECRET", r.Header.Get("X-Api-Key")).Replace(response))
		rw.Flush()
	})
}

// TestEchoes has a host that sends the secret back in each place and spelling
// that a server may have of itself.
func TestEchoes(t *testing.T) {
	f := start(t, "api.example.com")
	for name, response := range map[string]string{
		"reason":              "HTTP/1.1 200 SECRET\nContent-Length: 0\n\n",
		"early hints":         "HTTP/1.1 103 Early Hints\nLink: <SECRET>\n\nHTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"name of a field":     "HTTP/1.1 200 OK\nSECRET: 1\nContent-Length: 0\n\n",
		"name of a field, x":  "HTTP/1.1 200 OK\nX-SECRET: 1\nContent-Length: 0\n\n",
		"name of a trailer":   "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X-SECRET\n\n1\nx\n0\nX-SECRET: 1\n\n",
		"unannounced trailer": "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTrailer: X\n\n1\nx\n0\nX-SECRET: 1\nY: SECRET\n\n",
		"chunk extension":     "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1;SECRET=SECRET\nx\n0\n\n",
		"malformed":           "SECRET\n\n",
		"malformed field":     "HTTP/1.1 200 OK\nSECRET\n\n",
		"malformed status":    "HTTP/1.1 SECRET OK\n\n",
		"malformed length":    "HTTP/1.1 200 OK\nContent-Length: SECRET\n\n",
		"malformed coding":    "HTTP/1.1 200 OK\nTransfer-Encoding: SECRET\n\n",
		"encoding":            "HTTP/1.1 200 OK\nContent-Encoding: SECRET\nContent-Length: 1\n\nx",
		"chunk size":          "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nSECRET\nx\n0\n\n",
		"switch":              "HTTP/1.1 101 SECRET\nConnection: Upgrade\nUpgrade: SECRET\n\n",
		"not a websocket":     "HTTP/1.1 200 OK\nConnection: Upgrade\nUpgrade: websocket\nContent-Length: 26\n\nSECRET",
	} {
		t.Run(name, func(t *testing.T) {
			f.answers("api.example.com", response)
			c := f.secure("api.example.com")
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example.com\r\nX-Api-Key: "+placeholder+"\r\nConnection: close\r\n\r\n")
			c.SetDeadline(await.Deadline())
			all, err := io.ReadAll(c)
			require.NoError(t, err)
			require.NotContains(t, strings.ToLower(string(all)), strings.ToLower(secret))
			for _, d := range f.told() {
				require.NotContains(t, fmt.Sprint(d), secret)
			}
		})
	}
}

// TestAuthorityAndHost: of two names in an HTTP/2 request none is believed.
func TestAuthorityAndHost(t *testing.T) {
	f := start(t, "api.example.com")
	f.host("api.example.com", hello200)
	for name, c := range map[string]struct {
		fields []hpack.HeaderField
		status string
	}{
		"one":          {[]hpack.HeaderField{{Name: ":authority", Value: "api.example.com"}}, "200"},
		"both":         {[]hpack.HeaderField{{Name: ":authority", Value: "api.example.com"}, {Name: "host", Value: "api.example.com"}}, "200"},
		"another host": {[]hpack.HeaderField{{Name: ":authority", Value: "api.example.com"}, {Name: "host", Value: "evil.example.com"}}, "421"},
		"host alone":   {[]hpack.HeaderField{{Name: "host", Value: "evil.example.com"}}, "421"},
		"two hosts":    {[]hpack.HeaderField{{Name: "host", Value: "api.example.com"}, {Name: "host", Value: "evil.example.com"}}, "4"},
		"absolute":     {[]hpack.HeaderField{{Name: ":authority", Value: "api.example.com"}, {Name: ":path", Value: "https://evil.example.com/"}}, "400"},
	} {
		t.Run(name, func(t *testing.T) {
			fields := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}}
			if name != "absolute" {
				fields = append(fields, hpack.HeaderField{Name: ":path", Value: "/"})
			}
			fields = append(fields, c.fields...)
			status := f.frames(t, fields)
			require.True(t, strings.HasPrefix(status, c.status), status)
		})
	}
}

// frames sends one HTTP/2 request and returns the status, or what ended it.
func (f *fixture) frames(t *testing.T, fields []hpack.HeaderField) string {
	c := f.secure("api.example.com", "h2")
	defer c.Close()
	io.WriteString(c, http2.ClientPreface)
	fr := http2.NewFramer(c, c)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.WriteSettings()
	var b strings.Builder
	e := hpack.NewEncoder(&b)
	for _, h := range fields {
		e.WriteField(h)
	}
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(b.String()), EndHeaders: true, EndStream: true})
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return "4 reset " + frame.ErrCode.String()
		case *http2.GoAwayFrame:
			if frame.ErrCode != http2.ErrCodeNo {
				return "4 goaway " + frame.ErrCode.String()
			}
		}
	}
}

// TestWebsocketEnds: both ends are closed, and its end is told.
func TestWebsocketEnds(t *testing.T) {
	for _, first := range []string{"server", "client"} {
		t.Run(first, func(t *testing.T) {
			f := start(t, "GET https://git.example.com/ws")
			gone := make(chan struct{})
			f.host("git.example.com", func(w http.ResponseWriter, r *http.Request) {
				c, rw, err := w.(http.Hijacker).Hijack()
				if err != nil {
					return
				}
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi")
				if first == "client" {
					io.Copy(io.Discard, rw)
				}
				c.Close()
				close(gone)
			})
			c := f.secure("git.example.com")
			io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: git.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, &http.Request{Method: "GET"})
			require.NoError(t, err)
			require.Equal(t, 101, resp.StatusCode)
			if first == "client" {
				c.Close()
			} else {
				c.SetDeadline(await.Deadline())
				_, err := io.ReadAll(br)
				require.NoError(t, err, "the client hears of the end")
			}
			await.Closed(t, "the server hears of the end", gone)
			await.Until(t, "its end is told", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.closes == 1
			})
		})
	}
}

// TestTrailersOfRequests: a field that some server takes for a part of the head
// may not come after it.
func TestTrailersOfRequests(t *testing.T) {
	f := start(t, "POST https://git.example.com/**", "api.example.com")
	var trailer http.Header
	answer := func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); trailer = r.Trailer }
	f.host("git.example.com", answer)
	f.host("api.example.com", answer)
	for host, passes := range map[string]bool{"git.example.com": false, "api.example.com": true} {
		resp, _ := f.raw(host, "POST /x HTTP/1.1\nHost: "+host+"\nTransfer-Encoding: chunked\nTrailer: X-A\n\n1\nx\n0\nX-A: 1\nX-Http-Method-Override: DELETE\n\n")
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, passes, trailer.Get("X-A") == "1", host)
		require.Equal(t, passes, trailer.Get("X-Http-Method-Override") == "DELETE", host)
	}
}

// TestCrowded: what one sandbox can have requested at once has an end, since nothing
// else counts what is held for it.
func TestCrowded(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	f.host("git.example.com", hello200)
	f.both(func(t *testing.T, c *http.Client) {
		// A request is counted until its answer has been written, and a client has read it before that.
		under := func(n int64) {
			t.Helper()
			await.Until(t, fmt.Sprint("there are ", n), func() bool { return f.requests.Load() == n })
		}
		f.requests.Store(maxRequests)
		resp, body := do(t, c, "GET", "https://git.example.com/", nil)
		require.Equal(t, 503, resp.StatusCode)
		require.Contains(t, body, "at once")
		under(maxRequests)
		f.requests.Store(2 * maxRequests)
		_, err := c.Get("https://git.example.com/")
		require.Error(t, err)
		under(2 * maxRequests)
		f.requests.Store(maxRequests - 1)
		resp, _ = do(t, c, "GET", "https://git.example.com/", nil)
		require.Equal(t, 200, resp.StatusCode, "the control")
		under(maxRequests - 1)
	})
}

// TestBounds: a client of HTTP/2 is told what it may have under way, and one that
// does not keep to it is cut off.
func TestBounds(t *testing.T) {
	f := start(t, "GET https://git.example.com/**")
	c := f.secure("git.example.com", "h2")
	io.WriteString(c, http2.ClientPreface)
	fr := http2.NewFramer(c, c)
	require.NoError(t, fr.WriteSettings())
	told := map[http2.SettingID]uint32{}
	for len(told) == 0 {
		frame, err := fr.ReadFrame()
		require.NoError(t, err)
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			require.NoError(t, s.ForeachSetting(func(s http2.Setting) error { told[s.ID] = s.Val; return nil }))
		}
	}
	require.EqualValues(t, maxStreams, told[http2.SettingMaxConcurrentStreams])
	require.EqualValues(t, frameSize, told[http2.SettingMaxFrameSize])
	require.LessOrEqual(t, told[http2.SettingInitialWindowSize], uint32(clientBuffer))
	require.LessOrEqual(t, told[http2.SettingMaxHeaderListSize], uint32(2*maxHead))
	require.NoError(t, fr.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, frameSize+1)))
	for {
		frame, err := fr.ReadFrame()
		require.NoError(t, err)
		if end, ok := frame.(*http2.GoAwayFrame); ok {
			require.Equal(t, http2.ErrCodeFrameSize, end.ErrCode)
			break
		}
	}
}

// TestManyHosts: the names below a wildcard are without number.
func TestManyHosts(t *testing.T) {
	ca, err := newAuthority()
	require.NoError(t, err)
	for n := range 1100 {
		_, err := ca.certificate(fmt.Sprintf("h%d.example.com", n))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(ca.leaves), 1024)
}

// FuzzTrust: of a file only certificates are taken, whatever else it holds.
func FuzzTrust(f *testing.F) {
	ca, err := newAuthority()
	require.NoError(f, err)
	f.Add(ca.pem())
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + string(ca.pem())))
	f.Fuzz(func(t *testing.T, text []byte) {
		tr := &trust{pool: x509.NewCertPool()}
		tr.add(text)
		bundle, java, err := tr.bundles(ca)
		require.NoError(t, err)
		require.NotEmpty(t, java)
		require.NotContains(t, string(bundle), "PRIVATE")
		require.Equal(t, strings.Count(string(bundle), "-----BEGIN "), strings.Count(string(bundle), "-----BEGIN CERTIFICATE-----"))
	})
}

// FuzzInject: whatever a client writes around a placeholder, what its host sends back of
// it, as it came, holds no secret: in fields, in Basic credentials and in the query.
func FuzzInject(f *testing.F) {
	for _, value := range []string{placeholder, "Bearer " + placeholder, "Basic " + base64.StdEncoding.EncodeToString([]byte("u:"+placeholder)), "basic  " + base64.StdEncoding.EncodeToString([]byte(placeholder+placeholder)), "Basic " + placeholder} {
		f.Add(value, "k="+placeholder)
	}
	i := start(f, "api.example.com").Inspector
	v := rules.Verdict{Host: "api.example.com", Port: 443}
	f.Fuzz(func(t *testing.T, value, query string) {
		if strings.Contains(value+query, secret[8:16]) {
			return // what the client has itself
		}
		p := &passage{target: &target{verdict: v}}
		var out []Secret
		out, p.back, _, _ = i.replacements(v, rules.Request{Scheme: "https", Host: "api.example.com", Path: "/"}, false)
		r := &http.Request{Header: http.Header{"Authorization": {value}, "X-Api-Key": {value}}, URL: &url.URL{RawQuery: query}}
		p.inject(r, out)
		if strings.Contains(value, placeholder) {
			require.Contains(t, r.Header.Get("X-Api-Key"), secret, "the control: it goes out")
		}
		echo := http.Header{"X-Echo": {r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"), r.URL.RawQuery}}
		p.cleanFields(echo)
		for _, back := range echo["X-Echo"] {
			require.NotContains(t, back, secret)
			if _, coded, ok := strings.Cut(back, " "); ok {
				text, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
				require.NotContains(t, string(text), secret)
			}
		}
	})
}

// FuzzAccept: whatever a client accepts, no set of characters is asked for.
func FuzzAccept(f *testing.F) {
	f.Add(`text/plain;q=1; Charset="utf-16", */*`)
	f.Add("text/html;charset=cp037;level=1,a/b")
	f.Fuzz(func(t *testing.T, accept string) {
		left := withoutCharset(accept)
		require.Equal(t, left, withoutCharset(left))
		if !strings.Contains(strings.ToLower(accept), "charset") {
			require.Equal(t, accept, left)
		}
		for part := range strings.SplitSeq(left, ",") {
			_, parameters, err := mime.ParseMediaType(part)
			if err == nil {
				require.NotContains(t, parameters, "charset", left)
			}
		}
	})
}
