package netproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

func TestBodies(t *testing.T) {
	f := start(t, nil, "ok.example")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			w.Header().Set("X-Length", fmt.Sprint(r.ContentLength))
			http.NewResponseController(w).EnableFullDuplex()
			io.Copy(w, r.Body)
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("ETag", `"x"`)
			w.WriteHeader(304)
		default:
			io.WriteString(w, "body")
		}
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	c := f.client()
	big := bytes.Repeat([]byte("0123456789"), 300_000)
	for name, body := range map[string]io.Reader{"sized": bytes.NewReader(big), "chunked": io.MultiReader(bytes.NewReader(big))} {
		resp, err := c.Post("http://ok.example/echo", "text/plain", body)
		require.NoError(t, err, name)
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err, name)
		require.True(t, bytes.Equal(big, b), name)
		require.Equal(t, "42", resp.Trailer.Get("X-Sum"))
		if name == "sized" {
			require.Equal(t, "3000000", resp.Header.Get("X-Length"))
		}
	}
	for path, want := range map[string]int{"/204": 204, "/304": 304, "/x": 200} {
		status, _ := get(t, c, "http://ok.example"+path)
		require.Equal(t, want, status)
	}
	resp, err := c.Head("http://ok.example/x")
	require.NoError(t, err)
	require.EqualValues(t, 4, resp.ContentLength)

	req, err := http.NewRequest("POST", "http://ok.example/echo", bytes.NewReader(big))
	require.NoError(t, err)
	req.Header.Set("Expect", "100-continue")
	resp, err = c.Do(req)
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Len(t, b, len(big))

	old := f.ask("POST http://ok.example/echo HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello")
	require.Contains(t, old, "\r\n\r\nhello")
	require.NotContains(t, old, "chunked")
}

// TestEarlyAnswers has a server answer before it has the request, and hang up: the client gets the answer.
func TestEarlyAnswers(t *testing.T) {
	f := start(t, nil, "ok.example")
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		br := bufio.NewReader(c)
		http.ReadRequest(br)
		br.Discard(1 << 20) // so that the rest of the body is under way
		io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
	}))
	const size = 32 << 20 // no socket takes it all
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		for range 20 {
			c := f.raw("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n" + expect + "Content-Length: " + strconv.Itoa(size) + "\r\n\r\n")
			go io.CopyN(c, endless{}, size)
			br := bufio.NewReader(c)
			resp, err := http.ReadResponse(br, nil)
			if err == nil && resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(br, nil)
			}
			require.NoError(t, err)
			text, _ := io.ReadAll(resp.Body)
			require.Equal(t, "413 big", fmt.Sprint(resp.StatusCode, " ", string(text)))
			c.Close()
		}
	}
}

// TestStreaming holds that each event arrives as it is sent, chunked or not.
func TestStreaming(t *testing.T) {
	f := start(t, nil, "ok.example")
	next := make(chan struct{}, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.URL.Path == "/raw" {
			c, _, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
			for i := range 5 {
				<-next
				fmt.Fprintf(c, "data: %d\n\n", i)
			}
			return
		}
		for i := range 5 {
			<-next
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	for _, path := range []string{"/chunked", "/raw"} {
		var resp *http.Response
		var br *bufio.Reader
		for i := range 5 {
			next <- struct{}{}
			if i == 0 {
				var err error
				resp, err = f.client().Get("http://ok.example" + path)
				require.NoError(t, err)
				br = bufio.NewReader(resp.Body)
			}
			line, err := br.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
			br.ReadString('\n')
		}
		resp.Body.Close()
	}
}

// TestStubbornServer has a server that keeps its connection open: who waits for the end of a
// response whose length is known has it all the same, also where no websocket came of one.
func TestStubbornServer(t *testing.T) {
	f := start(t, nil, "ok.example")
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		r, _ := http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, map[string]string{"GET": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HEAD": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"}[r.Method])
		io.Copy(io.Discard, c)
	}))
	for request, want := range map[string]string{
		"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n":                                  "\r\n\r\nok",
		"HEAD http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n":                                 "\r\nConnection: close\r\n\r\n",
		"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\nxx": "\r\n\r\nok",
	} {
		require.True(t, strings.HasSuffix(f.ask(request), want), request)
	}
}

