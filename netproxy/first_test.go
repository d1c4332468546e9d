package netproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sent is the connection of a client that has said all that it will, and hears nothing.
type sent struct{ net.Conn }

func (sent) Read([]byte) (int, error)         { return 0, io.EOF }
func (sent) Write(b []byte) (int, error)      { return len(b), nil }
func (sent) SetDeadline(time.Time) error      { return nil }
func (sent) SetReadDeadline(time.Time) error  { return nil }
func (sent) SetWriteDeadline(time.Time) error { return nil }

// FuzzFirst: whatever a client sends first to a name, as HTTP of any kind, as git's
// protocol, behind a PROXY header or as nothing known, goes up as it came, and no
// server that reads as Go's does takes it for a request to another host.
func FuzzFirst(f *testing.F) {
	for _, text := range disguises {
		if len(text) < 1000 {
			f.Add([]byte(text))
		}
	}
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n", "GET http://ok.example:80/ HTTP/1.0\r\n\r\n", "GET /\r\n", "PROXY TCP4 1.1.1.1 2.2.2.2 3 4\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
		proxySignature + "\n\x21\x11\x00\x0c\x01\x01\x01\x01\x02\x02\x02\x02\x00\x03\x00\x04GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n",
		proxySignature + "\n\x21\x11\x00\x1b\x01\x01\x01\x01\x02\x02\x02\x02\x00\x03\x00\x04\x02\x00\x0cevil.example", "002dgit-upload-pack /r\x00host=ok.example\x00", "0032git-upload-pack /r\x00host=evil.example\x00",
		"GET /x uwsgi\r\nHost: evil.example\r\n\r\n", "EHLO h\r\nSTARTTLS\r\n", sslRequest + "\x16\x03\x01", prefaceLine + prefaceRest, "\x15\x03\x01\x00\x02\x01\x00GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Add(recorded(f, "ok.example"))
	f.Add(recorded(f, "evil.example"))
	set := parse(f, "ok.example")
	f.Fuzz(func(t *testing.T, b []byte) {
		told := false
		p := New(Config{Rules: set, Event: func(e Event) { told = told || e.Kind == Denied }})
		defer p.Close()
		p.headTimeout = time.Millisecond
		c := newClient(p, t.Context(), sent{}, 0)
		c.br.Reset(bytes.NewReader(b))
		var up bytes.Buffer
		l, ev := &link{Conn: writing{Writer: &up}, verdict: set.Decide("ok.example", 80)}, &Event{}
		o := c.lookOut(l, ev)
		_, other, err := c.forwardFirst(l, ev, o)
		if err == nil { // as beginTunnel goes on
			o.judged = !other
			_, err = io.Copy(o, c.br)
		}
		o.end()
		c.release()
		require.Zero(t, longHeads.Load())
		require.True(t, bytes.HasPrefix(b, up.Bytes()), "passed on as it came")
		if err == nil {
			require.Equal(t, len(b), up.Len(), "all of it")
			require.False(t, told)
		}
		text := strings.TrimLeft(up.String(), "\r\n")
		for strings.HasPrefix(text, "PROXY ") {
			_, text, _ = strings.Cut(text, "\n")
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil || r.Host == "" {
			return
		}
		host, _, ok := splitAuthority(r.Host, 80)
		require.True(t, ok, r.Host)
		require.Equal(t, "ok.example", strings.ToLower(strings.TrimSuffix(host, ".")))
	})
}

// FuzzHeard: how a server speaks does not depend on how its words come, but that a first
// word that is too short to tell counts for one of a protocol that may turn to TLS.
func FuzzHeard(f *testing.F) {
	f.Add([]byte("220 mail"), 1)
	f.Add([]byte("0\x84\x00\x00\x00\x0c\x02"), 3)
	f.Add([]byte("HTTP/1.1 200 OK"), 5)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if len(b) == 0 || size < 1 {
			return
		}
		speak := func(size int) voice {
			h := &heard{Conn: writing{Writer: io.Discard}, spoke: make(chan struct{})}
			for piece := range slices.Chunk(b, size) {
				_, err := h.Write(piece)
				require.NoError(t, err)
				require.NotEqual(t, silent, voice(h.voice.Load()))
			}
			return voice(h.voice.Load())
		}
		if whole, got := speak(len(b)), speak(size); got != whole {
			require.Equal(t, turning, got)
			require.Equal(t, byte('0'), b[0], "of LDAP the length comes first")
		}
	})
}
