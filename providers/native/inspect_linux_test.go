package native

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/providers"
)

// The process that reads requests is this program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == wire.Verb {
		os.Exit(inspect.Main())
	}
	if os.Getenv(racerVariable) != "" {
		race()
	}
	os.Exit(m.Run())
}

const token = "tok_0123456789abcdefghijABCDEFGHIJ"

// server is a TLS server at an address of this machine that is not its
// loopback, and the file of its certificate. It says what it was asked.
func server(t *testing.T) (hostPort, ca string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP.To4()
		if ip == nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{ip},
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		require.NoError(t, err)
		ca = filepath.Join(t.TempDir(), "ca.pem")
		require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
		ln, err := tls.Listen("tcp", net.JoinHostPort(ip.String(), "0"), &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"h2", "http/1.1"},
		})
		require.NoError(t, err)
		srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			right := "no"
			if r.Header.Get("X-Key") == token {
				right = "yes"
			}
			fmt.Fprintf(w, "%s %s right=%s echo=%s\n", r.Method, r.URL.Path, right, r.Header.Get("X-Key"))
		})}
		go srv.Serve(ln)
		t.Cleanup(func() { srv.Close() })
		return ln.Addr().String(), ca
	}
	t.Skip("needs an address that is not loopback's")
	return "", ""
}

func TestInspectedRequests(t *testing.T) {
	unprivileged(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	b := newBench(t)
	host, ca := server(t)
	b.mine("SSL_CERT_FILE=" + ca)
	b.request.Allow = []string{"GET https://" + host + "/ok/**"}
	got := b.sh("curl -sS https://" + host + "/ok/x; curl -sS https://" + host + "/no; curl -sS -X PUT https://" + host + "/ok/x; env -i PATH=$PATH HTTPS_PROXY=$HTTPS_PROXY curl -sS https://" + host + "/ok/bare; cat /run/pccrun/ca.pem")
	require.NoError(t, got.err)
	require.Contains(t, got.out, "GET /ok/x right=no")
	require.Contains(t, got.out, "GET /ok/bare", "trusted without a variable")
	require.Contains(t, got.out, "allow_with=\"--allow 'GET https://"+host+"/no'\"")
	require.Contains(t, got.out, "allow_with=\"--allow 'PUT https://"+host+"/ok/x'\"")
	require.Contains(t, got.out, "BEGIN CERTIFICATE")
	require.NotContains(t, got.out, "PRIVATE")
	var requests []string
	opened, closed := 0, 0
	for _, e := range b.events {
		switch {
		case e.Request != "":
			requests = append(requests, string(e.Kind)+" "+strings.ReplaceAll(e.Request, host, "HOST"))
		case e.Kind == netproxy.Opened:
			opened++
		case e.Kind == netproxy.Closed:
			closed++
			require.NotZero(t, e.Up)
			require.NotZero(t, e.Down)
		}
	}
	require.Equal(t, []string{"opened GET https://HOST/ok/x", "denied GET https://HOST/no", "denied PUT https://HOST/ok/x", "opened GET https://HOST/ok/bare"}, requests)
	require.Equal(t, 4, opened)
	require.Equal(t, 4, closed)
}

func TestInjected(t *testing.T) {
	unprivileged(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	b := newBench(t)
	host, ca := server(t)
	b.state = filepath.Join(b.home, ".state")
	b.mine("SSL_CERT_FILE=" + ca)
	b.environ = []string{"MY_TOKEN=" + token}
	b.request.Allow = []string{host}
	b.request.Inject = []string{"MY_TOKEN=" + host}
	script := "echo $MY_TOKEN; curl -sS -H \"X-Key: $MY_TOKEN\" https://" + host + "/x; env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'"
	got := b.sh(script)
	require.NoError(t, got.err)
	placeholder, _, _ := strings.Cut(got.out, "\n")
	require.Len(t, placeholder, len(token))
	require.True(t, strings.HasPrefix(placeholder, "tok_"), placeholder)
	require.Contains(t, got.out, "GET /x right=yes echo="+placeholder)
	require.NotContains(t, got.out, token, "the secret was inside")
	again := b.sh("echo $MY_TOKEN")
	require.Equal(t, placeholder+"\n", again.out, "the same in each run")

	// The control: passed by its name it is inside.
	b.request.Inject, b.request.Env = nil, []string{"MY_TOKEN"}
	require.Contains(t, b.sh(script).out, token)
}

// TestTrusted has programs of several makes trust what certifies the host:
// each brings what it trusts by itself, or looks at a variable of its own.
func TestTrusted(t *testing.T) {
	unprivileged(t)
	host, ca := server(t)
	for name, script := range map[string]string{
		"wget":    `wget -qO- --header "X-Key: $MY_TOKEN" $URL`,
		"python3": `python3 -c 'import os,urllib.request as u; print(u.urlopen(u.Request(os.environ["URL"], headers={"X-Key": os.environ["MY_TOKEN"]})).read().decode())'`,
		"git":     `git -c http.extraHeader="X-Key: $MY_TOKEN" ls-remote $URL 2>&1 | grep -q "is this a git repository" && echo right=yes`,
		"java":    `java Fetch.java $URL`,
		"node":    `node -e 'fetch(process.env.URL, {headers: {"x-key": process.env.MY_TOKEN}}).then(r => r.text()).then(console.log)'`,
		"openssl": `openssl s_client -proxy ${HTTPS_PROXY#http://} -connect ` + host + ` </dev/null 2>&1 | grep -q "Verify return code: 0" && echo right=yes`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip("needs " + name)
			}
			b := newBench(t)
			b.write("work/Fetch.java", `import java.net.*; import java.net.http.*;
class Fetch { public static void main(String[] a) throws Exception {
  System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).header("X-Key", System.getenv("MY_TOKEN")).build(), HttpResponse.BodyHandlers.ofString()).body());
} }`)
			b.mine("SSL_CERT_FILE=" + ca)
			b.environ = []string{"MY_TOKEN=" + token}
			b.request.Env = []string{"URL=https://" + host + "/x"}
			b.request.Allow, b.request.Inject = []string{host}, []string{"MY_TOKEN=" + host}
			got := b.sh(script)
			require.NoError(t, got.err)
			require.Contains(t, got.out, "right=yes")
			require.NotContains(t, got.out, token)
		})
	}
}

