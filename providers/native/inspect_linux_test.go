package native

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
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
	b.environ = []string{"SSL_CERT_FILE=" + ca}
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
	b.environ = []string{"SSL_CERT_FILE=" + ca, "MY_TOKEN=" + token}
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
			b.environ = []string{"SSL_CERT_FILE=" + ca, "MY_TOKEN=" + token}
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
	b.environ = []string{"SSL_CERT_FILE=" + ca}
	b.request.Allow = []string{"GET https://" + host + "/ok/**"}
	s, wait := b.start("/bin/sh", "-c", "curl -sS https://"+host+"/ok/1; echo one; while [ ! -e gone ]; do sleep 0.01; done; curl -sSk https://"+host+"/ok/2; curl -sSk https://"+host+"/no")
	require.NotNil(t, s)
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.events) >= 3
	}, 10*time.Second, 5*time.Millisecond)
	require.NoError(t, s.run.inspection.process.Kill())
	<-s.run.inspection.drained
	b.write("work/gone", "")
	got := wait()
	require.Contains(t, got.out, "GET /ok/1")
	require.NotContains(t, got.out, "/ok/2 right")
	require.NotContains(t, got.out, "/no right")
}

func TestInspectorFails(t *testing.T) {
	b := newBench(t)
	b.request.Allow = []string{"GET https://a.example/x"}
	run, err := b.plan("/bin/true")
	require.NoError(t, err)
	require.ErrorIs(t, run.StartInspector(func() (*os.File, error) { return nil, os.ErrNotExist }), os.ErrNotExist)
	require.ErrorContains(t, run.StartInspector(func() (*os.File, error) { return os.Open("/bin/true") }), "inspection: ")
	run.Abandon() // nothing began
	require.NoError(t, run.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }))
	pid := run.inspection.process.Pid
	require.NoError(t, unix.Kill(pid, 0))
	run.Abandon()
	require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)

	run, err = b.plan("/bin/true")
	require.NoError(t, err)
	run.inspection.setup.Rules = []string{"*"}
	require.ErrorContains(t, run.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }), "allow * is refused")
	run.inspection.setup.Rules, run.inspection.setup.Certificates = nil, []string{"/nonexistent.pem"}
	require.ErrorContains(t, run.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }), "nonexistent")
	require.ErrorContains(t, run.inspection.take(netproxy.Handover{}), "not a TCP connection")
}

