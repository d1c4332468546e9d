package netproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// A proxy that others reach serves who gives the token, by HTTP and by SOCKS, and nobody else.
func TestToken(t *testing.T) {
	f := start(t, &Config{Token: "s3cret"}, "ok.example:7", "ok.example:80")
	f.host("ok.example", 7, server(t, echo))
	f.host("ok.example", 80, server(t, func(c net.Conn) {
		h, err := readHead(bufio.NewReader(c))
		require.NoError(t, err)
		require.Empty(t, h.get("Proxy-Authorization"), "it is for the proxy alone")
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
	}))
	get := func(user *url.Userinfo) *http.Response {
		via := &url.URL{Scheme: "http", User: user, Host: f.addr}
		client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(via), DisableKeepAlives: true}}
		r, err := client.Get("http://ok.example/")
		require.NoError(t, err)
		r.Body.Close()
		return r
	}
	require.Equal(t, 200, get(url.UserPassword(TokenUser, "s3cret")).StatusCode, "the control")
	for _, user := range []*url.Userinfo{nil, url.User(TokenUser), url.UserPassword(TokenUser, "s3cre"), url.UserPassword("root", "s3cret")} {
		r := get(user)
		require.Equal(t, 407, r.StatusCode)
		require.Equal(t, `Basic realm="pccrun"`, r.Header.Get("Proxy-Authenticate"))
	}

	request := string(socksRequest("ok.example", 7)[3:])
	for text, want := range map[string]string{
		"\x05\x01\x02\x01\x06pccrun\x06s3cret" + request + "early": "\x05\x02\x01\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00early",
		"\x05\x01\x02\x01\x06pccrun\x06s3creX" + request + "early": "\x05\x02\x01\x01",
		"\x05\x01\x02\x01\x06pccrun\x00" + request:                 "\x05\x02\x01\x01",
		"\x05\x01\x02\x05\x06pccrun\x06s3cret" + request:           "\x05\x02",
		"\x05\x01\x02\x01\x06pcc":                                  "\x05\x02",
		"\x05\x01\x02\x01":                                         "\x05\x02",
		"\x05\x01\x00" + request:                                   "\x05\xff",
	} {
		conn := f.raw(text)
		conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(conn) // one that is refused may be reset
		require.Equal(t, want, string(b), "%q", text)
	}
}

// Programs give it that know nothing of it.
func TestTokenInVariables(t *testing.T) {
	const via = "http://pccrun:s3cret@127.0.0.1:3128"
	env := AddUncaptured(Environ(via), via)
	for _, want := range []string{"https_proxy=" + via, "RSYNC_PROXY=pccrun:s3cret@127.0.0.1:3128", "CLOUDSDK_PROXY_PASSWORD=s3cret"} {
		require.Contains(t, env, want)
	}
	require.Contains(t, env[len(env)-1], "-Djava.net.socks.username=pccrun -Djava.net.socks.password=s3cret")
}
