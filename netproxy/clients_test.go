package netproxy

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A TLS server that real programs trust is one whose certificate they are
// told of: httptest's, for example.com, which is its own CA.
func tlsServer(t *testing.T, h http.Handler) (srv *httptest.Server, ca string) {
	t.Helper()
	srv = httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	require.NoError(t, os.WriteFile(ca, block, 0o644))
	return srv, ca
}

// command runs a program with the proxy's variables and no other network
// settings, and returns all that it printed.
func (f *fixture) command(ca string, argv ...string) (string, error) {
	f.t.Helper()
	return f.commandIn(f.t.TempDir(), ca, nil, argv...)
}

// commandIn runs a program in a home of the test's, with more variables.
func (f *fixture) commandIn(home, ca string, env []string, argv ...string) (string, error) {
	f.t.Helper()
	path, err := exec.LookPath(argv[0])
	if err != nil {
		f.t.Skipf("needs %s", argv[0])
	}
	cmd := exec.CommandContext(f.t.Context(), path, argv[1:]...)
	cmd.Dir = home
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C",
		"CURL_CA_BUNDLE=" + ca, "GIT_SSL_CAINFO=" + ca, "NODE_EXTRA_CA_CERTS=" + ca, "SSL_CERT_FILE=" + ca, "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_NOSYSTEM=1",
	}
	for _, name := range []string{"PYENV_ROOT", "RUSTUP_HOME"} { // where shims find what they stand for
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		} else if dir := os.Getenv("HOME") + "/." + strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(name, "_ROOT"), "_HOME")); exists(dir) {
			cmd.Env = append(cmd.Env, name+"="+dir)
		}
	}
	cmd.Env = AddEnviron(append(cmd.Env, env...), "http://"+f.addr)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

const pythonFetch = `
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1]).read().decode())
except urllib.error.HTTPError as e:
    print(e, e.read().decode()); sys.exit(1)
except urllib.error.URLError as e:
    print(e); sys.exit(1)
`

// TestClients runs real programs with nothing but the variables of Environ,
// each toward an allowed host and a denied one.
func TestClients(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Host) })
	secure, ca := tlsServer(t, handler)
	plain := httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	for _, c := range []struct {
		name, scheme string
		argv         []string
		denied       string // what the program tells of the refusal
	}{
		{"curl", "https", []string{"curl", "-sS"}, "403"},
		{"curl, http", "http", []string{"curl", "-sS"}, `allow_with="--allow www.example.com"`},
		{"curl with SOCKS", "https", []string{"curl", "-sS", "--socks5-hostname", "PROXY"}, ""},
		{"wget", "https", []string{"wget", "-nv", "-t1", "-O-", "--ca-certificate=" + ca}, "Denied by pccrun"},
		{"python", "https", []string{"python3", "-c", pythonFetch}, "Denied by pccrun (to allow: --allow www.example.com)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t, nil, "example.com")
			for _, host := range []string{"example.com", "www.example.com"} {
				f.host(host, 443, secure.Listener.Addr().String())
				f.host(host, 80, plain.Listener.Addr().String())
			}
			argv := append([]string{}, c.argv...)
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], "PROXY", f.addr)
			}
			out, err := f.command(ca, append(argv, c.scheme+"://example.com/")...)
			require.NoError(t, err, out)
			require.Contains(t, out, "hello example.com")
			out, err = f.command(ca, append(argv, c.scheme+"://www.example.com/")...)
			require.Equal(t, c.scheme == "https", err != nil, out)
			require.NotContains(t, out, "hello")
			require.Contains(t, out, c.denied)
			require.Equal(t, "www.example.com", f.waitEvent(Denied).Verdict.Host)
			for _, d := range f.dials() {
				require.True(t, strings.HasPrefix(d, publicAddr), d)
			}
		})
	}
}

// TestGit clones over https, by git's dumb protocol from plain files.
func TestGit(t *testing.T) {
	f := start(t, nil, "example.com")
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		out, err := f.command("", append([]string{"git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"}, args...)...)
		require.NoError(t, err, out)
	}
	git("init", "-q", "work")
	require.NoError(t, os.WriteFile(filepath.Join(root, "work", "file"), []byte("content\n"), 0o644))
	git("-C", "work", "add", "file")
	git("-C", "work", "commit", "-q", "-m", "one")
	git("clone", "-q", "--bare", "work", "repo.git")
	git("-C", "repo.git", "update-server-info")
	srv, ca := tlsServer(t, http.FileServer(http.Dir(root)))
	f.host("example.com", 443, srv.Listener.Addr().String())
	f.host("www.example.com", 443, srv.Listener.Addr().String())
	target := filepath.Join(t.TempDir(), "clone")
	out, err := f.command(ca, "git", "clone", "-q", "https://example.com/repo.git", target)
	require.NoError(t, err, out)
	b, err := os.ReadFile(filepath.Join(target, "file"))
	require.NoError(t, err)
	require.Equal(t, "content\n", string(b))
	out, err = f.command(ca, "git", "clone", "-q", "https://www.example.com/repo.git", target+"2")
	require.Error(t, err)
	require.Contains(t, out, "403")
}

// TestALPN holds that what runs inside a tunnel is left as it is.
func TestALPN(t *testing.T) {
	f := start(t, nil, "example.com")
	srv, _ := tlsServer(t, http.NotFoundHandler())
	f.host("example.com", 443, srv.Listener.Addr().String())
	c := f.raw("CONNECT example.com:443 HTTP/1.1\r\n\r\n")
	_, err := io.ReadFull(c, make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n")))
	require.NoError(t, err)
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	require.NoError(t, secure.Handshake())
	require.Equal(t, "h2", secure.ConnectionState().NegotiatedProtocol)
	require.NoError(t, secure.Close())
	_, isTCP := c.(*net.TCPConn)
	require.True(t, isTCP)
}