// TestUploadStreams holds that a request's body is not collected first.
func TestUploadStreams(t *testing.T) {
	f := start(t, nil, "ok.example")
	first := make(chan string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 4)
		io.ReadFull(r.Body, b)
		first <- string(b)
		io.Copy(io.Discard, r.Body)
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		resp, err := f.client().Post("http://ok.example/", "text/plain", pr)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	io.WriteString(pw, "ping")
	require.Equal(t, "ping", <-first)
	pw.Close()
	require.NoError(t, <-done)
}

// TestClientGone holds that a request does not outlive its client.
func TestClientGone(t *testing.T) {
	f := start(t, nil, "ok.example")
	begun, gone := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(gone)
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	c := f.raw("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n")
	<-begun
	c.Close()
	await.Closed(t, "the request is over", gone)
}

func TestWebsocket(t *testing.T) {
	f := start(t, nil, "ok.example")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			w.WriteHeader(426)
			return
		}
		c, brw, _ := w.(http.Hijacker).Hijack()
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nfirst")
		io.Copy(c, brw)
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	const request = "GET http://ok.example/ws HTTP/1.1\r\nHost: ok.example\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Key: y\r\n\r\n"
	c := f.raw(fmt.Sprintf(request, "WebSocket") + "early")
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	require.Equal(t, "x", resp.Header.Get("Sec-WebSocket-Accept"))
	b := make([]byte, 10)
	_, err = io.ReadFull(br, b)
	require.NoError(t, err)
	require.Equal(t, "firstearly", string(b))
	io.WriteString(c, "later")
	_, err = io.ReadFull(br, b[:5])
	require.NoError(t, err)
	require.Equal(t, "later", string(b[:5]))
	c.Close()
	e := f.waitEvent(Closed)
	require.Equal(t, "websocket", e.Protocol)
	require.EqualValues(t, 10, e.Up)
	require.EqualValues(t, 15, e.Down)

	resp, err = http.ReadResponse(bufio.NewReader(f.raw(fmt.Sprintf(request, "h2c"))), nil)
	require.NoError(t, err)
	require.Equal(t, 426, resp.StatusCode, "no other protocol passes")
	other := strings.Replace(fmt.Sprintf(request, "websocket"), "\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx", 1)
	resp, err = http.ReadResponse(bufio.NewReader(f.raw(other)), nil)
	require.NoError(t, err)
	require.Equal(t, 426, resp.StatusCode, "what was decided on as another request becomes none")
}

// TestBodyBrokenOff holds that an answer that ends with its connection is not taken for whole
// where the server broke that off while the request's body was on its way: the kernel tells
// of that once, mostly who sends. The control ends.
func TestBodyBrokenOff(t *testing.T) {
	for _, breaks := range []bool{true, false} {
		t.Run(fmt.Sprint(breaks), func(t *testing.T) {
			f := start(t, nil, "ok.example")
			f.host("ok.example", 80, server(t, answering(breaks)))
			whole := 0 // Go's client may be told of the end of what it sends before it has the answer
			for range 50 {
				c := f.raw("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 1000000000\r\n\r\n")
				unsent := make(chan error, 1)
				go func() {
					_, err := io.Copy(c, endless{})
					unsent <- err
				}()
				var b []byte
				response, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err == nil {
					b, err = io.ReadAll(response.Body)
				}
				c.Close()
				<-unsent
				if err == nil && response.StatusCode == 200 {
					require.Equal(t, "answer", string(b))
					whole++
				}
			}
			require.Equal(t, !breaks, whole > 0, "%d of 50 are taken for whole", whole)
		})
	}
}

// answering sends an answer, while it takes some of what is sent to it, and breaks off or ends.
func answering(breaks bool) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nanswer")
		io.CopyN(io.Discard, c, 100<<10)
		if breaks {
			c.(*net.TCPConn).SetLinger(0)
			return
		}
		closeWrite(c)
		io.Copy(io.Discard, c)
	}
}

