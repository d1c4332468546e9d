package inspect

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
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

// TestServe speaks to the process as the launcher does.
func TestServe(t *testing.T) {
	launcher, inspector := pair(t)
	done := make(chan error, 1)
	pipe := setup(t, wire.Setup{
		Rules:   []string{"GET https://git.example.com/**", "api.example.com"},
		Secrets: []wire.Secret{{Placeholder: placeholder, Value: secret, Hosts: []string{"https://api.example.com"}}},
	})
	var passed atomic.Int64 // since it began, as its clock has it
	begin := time.Now()
	go func() {
		done <- serve(inspector, pipe, &alive{clock: func() time.Time { return begin.Add(time.Duration(passed.Load())) }})
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

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	served, err := ln.Accept()
	require.NoError(t, err)
	file, err := served.(*net.TCPConn).File()
	require.NoError(t, err)
	served.Close()
	// A connection whose socket was lost, for want of descriptors, is over.
	lose := func() {
		t.Helper()
		_, err := launcher.Write([]byte(`{"id":6}`))
		require.NoError(t, err)
		n, err := launcher.Read(buf)
		require.NoError(t, err)
		var r wire.Report
		require.NoError(t, json.Unmarshal(buf[:n], &r))
		require.Equal(t, wire.Report{ID: 6, Closed: true, Error: "too many open files"}, r)
	}
	lose()
	var r wire.Report
	text, err := json.Marshal(wire.Connection{ID: 7, Verdict: rules.Verdict{Action: rules.Inspect, Host: "git.example.com", Port: 443}})
	require.NoError(t, err)
	_, _, err = launcher.WriteMsgUnix(text, unix.UnixRights(int(file.Fd())), nil)
	require.NoError(t, err)
	file.Close()
	client.SetDeadline(await.Deadline())
	c := tls.Client(client, &tls.Config{ServerName: "git.example.com", RootCAs: trusted})
	_, err = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: git.example.com\r\n\r\n")
	require.NoError(t, err)
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	require.NoError(t, err)
	require.Equal(t, 403, resp.StatusCode)
	io.Copy(io.Discard, resp.Body)
	n, err = launcher.Read(buf)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(buf[:n], &r))
	require.EqualValues(t, 7, r.ID)
	require.Equal(t, rules.Deny, r.Verdict.Action)
	require.Equal(t, "POST https://git.example.com/x", r.Request)
	beat, err := json.Marshal(wire.Connection{})
	require.NoError(t, err)
	ask := func() int {
		_, err := io.WriteString(c, "POST /x HTTP/1.1\r\nHost: git.example.com\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(br, nil)
		require.NoError(t, err)
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	passed.Add(int64(wire.Patience) / 2)
	_, err = launcher.Write(beat)
	require.NoError(t, err)
	lose() // which comes after the beat
	passed.Add(int64(wire.Patience) * 3 / 4)
	require.Equal(t, 403, ask(), "the launcher was heard of")
	_, err = launcher.Read(buf)
	require.NoError(t, err)
	passed.Add(int64(wire.Patience) / 2)
	require.Equal(t, 503, ask(), "a launcher that is stopped")
	require.NoError(t, launcher.CloseWrite())
	n, err = launcher.Read(buf)
	require.NoError(t, err)
	r = wire.Report{}
	require.NoError(t, json.Unmarshal(buf[:n], &r))
	require.True(t, r.Closed)
	require.NotZero(t, r.Up)
	require.NoError(t, <-done, "it ends with the launcher")
}

func TestServeRefuses(t *testing.T) {
	for want, s := range map[string]any{
		"read setup":     "{",
		"allow *":        wire.Setup{Rules: []string{"*"}},
		"not a host":     wire.Setup{Secrets: []wire.Secret{{Hosts: []string{"a b c"}[:0]}, {Hosts: []string{"a%b"}}}},
		"HTTPS_PROXY":    wire.Setup{HTTPSProxy: "socks5://x"},
		"is on this":     wire.Setup{HTTPSProxy: "http://127.0.0.1:9", ProxyPorts: []string{"8"}},
		"no such file":   wire.Setup{Certificates: []string{"/nonexistent/x.pem"}},
		"use of closed ": wire.Setup{},
	} {
		_, inspector := pair(t)
		if want == "use of closed " {
			inspector.Close()
		}
		require.ErrorContains(t, serve(inspector, setup(t, s), &alive{clock: time.Now}), want)
	}
	_, _, err := configure(&wire.Setup{HTTPSProxy: "http://127.0.0.1:9", ProxyPorts: []string{"9"}})
	require.NoError(t, err, "the control: the port is named")
	launcher, inspector := pair(t)
	done := make(chan error, 1)
	go func() { done <- serve(inspector, setup(t, wire.Setup{}), &alive{clock: time.Now}) }()
	_, err = launcher.Read(make([]byte, 10))
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