// TestSecretSources reads values from files and commands, and refuses those
// that the command could see or choose.
func TestSecretSources(t *testing.T) {
	b := newBench(t)
	marker := filepath.Join(t.TempDir(), "ran")
	require.NoError(t, os.Mkdir(filepath.Join(b.home, "bin"), 0o755))
	b.write("token", token+"\n")
	b.write("windows", token+"\r\n")
	b.write("lines", token+"\n\n")
	b.write("long", strings.Repeat("x", 9000))
	b.write("bin/printer", "#!/bin/sh\necho ran >>"+marker+"\nprintf '%s\\n' \"$1\"\n")
	b.write("bin/failing", "#!/bin/sh\necho "+token+"; echo "+token+" >&2; exit 3\n")
	b.write("bin/slow", "#!/bin/sh\nsleep 60\n")
	b.write("bin/endless", "#!/bin/sh\nexec yes "+token+"\n")
	b.write("bin/where", "#!/bin/sh\n[ \"$PWD\" = / ] && [ \"$MY_OTHER\" = passed ] && [ ! -t 0 ] && echo "+token+"\n")
	b.write("work/token", token)
	b.write("work/printer", "#!/bin/sh\necho "+token+"\n")
	for _, name := range []string{"bin/printer", "bin/failing", "bin/slow", "bin/endless", "bin/where", "work/printer"} {
		require.NoError(t, os.Chmod(filepath.Join(filepath.Dir(b.workspace), name), 0o755))
	}
	top := filepath.Dir(b.workspace)
	require.NoError(t, os.Symlink(filepath.Join(b.workspace, "token"), filepath.Join(top, "link")))
	require.NoError(t, os.Mkdir(filepath.Join(top, "lent"), 0o755))
	require.NoError(t, os.Symlink("../bin/printer", filepath.Join(top, "lent/printer")))
	b.request.Files = append(b.request.Files, profiles.FileFlag{Path: filepath.Join(top, "lent"), Access: profiles.Write})
	require.NoError(t, unix.Mkfifo(filepath.Join(top, "fifo"), 0o600))
	b.environ = []string{"MY_OTHER=passed", "PATH=" + filepath.Join(b.workspace) + ":" + filepath.Join(top, "bin") + ":" + os.Getenv("PATH")}
	for _, c := range []struct {
		file, command, want string
		hint                string
	}{
		{file: "token"}, {file: "windows"}, {command: "printer " + token}, {command: "where"}, {command: top + "/bin/printer " + token},
		{file: "lines", want: "does not belong in a header"},
		{file: "long", want: "over 8192 bytes"},
		{file: "none", want: "none: no such file"},
		{file: "fifo", want: "not a regular file"},
		{file: "bin", want: "not a regular file"},
		{file: "work/token", want: "in the workspace"},
		{file: "link", want: "in the workspace"},
		{file: "/etc/hostname", want: "the policy shows the file inside", hint: "--hide /etc/hostname"},
		{command: "failing", want: "failing: exit status 3"},
		{command: "slow", want: "nothing within 200ms"},
		{command: "endless", want: "over 8192 bytes"},
		{command: "printer short", want: "shorter than 12 bytes"},
		{command: "nosuchprogram", want: "no such program"},
		{command: "bin/printer x", want: "no such program"}, // relative
		{command: b.workspace + "/printer", want: "where the command can write"},
		{command: top + "/lent/printer", want: "where the command can write"}, // a link to a program that is not
	} {
		b.request.Allow, b.request.Inject = []string{"a.example"}, []string{"MY_TOKEN=a.example"}
		b.request.InjectFiles, b.request.InjectRun = nil, nil
		if c.file != "" {
			b.request.InjectFiles = []string{"MY_TOKEN=" + filepath.Join(map[bool]string{true: "/", false: top}[strings.HasPrefix(c.file, "/")], c.file)}
		} else {
			argv, err := json.Marshal(strings.Fields(c.command))
			require.NoError(t, err)
			b.request.InjectRun = []string{"MY_TOKEN=" + string(argv)}
		}
		b.secrets = &Secrets{Timeout: 200 * time.Millisecond}
		if c.want == "" {
			b.secrets.Timeout = 0
		}
		begun := time.Now()
		r, err := b.plan("/bin/true")
		require.Less(t, time.Since(begun), 10*time.Second)
		if c.want == "" {
			require.NoError(t, err, "%+v", c)
			require.Equal(t, token, r.inspection.setup.Secrets[0].Value, "%+v", c)
			require.NotContains(t, strings.Join(r.Plan.Command.Env, "\n"), token)
			continue
		}
		require.ErrorContains(t, err, c.want, "%+v", c)
		require.ErrorContains(t, err, "MY_TOKEN")
		require.NotContains(t, err.Error(), token)
		if c.hint != "" {
			var told *profiles.Error
			require.ErrorAs(t, err, &told)
			require.Equal(t, c.hint, told.Hint)
		}
	}
	require.NoError(t, os.Remove(marker))
	b.request.InjectRun = []string{`MY_TOKEN=["printer", "` + token + `"]`}
	b.secrets = &Secrets{}
	for range 3 {
		_, err := b.plan("/bin/true")
		require.NoError(t, err)
	}
	ran, err := os.ReadFile(marker)
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(ran), "once, however often a launch begins anew")
	b.secrets = nil
	_, err = b.plan("/bin/true")
	require.NoError(t, err, "a dry run")
	ran, err = os.ReadFile(marker)
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(ran))
}