// endless is zeros without end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestRewrittenByProxy: what may make another request of one is refused by the
// proxy too, and no request keeps its trailers.
func TestRewrittenByProxy(t *testing.T) {
	f := start(t, nil, "GET,POST http://ok.example/public/**", "free.example")
	var trailer http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		trailer = r.Trailer
		io.WriteString(w, "hello "+r.RequestURI)
	}))
	t.Cleanup(srv.Close)
	f.host("ok.example", 80, srv.Listener.Addr().String())
	f.host("free.example", 80, srv.Listener.Addr().String())
	for _, c := range []struct{ host, field, want string }{
		{"ok.example", "X-Other: /admin", "hello /public/x"}, {"ok.example", "X-Original-URL: /admin", "another request"}, {"ok.example", "X_HTTP_Method_Override: DELETE", "another request"},
		{"free.example", "X-Original-URL: /admin", "hello /public/x"},
	} {
		require.Contains(t, f.ask("GET http://"+c.host+"/public/x HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n"+c.field+"\r\n\r\n"), c.want)
	}
	for _, host := range []string{"ok.example", "free.example"} {
		f.ask("POST http://" + host + "/public/x HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Http-Method-Override: DELETE\r\n\r\n")
		require.Empty(t, trailer.Get("X-Http-Method-Override"), host)
	}
}

