package netproxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// recorded returns the bytes of a real ClientHello for a name.
func recorded(t testing.TB, name string) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	defer ours.Close()
	go tls.Client(theirs, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	h, err := readHello(bufio.NewReader(ours))
	require.NoError(t, err)
	return h.raw
}

func TestServerName(t *testing.T) {
	f := start(t, nil, "example.com:443", "192.0.2.10:443", "local 443")
	srv, _ := tlsServer(t, http.NotFoundHandler())
	f.host("example.com", 443, srv.Listener.Addr().String())
	f.routes["192.0.2.10:443"] = srv.Listener.Addr().String()
	f.routes["127.0.0.1:443"] = srv.Listener.Addr().String()
	for _, c := range []struct {
		host, name string
		ok         bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "EXAMPLE.com", true},
		{"example.com", "", true},
		{"192.0.2.10", "www.example.com", true},
		{"host.pccrun.internal", "www.example.com", true},
		{"example.com", "evil.example", false},
		{"example.com", "www.example.com", false},
	} {
		for protocol, greeting := range map[string]string{
			"connect": "CONNECT " + c.host + ":443 HTTP/1.1\r\n\r\n",
			"socks5":  string(socksRequest(c.host, 443)),
		} {
			conn := f.raw(greeting)
			size := 12
			if protocol == "connect" {
				size = len("HTTP/1.1 200 Connection established\r\n\r\n")
			}
			_, err := io.ReadFull(conn, make([]byte, size))
			require.NoError(t, err)
			err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: c.name}).Handshake()
			if c.ok {
				require.NoError(t, err, "%s to %s for %q", protocol, c.host, c.name)
				continue
			}
			require.ErrorContains(t, err, "unrecognized name")
			conn.Close()
		}
	}
	e := f.waitEvent(Denied)
	require.Contains(t, e.Verdict.Detail, `TLS asks for "evil.example" in a tunnel to example.com`)
}

// TestHelloInPieces holds that a ClientHello is understood however it is cut,
// and reaches the server as it was.
func TestHelloInPieces(t *testing.T) {
	f := start(t, nil, "example.com")
	got := make(chan []byte, 1)
	f.host("example.com", 443, server(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- b
	}))
	hello := recorded(t, "example.com")
	records := []byte{} // one byte of the message in each record
	for _, b := range hello[5:] {
		records = append(records, 22, 3, 1, 0, 1, b)
	}
	for name, text := range map[string][]byte{
		"whole":            hello,
		"with more behind": append(bytes.Clone(hello), "more"...),
		"tiny records":     records,
		"no TLS":           []byte("\x17hello"),
		"nothing":          {},
	} {
		for _, step := range []int{7, 1 << 20} {
			c := f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
			for rest := text; len(rest) > 0; rest = rest[min(step, len(rest)):] {
				_, err := c.Write(rest[:min(step, len(rest))])
				require.NoError(t, err)
			}
			c.(*net.TCPConn).CloseWrite()
			require.True(t, bytes.Equal(text, <-got), name)
		}
	}
}

func TestHostileHello(t *testing.T) {
	f := start(t, nil, "example.com")
	f.host("example.com", 443, server(t, func(c net.Conn) {
		if b, _ := io.ReadAll(c); len(b) > 0 {
			t.Errorf("the server got %q", b)
		}
	}))
	hello := recorded(t, "example.com")
	name := bytes.Index(hello, []byte("example.com"))
	change := func(at int, b ...byte) string {
		h := bytes.Clone(hello)
		copy(h[at:], b)
		return string(h)
	}
	for what, text := range map[string]string{
		"version":          change(1, 9),
		"empty record":     change(3, 0, 0),
		"huge record":      change(3, 0xff, 0xff),
		"no ClientHello":   change(5, 2),
		"huge message":     change(6, 0xff),
		"second record":    string(hello[:3]) + "\x00\x01\x01" + "\x17\x03\x01\x00\x01x",
		"empty name":       change(name-2, 0, 0),
		"kind of name":     change(name-3, 1),
		"length of list":   change(name-5, 0xff),
		"NUL in the name":  change(name+3, 0),
		"other name":       change(name, 'f'),
		"more behind it":   string(hello[:3]) + string([]byte{byte((len(hello) - 4) >> 8), byte(len(hello) - 4)}) + string(hello[5:]) + "x",
		"cut short":        string(hello[:100]),
		"header cut short": string(hello[:3]),
	} {
		if f.headTimeout = await.Patience; strings.HasSuffix(what, "cut short") { // which is waited for
			f.headTimeout = 100 * time.Millisecond
		}
		c := f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n" + text)
		b, err := io.ReadAll(c)
		require.NoError(t, err, what)
		require.True(t, strings.HasSuffix(string(b), unrecognizedName), what)
	}
}

