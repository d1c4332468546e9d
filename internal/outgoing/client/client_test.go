package client

import (
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/internal/private"
	"github.com/pccrun/pccrun/internal/programs"
)

// server is one with a certificate of its own authority, which stands in a file.
func server(t *testing.T, dir string) (address, file string) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	t.Cleanup(s.Close)
	file = filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644))
	return s.URL, file
}

// get asks a server, and returns what the user heard.
func get(t *testing.T, home, address string, environ ...string) (said string, err error) {
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	var notes []string
	c := New(home, environ, func(text string) { notes = append(notes, text) })
	defer c.CloseIdleConnections()
	r, err := c.Get(address)
	if err == nil {
		r.Body.Close()
	}
	return strings.Join(notes, "\n"), err
}

// What a project could have put there is not trusted: SSL_CERT_FILE in a path that a user can write. The user's own line makes it count.
func TestCertificates(t *testing.T) {
	home, shared := private.Dir(t), t.TempDir() // which lies where everybody can write
	address, file := server(t, shared)
	said, err := get(t, home, address, "SSL_CERT_FILE="+file)
	require.ErrorContains(t, err, "certificate")
	require.Contains(t, said, "SSL_CERT_FILE="+file+" of the environment does not count")
	said, err = get(t, home, address, "SSL_CERT_DIR="+shared)
	require.ErrorContains(t, err, "certificate")
	require.Contains(t, said, "SSL_CERT_DIR")

	path := filepath.Join(home, outgoing.File)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("# mine\nSSL_CERT_FILE="+file+"\n"), 0o600))
	said, err = get(t, home, address, "SSL_CERT_FILE="+file)
	require.NoError(t, err, "the control")
	require.Empty(t, said)
	_, err = get(t, home, address)
	require.NoError(t, err, "nor need the environment say so")

	// A directory in the one that is named is passed over; a file that is not there is each call's error.
	require.NoError(t, os.Mkdir(filepath.Join(shared, "more"), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("SSL_CERT_DIR="+shared+"\n"), 0o600))
	_, err = get(t, home, address)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("SSL_CERT_FILE="+file+".gone\n"), 0o600))
	_, err = get(t, home, address)
	require.ErrorContains(t, err, "read certificates: ")
	require.NoError(t, os.Chmod(path, 0o666))
	_, err = get(t, home, address)
	require.ErrorContains(t, err, "that only you can write")
}

// A path that is root's alone counts, and is named.
//
//test:root
func TestRootsCertificates(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	home := private.Dir(t)
	address, file := server(t, home)
	said, err := get(t, "", address, "SSL_CERT_FILE="+file)
	require.NoError(t, err)
	require.Equal(t, "SSL_CERT_FILE="+file+" of the environment counts for what pccrun itself sends", said)
	require.NoError(t, os.Chmod(file, 0o664))
	_, err = get(t, "", address, "SSL_CERT_FILE="+file)
	require.ErrorContains(t, err, "certificate", "a group can write it")
	require.NoError(t, os.Chmod(file, 0o644))
	link := filepath.Join(t.TempDir(), "link.pem")
	require.NoError(t, os.Symlink(file, link))
	_, err = get(t, "", address, "SSL_CERT_FILE="+link)
	require.ErrorContains(t, err, "certificate", "a link that everybody could have made")
	runs := &programs.Finder{Records: programs.Records(home, "")}
	require.NoError(t, runs.Cover([]string{home + "/other"}))
	_, err = get(t, home, address, "SSL_CERT_FILE="+file)
	require.NoError(t, err, "the control")
	require.NoError(t, runs.Cover([]string{home}))
	_, err = get(t, home, address, "SSL_CERT_FILE="+file)
	require.ErrorContains(t, err, "certificate", "a run of root's could write it")
}

// No redirect is followed.
func TestRedirect(t *testing.T) {
	followed := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed++ }))
	defer other.Close()
	s := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer s.Close()
	_, err := get(t, private.Dir(t), s.URL)
	require.NoError(t, err)
	require.Zero(t, followed, "a header with a key would go along")
	_, err = get(t, private.Dir(t), other.URL)
	require.NoError(t, err)
	require.Equal(t, 1, followed, "the control")
}

// A proxy of the environment gets nothing, unless the user has the line.
func TestProxy(t *testing.T) {
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer proxy.Close()
	home := private.Dir(t)
	line := "http_proxy=" + proxy.URL
	said, err := get(t, home, "http://host.invalid/", line)
	require.Error(t, err)
	require.Zero(t, asked)
	require.Contains(t, said, "http_proxy of the environment does not count")
	require.NotContains(t, said, proxy.URL, "it may hold a password")
	path := filepath.Join(home, outgoing.File)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o600))
	_, err = get(t, home, "http://host.invalid/", line)
	require.NoError(t, err)
	require.Equal(t, 1, asked)
}

// TestProcess: a library's own client goes the same way, in a process of its own: by the proxy and authorities of the user's file,
// whatever the environment says.
func TestProcess(t *testing.T) {
	const child = "PCCRUN_TEST_PROCESS"
	if how, is := os.LookupEnv(child); is {
		if how != "" {
			require.NoError(t, Process(how, os.Environ(), "https://example.com", func(string) {}))
		}
		r, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}).Get("https://example.com")
		require.NoError(t, err)
		r.Body.Close()
		return
	}
	home := private.Dir(t)
	address, file := server(t, home)
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.WriteHeader(http.StatusOK)
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		to, err := net.Dial("tcp", strings.TrimPrefix(address, "https://"))
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(to, from); to.Close() }()
		_, _ = io.Copy(from, to)
	}))
	defer proxy.Close()
	path := filepath.Join(home, outgoing.File)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte("https_proxy="+proxy.URL+"\nSSL_CERT_FILE="+file+"\n"), 0o600))
	run := func(how string) error {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProcess$")
		c.Env = append(os.Environ(), child+"="+how, "HTTPS_PROXY=http://127.0.0.1:1", "SSL_CERT_FILE=/dev/null")
		return c.Run()
	}
	require.NoError(t, run(home))
	require.Equal(t, 1, asked)
	require.Error(t, run(""), "the control: without it the environment counts")
	require.Equal(t, 1, asked)
}