func TestInjectRefusals(t *testing.T) {
	for want, change := range map[string]func(b *bench){
		"the variable is not set": func(b *bench) { b.environ = nil },
		"shorter than 12 bytes":   func(b *bench) { b.environ = []string{"MY_TOKEN=short"} },
		"no rule allows its host": func(b *bench) { b.request.Allow = []string{"other.example"} },
		"not a host name":         func(b *bench) { b.request.Inject = []string{"MY_TOKEN=@github"} },
		"want the name of a host": func(b *bench) { b.request.Inject = []string{"MY_TOKEN=https://a.example/x"} },
	} {
		b := newBench(t)
		b.environ = []string{"MY_TOKEN=" + token}
		b.request.Allow, b.request.Inject = []string{"a.example"}, []string{"MY_TOKEN=a.example"}
		change(b)
		_, err := b.plan("/bin/true")
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), token)
	}
	// What is said mends it: an allowance is no help against a denial.
	for _, c := range []struct {
		allow, deny []string
		inject      string
		cause, hint string
	}{
		{[]string{"other.example"}, nil, "a.example", "no rule allows its host a.example", "--allow a.example"},
		{[]string{"a.example"}, nil, "a.example:8443", "no rule allows its host a.example:8443", "--allow a.example:8443"},
		{[]string{"a.example:22"}, nil, "a.example", "no rule allows its host a.example", "--allow a.example"},
		{[]string{".example.org"}, []string{"a.example.org"}, "a.example.org", "its host a.example.org is denied by the rule a.example.org (flag --deny)", "take it away"},
		{[]string{"a.example"}, []string{"*:443"}, "a.example", "is denied by the rule *:443 (flag --deny)", "take it away"},
		{nil, []string{"a.example"}, "a.example", "there is no network: its host a.example is denied by the rule a.example (flag --deny)", "take it away"},
		{nil, nil, "a.example", "there is no network: no rule allows its host a.example", "--allow a.example"},
		{[]string{"b.example"}, []string{"*"}, "a.example", "is denied by the rule * (flag --deny)", "take it away"},
	} {
		b := newBench(t)
		b.environ = []string{"MY_TOKEN=" + token}
		b.request.Allow, b.request.Deny, b.request.Inject = c.allow, c.deny, []string{"MY_TOKEN=" + c.inject}
		_, err := b.plan("/bin/true")
		require.ErrorContains(t, err, c.cause, c)
		hint := ""
		if h, ok := err.(interface{ Hint() string }); ok {
			hint = h.Hint()
		} else if e := (*profiles.Error)(nil); errors.As(err, &e) {
			hint = e.Hint
		}
		require.Contains(t, hint, c.hint, c)
		if with, ok := strings.CutPrefix(hint, "--allow "); ok { // the control: it does mend it
			b.request.Allow = append(b.request.Allow, with)
			_, err = b.plan("/bin/true")
			require.NoError(t, err, c)
		}
	}
	b := newBench(t)
	b.write("work/ca.pem", "of a project")
	b.write("ca.pem", "of the user")
	require.NoError(t, os.Symlink(filepath.Join(b.workspace, "ca.pem"), filepath.Join(b.home, "link.pem")))
	b.environ = []string{
		"MY_TOKEN=" + token, "NODE_EXTRA_CA_CERTS=" + filepath.Join(b.workspace, "ca.pem"), "CURL_CA_BUNDLE=" + filepath.Join(b.home, "link.pem"),
		"SSL_CERT_FILE=" + filepath.Join(b.home, "ca.pem"), "PIP_CERT=relative.pem",
	}
	b.request.Allow, b.request.Inject = []string{"a.example", "*.b.example"}, []string{"MY_TOKEN=a.example", "MY_TOKEN=*.b.example"}
	r, err := b.plan("/bin/true")
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(b.home, "ca.pem")}, r.inspection.setup.Certificates)
	require.Contains(t, strings.Join(r.Warnings, "\n"), "NODE_EXTRA_CA_CERTS: "+filepath.Join(b.workspace, "ca.pem")+" is in the workspace")
	require.Equal(t, rules.Inspect, r.Rules.Decide("a.example", 443).Action)
	require.Equal(t, rules.Allow, r.Rules.Decide("a.example", 80).Action)
	require.Equal(t, rules.Inspect, r.Rules.Decide("x.b.example", 443).Action)
	require.NotContains(t, strings.Join(r.Plan.Command.Env, "\n"), token)
}
