package inspect

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
)

// pair is a control socket, by both of its ends.
func pair(t *testing.T) (launcher, inspector *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	conns := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "control")
		c, err := net.FileConn(f)
		f.Close()
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		conns[i] = c.(*net.UnixConn)
		conns[i].SetDeadline(await.Deadline())
	}
	return conns[0], conns[1]
}

// setup writes a setup into a pipe.
func setup(t *testing.T, s any) io.ReadCloser {
	t.Helper()
	text, ok := s.(string)
	if !ok {
		b, err := json.Marshal(s)
		require.NoError(t, err)
		text = string(b)
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	go func() {
		io.WriteString(w, text)
		w.Close()
	}()
	return r
}

// nothing is taken from the test's own process.
func nothing() error { return nil }

// TestServe speaks to the process as the launcher does.
func TestServe(t *testing.T) {
	launcher, inspector := pair(t)
	done := make(chan error, 1)
	pipe := setup(t, wire.Setup{
		Inspects: true,
		Secrets:  []wire.Secret{{Placeholder: placeholder, Value: secret, Hosts: []string{"https://api.example.com"}}},
	})
	var passed atomic.Int64 // since it began, as its clock has it
	begin := time.Now()
	go func() {
		done <- serve(inspector, pipe, &alive{clock: func() time.Time { return begin.Add(time.Duration(passed.Load())) }}, nothing)
		inspector.Close()
	}()
	buf, oob := make([]byte, wire.MaxMessage), make([]byte, 256)
	n, oobn, _, _, err := launcher.ReadMsgUnix(buf, oob)
	require.NoError(t, err)
	require.JSONEq(t, "{}", string(buf[:n]))
	fds := rights(oob[:oobn])
	require.Len(t, fds, 3)
	var files [3][]byte
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "trust")
		files[i], err = io.ReadAll(io.NewSectionReader(f, 0, 8<<20))
		require.NoError(t, err)
		f.Close()
	}
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(files[0]))
	require.Contains(t, string(files[1]), string(files[0]))
	require.NotEmpty(t, files[2])

	next := func() (m wire.ToLauncher) {
		t.Helper()
		n, err := launcher.Read(buf)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(buf[:n], &m))
		return m
	}
	say := func(m wire.ToProcess, c net.Conn) {
		t.Helper()
		text, err := json.Marshal(m)
		require.NoError(t, err)
		if c == nil {
			_, err = launcher.Write(text)
			require.NoError(t, err)
			return
		}
		raw, err := c.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) { _, _, err = launcher.WriteMsgUnix(text, unix.UnixRights(int(fd)), nil) }))
		require.NoError(t, err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	connected := func() (client, served net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { client.Close() })
		client.SetDeadline(await.Deadline())
		served, err = ln.Accept()
		require.NoError(t, err)
		return client, served
	}
	// A connection whose socket was lost, for want of descriptors, is over.
	lose := func() {
		t.Helper()
		say(wire.ToProcess{ID: 6, Begin: &wire.Begin{}}, nil)
		require.Equal(t, "too many open files", next().Report.Error)
		m := next()
		require.EqualValues(t, 6, m.ID)
		require.True(t, m.Report.Closed)
	}
	lose()
	client, served := connected()
	say(wire.ToProcess{ID: 7, Begin: &wire.Begin{To: &rules.Verdict{Action: rules.Inspect, Host: "git.example.com", Port: 443}}}, served)
	served.Close()
	c := tls.Client(client, &tls.Config{ServerName: "git.example.com", RootCAs: trusted})
	br := bufio.NewReader(c)
	status := func(asked bool) int {
		t.Helper()
		_, err := io.WriteString(c, "POST /x HTTP/1.1\r\nHost: git.example.com\r\n\r\n")
		require.NoError(t, err)
		if asked {
			m := next()
			require.EqualValues(t, 7, m.ID)
			require.Equal(t, "POST https://git.example.com/x", m.Question.Request)
			say(wire.ToProcess{ID: 7, Number: m.Asked, Answer: &wire.Answer{Verdict: rules.Verdict{Host: "git.example.com", Port: 443}}}, nil)
		}
		resp, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	require.Equal(t, 403, status(true))
	passed.Add(int64(wire.Patience) / 2)
	say(wire.ToProcess{}, nil)
	lose() // which comes after the beat
	passed.Add(int64(wire.Patience) * 3 / 4)
	require.Equal(t, 403, status(true), "the launcher was heard of")
	passed.Add(int64(wire.Patience) * 3 / 2)
	require.Equal(t, 503, status(false), "a launcher that is stopped")
	say(wire.ToProcess{}, nil)
	m := next()
	require.EqualValues(t, 7, m.ID)
	require.True(t, m.Report.Closed)
	require.NotZero(t, m.Report.Up)

	// A client of the proxy: its tunnel is given back with what came early, and a request goes
	// over what was dialled for it.
	client, served = connected()
	say(wire.ToProcess{ID: 8, Begin: &wire.Begin{Early: []byte("CONNECT ok.example:443 HTTP/1.1\r\n\r\nearly")}}, served)
	m = next()
	require.Equal(t, "ok.example", m.Question.Host)
	say(wire.ToProcess{ID: 8, Number: m.Asked, Answer: &wire.Answer{Verdict: rules.Verdict{Action: rules.Allow, Host: "ok.example", Port: 443}}}, nil)
	m = next()
	require.True(t, m.Report.Tunnel)
	require.Equal(t, "early", string(m.Report.Early))
	_, err = io.WriteString(served, "still open")
	require.NoError(t, err)
	_, err = io.ReadFull(client, make([]byte, len("still open")))
	require.NoError(t, err)

	client, served = connected()
	host, dialled := connected()
	say(wire.ToProcess{ID: 9, Begin: &wire.Begin{}}, served)
	served.Close()
	io.WriteString(client, "GET http://ok.example/x HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
	m = next()
	say(wire.ToProcess{ID: 9, Number: m.Asked, Answer: &wire.Answer{Verdict: rules.Verdict{Action: rules.Allow, Host: "ok.example", Port: 80}}}, dialled)
	dialled.Close()
	r, err := http.ReadRequest(bufio.NewReader(host))
	require.NoError(t, err)
	require.Equal(t, "ok.example/x", r.Host+r.RequestURI)
	io.WriteString(host, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	resp, err := http.ReadResponse(bufio.NewReader(client), nil)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	m = next()
	require.Equal(t, wire.Report{Number: 1, Closed: true, Down: 5}, *m.Report)
	require.True(t, next().Report.Closed)

	client, served = connected()
	say(wire.ToProcess{ID: 10, Begin: &wire.Begin{Early: []byte("GET ")}}, served)
	lose() // which comes after it
	require.NoError(t, launcher.CloseWrite())
	m = next()
	require.EqualValues(t, 10, m.ID)
	require.True(t, m.Report.Closed)
	require.NoError(t, <-done, "it ends with the launcher")
}

func TestServeRefuses(t *testing.T) {
	for want, s := range map[string]any{
		"read setup":     "{",
		"not a host":     wire.Setup{Secrets: []wire.Secret{{Hosts: []string{"a b c"}[:0]}, {Hosts: []string{"a%b"}}}},
		"no such file":   wire.Setup{Inspects: true, Certificates: []string{"/nonexistent/x.pem"}},
		"use of closed ": wire.Setup{},
		"confined":       wire.Setup{},
	} {
		_, inspector := pair(t)
		take := nothing
		switch want {
		case "use of closed ":
			inspector.Close()
		case "confined":
			take = func() error { return errors.New("not confined") }
		}
		require.ErrorContains(t, serve(inspector, setup(t, s), &alive{clock: time.Now}, take), want)
	}
	launcher, inspector := pair(t)
	done := make(chan error, 1)
	go func() { done <- serve(inspector, setup(t, wire.Setup{}), &alive{clock: time.Now}, nothing) }()
	_, err := launcher.Read(make([]byte, 10))
	require.NoError(t, err)
	_, err = launcher.Write([]byte("not from a launcher"))
	require.NoError(t, err)
	require.NoError(t, <-done)
	require.Empty(t, rights([]byte("nonsense")))
}

// TestTrust: a file of certificates may hold a key, which must not go inside.
func TestTrust(t *testing.T) {
	ca, err := newAuthority()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "mixed.pem")
	text := "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + string(ca.pem()) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	tr, err := readTrust([]string{file, file})
	require.NoError(t, err)
	mine, err := newAuthority()
	require.NoError(t, err)
	all, java, err := tr.bundles(mine)
	require.NoError(t, err)
	require.Contains(t, string(all), string(ca.pem()))
	require.Contains(t, string(all), string(mine.pem()))
	require.NotContains(t, string(all), "PRIVATE")
	require.NotContains(t, string(all), "\nAAAA\n")
	require.NotEmpty(t, java)
	_, err = ca.cert.Verify(x509.VerifyOptions{Roots: tr.pool})
	require.NoError(t, err)
	_, err = mine.cert.Verify(x509.VerifyOptions{Roots: tr.pool})
	require.Error(t, err, "our own authority is trusted inside alone")
}
