package netproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// socksRequest is a greeting and a request for a name or address.
func socksRequest(host string, port uint16) []byte {
	b := []byte{5, 1, 0, 5, 1, 0}
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		b = append(append(b, 1), a.AsSlice()...)
	} else if err == nil {
		b = append(append(b, 4), a.AsSlice()...)
	} else {
		b = append(append(b, 3, byte(len(host))), host...)
	}
	return binary.BigEndian.AppendUint16(b, port)
}

func TestSOCKS(t *testing.T) {
	f := start(t, nil, "ok.example:7", "refused.example:7", "gone.example:7", "192.0.2.10:7", "[2001:db8::1]:7", "host:7")
	echoes := server(t, echo)
	f.host("ok.example", 7, echoes)
	for _, a := range []string{"192.0.2.10:7", "[2001:db8::1]:7", "127.0.0.1:7"} {
		f.routes[a] = echoes
	}
	f.hosts["refused.example"] = []netip.Addr{netip.MustParseAddr("8.8.8.8")}
	for _, c := range []struct {
		host string
		port uint16
		code byte
	}{
		{"ok.example", 7, socksOK},
		{"OK.Example.", 7, socksOK},
		{"192.0.2.10", 7, socksOK},
		{"2001:db8::1", 7, socksOK},
		{"::ffff:192.0.2.10", 7, socksOK},
		{"host.pccrun.internal", 7, socksOK},
		{"ok.example", 8, socksDenied},
		{"no.example", 7, socksDenied},
		{publicAddr, 7, socksDenied},
		{"127.0.0.1", 7, socksDenied},
		{"::1", 7, socksDenied},
		{"0.0.0.0", 7, socksDenied},
		{"evil.example\x00.ok.example", 7, socksDenied},
		{"ok.example\r\n", 7, socksDenied},
		{"a@ok.example", 7, socksDenied},
		{"", 7, socksDenied},
		{"refused.example", 7, socksRefused},
		{"gone.example", 7, socksNoHost},
	} {
		conn := f.raw(string(socksRequest(c.host, c.port)) + "early")
		conn.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(conn)
		require.NoError(t, err)
		want := []byte{5, 0, 5, c.code, 0, 1, 0, 0, 0, 0, 0, 0}
		if c.code == socksOK {
			want = append(want, "early"...)
		}
		require.Equal(t, want, b, "%q", c.host)
	}
	require.Equal(t, "socks5", f.waitEvent(Denied).Protocol)
}

func TestSOCKSMalformed(t *testing.T) {
	f := start(t, nil, "ok.example:7")
	for text, want := range map[string]string{
		"\x05\x00":     "\x05\xff",
		"\x05\x01\x02": "\x05\xff", // only with a password
		"\x05\x02\x02\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x07": "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", // BIND
		"\x05\x01\x00\x05\x03\x00\x01\x01\x02\x03\x04\x00\x07":     "\x05\x00\x05\x07\x00\x01\x00\x00\x00\x00\x00\x00", // UDP
		"\x05\x01\x00\x05\x01\x00\x02\x01\x02\x03\x04\x00\x07":     "\x05\x00\x05\x08\x00\x01\x00\x00\x00\x00\x00\x00", // no such kind
		"\x05\x01\x00\x04\x01\x00\x01\x01\x02\x03\x04\x00\x07":     "\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00", // version
		"\x05\x01\x00\x05\x01\x01\x01\x01\x02\x03\x04\x00\x07":     "\x05\x00\x05\x01\x00\x01\x00\x00\x00\x00\x00\x00", // reserved
		"\x04\x01\x00\x50\x01\x02\x03\x04\x00":                     "HTTP/1.1 400 ",                                    // SOCKS4 is no HTTP
	} {
		c := f.raw(text)
		c.(*net.TCPConn).CloseWrite()
		b, _ := io.ReadAll(c)
		if strings.HasPrefix(want, "HTTP") {
			b = b[:min(len(b), len(want))]
		}
		require.Equal(t, want, string(b), "%q", text)
	}
	require.Empty(t, f.dials())
}

func FuzzSOCKS(f *testing.F) {
	f.Add([]byte{5, 1, 0, 1, 1, 2, 3, 4, 0, 80})
	f.Add([]byte{5, 1, 0, 3, 1, 'a', 0, 80})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &client{br: bufio.NewReader(bytes.NewReader(b))}
		host, port, code := c.readSOCKSRequest()
		if code != socksOK {
			require.Empty(t, host)
			return
		}
		v := parse(t, "deny a.example").Decide(host, port)
		require.NotEmpty(t, v.Reason)
	})
}