// TestInspectorDies: no connection passes uninspected.
func TestInspectorDies(t *testing.T) {
	unprivileged(t)
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	b := newBench(t)
	host, ca := server(t)
	b.mine("SSL_CERT_FILE=" + ca)
	b.request.Allow = []string{"GET https://" + host + "/ok/**"}
	s, wait := b.start("/bin/sh", "-c", "curl -sS https://"+host+"/ok/1; echo one; while [ ! -e gone ]; do sleep 0.01; done; curl -sSk https://"+host+"/ok/2; curl -sSk https://"+host+"/no")
	require.NotNil(t, s)
	await.Until(t, "the first request is through", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.events) >= 3
	})
	pid := inspector(t)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	await.Until(t, "the inspector has ended", func() bool { return ended(pid) })
	b.write("work/gone", "")
	got := wait()
	require.Contains(t, got.out, "GET /ok/1")
	require.NotContains(t, got.out, "/ok/2 right")
	require.NotContains(t, got.out, "/no right")
}

// inspector returns the process that reads requests: a child of this one.
func inspector(t *testing.T) int {
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil || string(line) != "pccrun\x00"+wire.Verb+"\x00" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		require.NoError(t, err)
		status, err := os.ReadFile(filepath.Dir(name) + "/status")
		if err == nil && strings.Contains(string(status), fmt.Sprintf("PPid:\t%d\n", os.Getpid())) {
			return pid
		}
	}
	require.Fail(t, "no process reads requests")
	return 0
}

// ended says whether a process has nothing open any more.
func ended(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || strings.Contains(string(status), "State:\tZ")
}

// What is injected where there is no network at all is refused with what mends it.
func TestInjectedWithoutNetwork(t *testing.T) {
	for _, c := range []struct {
		deny        []string
		cause, hint string
	}{
		{[]string{"a.example"}, "there is no network: its host a.example is denied by the rule a.example (flag --deny)", "remove it"},
		{nil, "there is no network: no rule allows its host a.example", "--allow a.example"},
	} {
		b := newBench(t)
		b.environ = []string{"MY_TOKEN=" + token}
		b.request.Deny, b.request.Inject = c.deny, []string{"MY_TOKEN=a.example"}
		_, err := b.plan("/bin/true")
		require.ErrorContains(t, err, c.cause)
		var missing *providers.MissingError
		require.ErrorAs(t, err, &missing)
		require.Contains(t, missing.Hint(), c.hint)
	}
	b := newBench(t) // the control: it does mend it
	b.environ = []string{"MY_TOKEN=" + token}
	b.request.Allow, b.request.Inject = []string{"a.example"}, []string{"MY_TOKEN=a.example"}
	r, err := b.plan("/bin/true")
	require.NoError(t, err)
	require.NotContains(t, strings.Join(r.Plan.Command.Env, "\n"), token)
}