// TestHostileHeads sends what is no clean request. Whatever is read of it in another way than
// it was written, nothing reaches a server but one request, for the host that was decided on.
func TestHostileHeads(t *testing.T) {
	f := start(t, nil, "ok.example", "ok.example:8080")
	var mu sync.Mutex
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Host+" "+string(b))
		io.WriteString(w, "hello")
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	f.routes[publicAddr+":8080"] = srv.Listener.Addr().String()
	// What is read all the same, and how: as one request of one body to the host of its target.
	readAs := map[string]string{
		"bare LF": "", "bare LF in a field": "", "folded line": "", "HTTP/1.2": "", "other Host": "", "other port in Host": "", "malformed Host": "", "empty Host": "",
		"CL and TE": "", "TE and CL": "", "the same length twice": "hello", "chunked in HTTP/1.0": "", "many lines": "",
	}
	const host, maxFields = "Host: ok.example\r\n", 500
	long := strings.Repeat("x", maxHead)
	for _, c := range []struct{ name, text, want string }{
		{"empty line first", "\r\nGET http://ok.example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"bare LF", "GET http://ok.example/ HTTP/1.1\nHost: ok.example\n\n", "400"},
		{"bare LF in a field", "GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\nX: y\r\n\r\n", "400"},
		{"bare CR", "GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\rX: y\r\n\r\n", "400"},
		{"folded line", "GET http://ok.example/ HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", "400"},
		{"folded first field", "GET http://ok.example/ HTTP/1.1\r\n " + host + "\r\n", "400"},
		{"NUL", "GET http://ok.example/ HTTP/1.1\r\n" + host + "X: \x00\r\n\r\n", "400"},
		{"DEL", "GET http://ok.example/\x7f HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"space before colon", "GET http://ok.example/ HTTP/1.1\r\nHost : ok.example\r\n\r\n", "400"},
		{"no colon", "GET http://ok.example/ HTTP/1.1\r\n" + host + "X\r\n\r\n", "400"},
		{"no field name", "GET http://ok.example/ HTTP/1.1\r\n" + host + ": y\r\n\r\n", "400"},
		{"tab in the first line", "GET\thttp://ok.example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"two spaces", "GET  http://ok.example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"space in the target", "GET http://ok.example/a b HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"space after the version", "GET http://ok.example/ HTTP/1.1 \r\n" + host + "\r\n", "400"},
		{"no version", "GET http://ok.example/\r\n" + host + "\r\n", "400"},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\n", "505"},
		{"HTTP/1.2", "GET http://ok.example/ HTTP/1.2\r\n" + host + "\r\n", "505"},
		{"lower-case version", "GET http://ok.example/ http/1.1\r\n" + host + "\r\n", "400"},
		{"method", "G(T http://ok.example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"no host", "GET http:///x HTTP/1.1\r\nHost: \r\n\r\n", "400"},
		{"origin form", "GET / HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"asterisk form", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"https", "GET https://ok.example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"file", "GET file:///etc/passwd HTTP/1.1\r\nHost: \r\n\r\n", "400"},
		{"ftp", "GET ftp://ok.example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"not ASCII in the host", "GET http://ok\u3002example/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"not UTF-8 in the host", "GET http://ok.example\xff/ HTTP/1.1\r\nHost: ok.example\xff\r\n\r\n", "400"},
		{"fragment", "GET http://ok.example/#x HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"userinfo", "GET http://ok.example@127.0.0.1/ HTTP/1.1\r\nHost: ok.example@127.0.0.1\r\n\r\n", "403"},
		{"userinfo and Host", "GET http://ok.example@127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "421"},
		{"userinfo with a colon", "GET http://ok.example:80@127.0.0.1/ HTTP/1.1\r\n" + host + "\r\n", "400"},
		{"backslash", "GET http://ok.example\\@evil.example/ HTTP/1.1\r\nHost: ok.example\\@evil.example\r\n\r\n", "403"},
		{"other Host", "GET http://ok.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", "421"},
		{"other port in Host", "GET http://ok.example/ HTTP/1.1\r\nHost: ok.example:8080\r\n\r\n", "421"},
		{"malformed Host", "GET http://ok.example/ HTTP/1.1\r\nHost: ok.example:x\r\n\r\n", "400"},
		{"empty Host", "GET http://ok.example/ HTTP/1.1\r\nHost:\r\n\r\n", "400"},
		{"two Hosts", "GET http://ok.example/ HTTP/1.1\r\n" + host + host + "\r\n", "400"},
		{"no Host", "GET http://ok.example/ HTTP/1.1\r\n\r\n", "400"},
		{"port 0", "GET http://ok.example:0/ HTTP/1.1\r\nHost: ok.example:0\r\n\r\n", "400"},
		{"port 0443", "CONNECT ok.example:0443 HTTP/1.1\r\n\r\n", "400"},
		{"port 65536", "CONNECT ok.example:65536 HTTP/1.1\r\n\r\n", "400"},
		{"port -1", "CONNECT ok.example:-1 HTTP/1.1\r\n\r\n", "400"},
		{"no port", "CONNECT ok.example HTTP/1.1\r\n\r\n", "400"},
		{"empty port", "CONNECT ok.example: HTTP/1.1\r\n\r\n", "400"},
		{"two ports", "CONNECT ok.example:443:80 HTTP/1.1\r\n\r\n", "400"},
		{"open bracket", "CONNECT [::1:443 HTTP/1.1\r\n\r\n", "400"},
		{"bracketed name", "CONNECT [ok.example]:443 HTTP/1.1\r\n\r\n", "400"},
		{"text after bracket", "CONNECT [::1]x:443 HTTP/1.1\r\n\r\n", "400"},
		{"zone", "CONNECT [fe80::1%25eth0]:443 HTTP/1.1\r\n\r\n", "403"},
		{"escaped name", "CONNECT %6fk.example:443 HTTP/1.1\r\n\r\n", "403"},
		{"escaped NUL", "CONNECT evil.example%00.ok.example:443 HTTP/1.1\r\n\r\n", "403"},
		{"CONNECT to a URL", "CONNECT http://ok.example/ HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT with a length", "CONNECT ok.example:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "400"},
		{"CONNECT chunked", "CONNECT ok.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
		{"CL and TE", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"TE and CL", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n", "400"},
		{"two lengths", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nhello", "400"},
		{"the same length twice", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "400"},
		{"a list of lengths", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 5, 5\r\n\r\nhello", "400"},
		{"signed length", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\nhello", "400"},
		{"negative length", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: -5\r\n\r\nhello", "400"},
		{"hexadecimal length", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 0x5\r\n\r\nhello", "400"},
		{"underscore in a length", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 1_0\r\n\r\nhello", "400"},
		{"huge length", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\nhello", "400"},
		{"empty length", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\nhello", "400"},
		{"other coding", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "400"},
		{"hidden coding", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "400"},
		{"two codings", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", "400"},
		{"coding with a tab", "POST http://ok.example/ HTTP/1.1\r\n" + host + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", "400"},
		{"chunked in HTTP/1.0", "POST http://ok.example/ HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
		{"long line", "GET http://ok.example/" + long + " HTTP/1.1\r\n" + host + "\r\n", "431"},
		{"long head", "GET http://ok.example/ HTTP/1.1\r\n" + host + strings.Repeat("X: "+long[:1000]+"\r\n", 70) + "\r\n", "431"},
		{"many lines", "GET http://ok.example/ HTTP/1.1\r\n" + host + strings.Repeat("a:\r\n", maxFields) + "\r\n", "431"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", "400"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen = nil
			conn := f.raw(c.text)
			b, err := bufio.NewReader(conn).ReadString('\n')
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			if want, is := readAs[c.name]; is {
				require.Equal(t, []string{"ok.example " + want}, seen)
				return
			}
			require.Regexp(t, "^HTTP/1.1 (400|403|405|421|431|501|505) ", string(b))
			require.Empty(t, seen)
		})
	}
	for _, text := range []string{ // the controls
		"GET http://ok.example/ HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
		"GET HTTP://OK.example:80/ HTTP/1.1\r\nhOST:   ok.EXAMPLE. \t\r\nConnection: close\r\n\r\n",
		"GET http://ok.example?x=/../y HTTP/1.0\r\n\r\n",
		"GET http://ok.example/" + long[:60000] + " HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
		"POST http://ok.example/ HTTP/1.1\r\n" + host + "Content-Length: 0\r\nConnection: close\r\n\r\n",
		"OPTIONS http://ok.example HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
		"GET http://ok.example/f\u00fcr?q=\xff HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
	} {
		require.Regexp(t, "^HTTP/1.[01] 200 OK\r\n", f.ask(text), "%.200s", text)
	}
}

// TestHostileChunks sends bodies that are framed badly. The server must not
// see the end of any. What is read all the same goes on framed anew.
func TestHostileChunks(t *testing.T) {
	f := start(t, nil, "ok.example")
	bodies := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		bodies <- err
	}))
	defer srv.Close()
	f.host("ok.example", 80, srv.Listener.Addr().String())
	for _, c := range []struct {
		name, body string
		ok         bool
	}{
		{"control", "5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n", true},
		{"trailers", "1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n", true},
		{"leading zeros", "0005\r\nhello\r\n000\r\n\r\n", true},
		{"bare LF after size", "5\nhello\r\n0\r\n\r\n", false},
		{"bare LF after data", "5\r\nhello\n0\r\n\r\n", false},
		{"no CRLF after data", "5\r\nhello0\r\n\r\n", false},
		{"extension", "5;a=b\r\nhello\r\n0\r\n\r\n", true},
		{"space", "5 \r\nhello\r\n0\r\n\r\n", true},
		{"sign", "+5\r\nhello\r\n0\r\n\r\n", false},
		{"negative", "-5\r\nhello\r\n0\r\n\r\n", false},
		{"prefix", "0x5\r\nhello\r\n0\r\n\r\n", false},
		{"empty size", "\r\nhello\r\n0\r\n\r\n", false},
		{"overflow", "FFFFFFFFFFFFFFFF0\r\nhello\r\n0\r\n\r\n", false},
		{"above 62 bits", "FFFFFFFFFFFFFFF\r\nhello", false},
		{"long size line", strings.Repeat("0", 5000) + "5\r\nhello\r\n0\r\n\r\n", false},
		{"bad trailer", "0\r\nX Y: 1\r\n\r\n", true},
		{"folded trailer", "0\r\nX: 1\r\n 2\r\n\r\n", true},
		{"cut short", "5\r\nhel", false},
		{"no last chunk", "5\r\nhello\r\n", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := f.raw("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + c.body)
			if c.ok {
				b, err := io.ReadAll(conn)
				require.NoError(t, err)
				require.Contains(t, string(b), "200 OK")
			} else {
				conn.(*net.TCPConn).CloseWrite()
				_, _ = io.ReadAll(conn)
			}
			require.Equal(t, c.ok, <-bodies == nil)
		})
	}
}

// TestHopByHop holds that what is for one connection alone is passed on to no other, and that
// Go's client adds nothing of its own.
func TestHopByHop(t *testing.T) {
	f := start(t, nil, "ok.example")
	var got http.Header
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		r, _ := http.ReadRequest(bufio.NewReader(c))
		got = r.Header
		io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nX-End: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\n\r\n")
	}))
	resp := f.ask("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close, x-secret\r\nX-Secret: 1\r\nX-End: 1\r\n" +
		"Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nKeep-Alive: 5\r\n\r\n")
	require.Equal(t, http.Header{"X-End": {"1"}, "Connection": {"close"}}, got)
	require.Contains(t, resp, "X-End: 1\r\n")
	for _, hop := range []string{"Keep-Alive", "Proxy-Authenticate"} {
		require.NotContains(t, resp, hop)
	}
}

// TestEachRequest holds that each request of a connection is decided on for itself, and that
// nothing after a request's body reaches its server.
func TestEachRequest(t *testing.T) {
	f := start(t, nil, "ok.example")
	got := make(chan string, 10)
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		var b []byte
		for !bytes.HasSuffix(b, []byte("hello")) {
			b = append(b, 0)
			io.ReadFull(c, b[len(b)-1:])
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		rest, _ := io.ReadAll(c)
		got <- string(b) + string(rest)
	}))
	resp := f.ask("POST http://ok.example/a HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello" +
		"GET http://evil.example/smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	require.Equal(t, "POST /a HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 5\r\nX-A: b\r\nConnection: close\r\n\r\nhello", <-got)
	require.Contains(t, resp, "\r\n\r\nokHTTP/1.1 403 Denied by pccrun (to allow: --allow evil.example)\r\n")
}

// TestHostileResponses holds that what a server answers is read as strictly.
func TestHostileResponses(t *testing.T) {
	f := start(t, nil, "ok.example")
	var answer string
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, answer)
	}))
	reframed := map[string]bool{"CL and TE": true, "bare LF": true, "folded": true, "chunked 1.0": true, "version": true} // what is read all the same, and written anew
	for name, text := range map[string]string{
		"nothing":         "",
		"no HTTP":         "SSH-2.0-x\r\n\r\n",
		"bare LF":         "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
		"folded":          "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"two lengths":     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
		"CL and TE":       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked 1.0":     "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"status":          "HTTP/1.1 20 OK\r\n\r\n",
		"status 099":      "HTTP/1.1 099 OK\r\n\r\n",
		"version":         "HTTP/2.0 200 OK\r\n\r\n",
		"101 unasked":     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
		"endless interim": strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20),
		"long head":       "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n",
		"cut short":       "HTTP/1.1 200 OK\r\nX: y",
	} {
		answer = text
		resp := f.ask("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
		if reframed[name] {
			require.Contains(t, resp, "HTTP/1.1 200 OK\r\n", name)
		} else if !strings.Contains(resp, "HTTP/1.1 502 Bad Gateway\r\n") {
			t.Errorf("%s: %.300q", name, resp)
		}
	}
	answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"
	c := f.raw("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
	_, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
	require.Contains(t, f.ask("GET http://ok.example/ HTTP/1.0\r\n\r\n"), "\r\n\r\nhello", "chunks that an old client cannot read")
	answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\nsplit"
	resp := f.ask("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
	require.NotContains(t, resp, "103 Early Hints", "which are not passed on")
	require.True(t, strings.HasSuffix(resp, "\r\n\r\nok"), "what follows a response is dropped: %s", resp)
	old := f.ask("GET http://ok.example/ HTTP/1.0\r\n\r\n")
	require.NotContains(t, old, "103")
}

// TestLawfulResponses has what servers send that is rare and all the same right: it
// arrives, and what follows on the connection is not taken for it.
func TestLawfulResponses(t *testing.T) {
	f := start(t, nil, "ok.example")
	var answer string
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, answer)
	}))
	for name, c := range map[string]struct{ method, answer, want string }{
		"no phrase, as Tomcat": {"GET", "HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		"no blank":             {"GET", "HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "\r\n\r\nok"},
		"a phrase in Latin 1":  {"GET", "HTTP/1.1 404 Non trouv\xe9  ici \r\nContent-Length: 2\r\n\r\nok", "404 Not Found"},
		"a field in UTF-8":     {"GET", "HTTP/1.1 200 OK\r\nX-Name: f\u00fcr\tyou\r\nX-Empty:\r\nContent-Length: 2\r\n\r\nok", "X-Name: f\u00fcr\tyou\r\n"},
		"many cookies":         {"GET", "HTTP/1.1 200 OK\r\n" + strings.Repeat("Set-Cookie: a="+strings.Repeat("x", 300)+"\r\n", 60) + "Content-Length: 2\r\n\r\nok", "\r\n\r\nok"},
		"HEAD with a length":   {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", "Content-Length: 1000000\r\n"},
		"304 with a length":    {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: x\r\n\r\n", "304 Not Modified"},
		"204 with a length":    {"DELETE", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "204 No Content"},
		"a part":               {"GET", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/9\r\nContent-Length: 2\r\n\r\nok", "206 Partial Content"},
		"WebDAV":               {"PROPFIND", "HTTP/1.1 207 Multi-Status\r\nContent-Length: 2\r\n\r\nok", "207 Multi-Status"},
		"zeros, Chunked":       {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0002\r\nok\r\n000\r\nX-Sum: 1\r\n\r\n", "2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"},
		"no length":            {"GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nok", "\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
	} {
		answer = c.answer
		resp := f.ask(c.method + " http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
		assert.Contains(t, resp, c.want, name)
	}
}