// TestSecondHello: a server may ask for another hello (HelloRetryRequest), and the
// client for another name in it. The server of this test takes whatever it gets,
// which is the control.
func TestSecondHello(t *testing.T) {
	f := start(t, nil, "example.com")
	got := make(chan string, 1)
	f.host("example.com", 443, server(t, func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	}))
	const compatibility, early, alert = "\x14\x03\x03\x00\x01\x01", "\x17\x03\x03\x00\x05early", "\x15\x03\x03\x00\x02\x01\x00"
	ours, evil := string(recorded(t, "example.com")), string(recorded(t, "evil.example"))
	var pieces string // one byte of the message in each record
	for _, b := range []byte(evil[5:]) {
		pieces += string([]byte{22, 3, 3, 0, 1, b})
	}
	old := func(hello string) string { return hello[:9] + "\x07\x07" + hello[11:] } // which servers of TLS 1.3 do not look at
	offering := extended([]byte(ours), earlyData, 0)
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"the same name":        {ours + ours, true},
		"no name":              {ours + compatibility + string(recorded(t, "")), true},
		"another name":         {ours + evil, false},
		"behind compatibility": {ours + compatibility + evil, false},
		"behind an alert":      {ours + alert + evil, false},
		"in pieces":            {ours + pieces, false},
		"behind nothing":       {ours + "\x16\x03\x03\x00\x00" + evil, false},
		"the third":            {ours + ours + evil, false},
		"of no version":        {old(ours) + old(evil), false},
		"behind early data":    {string(offering) + compatibility + early + early + evil, false},
		"no early data":        {ours + early + evil, true}, // the handshake is over, and this is no hello
		"TLS 1.2":              {ours + "\x16\x03\x03\x00\x08\x10\x00\x00\x04abcd" + compatibility + "\x16\x03\x03\x00\x28" + strings.Repeat("\x01", 40), true},
		"TLS 1.2, resumed":     {ours + compatibility + "\x16\x03\x03\x00\x28" + strings.Repeat("\x01", 40), true},
		"cut short":            {ours + compatibility + "\x16\x03", true},
		"cut shorter":          {ours + "\x17", true},
	} {
		conn := f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n" + c.text)
		conn.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(conn)
		require.Equal(t, !c.ok, strings.HasSuffix(string(b), unrecognizedName), name)
		seen := <-got
		if c.ok {
			require.Equal(t, c.text, seen, name)
		} else {
			require.True(t, strings.HasPrefix(c.text, seen) && !strings.Contains(seen, "evil.example"), name)
			require.NotContains(t, seen, evil[11:40], name)
		}
	}
}

// extended returns a hello with another extension, whose body of size bytes is to follow.
func extended(hello []byte, kind byte, size int) []byte {
	var message cursor = hello[9:]
	message.take(2 + 32)
	message.vector(1)
	message.vector(2)
	message.vector(1)
	at := len(hello) - len(message) // of the extensions
	hello = append(bytes.Clone(hello), 0, kind, byte(size>>8), byte(size))
	for _, i := range []int{3, 7, at} {
		n := int(hello[i])<<8 + int(hello[i+1]) + 4 + size
		hello[i], hello[i+1] = byte(n>>8), byte(n)
	}
	return hello
}

// FuzzSecondHello: whatever a client sends behind its first hello goes up as it came,
// and a second one does not go unread.
func FuzzSecondHello(f *testing.F) {
	evil := recorded(f, "evil.example")
	f.Add(evil, 0)
	f.Add(append([]byte("\x14\x03\x03\x00\x01\x01"), evil...), maxEarlyData)
	f.Fuzz(func(t *testing.T, b []byte, early int) {
		c := &client{br: bufio.NewReader(bytes.NewReader(b))}
		var up bytes.Buffer
		again, err := c.passToHello(&up, early, [2]byte{3, 3})
		if err != nil {
			return
		}
		require.True(t, bytes.HasPrefix(b, up.Bytes()))
		rest := b[up.Len():]
		if bytes.HasPrefix(rest, evil) {
			require.True(t, again)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(recorded(f, "example.com"))
	f.Add(recorded(f, ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bufio.NewReader(bytes.NewReader(b)))
		if err != nil {
			require.Empty(t, h.name)
			return
		}
		require.True(t, bytes.HasPrefix(b, h.raw), "what was read is passed on")
		if h.name != "" {
			require.True(t, bytes.Contains(bytes.Join(split(h.raw), nil), []byte(h.name)))
		}
	})
}

// split returns the bodies of records.
func split(raw []byte) (bodies [][]byte) {
	for len(raw) > 0 {
		n := int(raw[3])<<8 | int(raw[4])
		bodies = append(bodies, raw[5:5+n])
		raw = raw[5+n:]
	}
	return bodies
}
