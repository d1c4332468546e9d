package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// start starts the process that reads requests.
func start(p *Plan, program func() (*os.File, error)) error {
	_, err := p.StartInspector(program, 0, 0)
	return err
}

func TestInspectorFails(t *testing.T) {
	b := newBench(t)
	b.request.Allow = []string{"GET https://a.example/x"}
	run, err := b.plan()
	require.NoError(t, err)
	require.ErrorIs(t, start(run, func() (*os.File, error) { return nil, os.ErrNotExist }), os.ErrNotExist)
	require.ErrorContains(t, start(run, func() (*os.File, error) { return os.Open("/bin/true") }), "inspection: ")
	run.Abandon() // nothing began
	require.NoError(t, start(run, func() (*os.File, error) { return os.Open("/proc/self/exe") }))
	pid := run.reader.process.Pid
	require.NoError(t, unix.Kill(pid, 0))
	run.Abandon()
	require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)

	run, err = b.plan()
	require.NoError(t, err)
	run.reader.setup.Certificates = []string{"/nonexistent.pem"}
	require.ErrorContains(t, start(run, func() (*os.File, error) { return os.Open("/proc/self/exe") }), "nonexistent")
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
	b.write("bin/slow", "#!/bin/sh\nsleep 1000\n")
	b.write("bin/endless", "#!/bin/sh\nexec yes "+token+"\n")
	b.write("bin/where", "#!/bin/sh\n[ \"$PWD\" = / ] && [ \"$MY_OTHER\" = \"\" ] && [ \"$LANG\" = passed ] && [ ! -t 0 ] && echo "+token+"\n")
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
	b.environ = []string{"MY_OTHER=passed", "LANG=passed", "PATH=" + filepath.Join(b.workspace) + ":" + filepath.Join(top, "bin") + ":" + os.Getenv("PATH")}
	for _, c := range []struct {
		file, command, want string
		hint                string
	}{
		{file: "token"}, {file: "windows"}, {command: "printer " + token}, {command: "where"}, {command: top + "/bin/printer " + token},
		{file: "lines", want: "is invalid in a header"},
		{file: "long", want: "over 8192 bytes"},
		{file: "none", want: "none: no such file"},
		{file: "fifo", want: "not a regular file"},
		{file: "bin", want: "not a regular file"},
		{file: "work/token", want: "in the workspace"},
		{file: "link", want: "in the workspace"},
		{file: "/etc/hostname", want: "the policy shows this file inside", hint: "--hide /etc/hostname"},
		{command: "failing", want: "failing: exit status 3"},
		{command: "slow", want: "no output within 200ms"},
		{command: "endless", want: "over 8192 bytes"},
		{command: "printer short", want: "shorter than 12 bytes"},
		{command: "nosuchprogram", want: "no such program"},
		{command: "bin/printer x", want: "no such program"}, // relative
		{command: b.workspace + "/printer", want: "sandboxed commands can write " + b.workspace},
		{command: top + "/lent/printer", want: "sandboxed commands can write " + top + "/lent"}, // a link to a program that is not
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
		b.secrets = &Secrets{Timeout: await.Patience}
		if c.command == "slow" {
			b.secrets.Timeout = 200 * time.Millisecond
		}
		r, err := b.plan()
		if c.want == "" {
			require.NoError(t, err, "%+v", c)
			require.Equal(t, token, r.reader.setup.Secrets[0].Value, "%+v", c)
			require.NotContains(t, strings.Join(r.Environ, "\n"), token)
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
		_, err := b.plan()
		require.NoError(t, err)
	}
	ran, err := os.ReadFile(marker)
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(ran), "once, however often a launch begins anew")
	b.secrets = nil
	_, err = b.plan()
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
		"want the name of a host": func(b *bench) { b.request.Inject = []string{"MY_TOKEN=http://a.example/x"} },
	} {
		b := newBench(t)
		b.environ = []string{"MY_TOKEN=" + token}
		b.request.Allow, b.request.Inject = []string{"a.example"}, []string{"MY_TOKEN=a.example"}
		change(b)
		_, err := b.plan()
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
		{[]string{".example.org"}, []string{"a.example.org"}, "a.example.org", "its host a.example.org is denied by the rule a.example.org (flag --deny)", "remove it"},
		{[]string{"a.example"}, []string{"*:443"}, "a.example", "is denied by the rule *:443 (flag --deny)", "remove it"},
		{nil, []string{"a.example"}, "a.example", "there is no network: its host a.example is denied by the rule a.example (flag --deny)", "remove it"},
		{[]string{"other.example"}, nil, "https://a.example/x", "no rule allows its host", "--allow https://a.example/x"},
		{nil, nil, "a.example", "there is no network: no rule allows its host a.example", "--allow a.example"},
		{[]string{"b.example"}, []string{"*"}, "a.example", "is denied by the rule * (flag --deny)", "remove it"},
	} {
		b := newBench(t)
		b.environ = []string{"MY_TOKEN=" + token}
		b.request.Allow, b.request.Deny, b.request.Inject = c.allow, c.deny, []string{"MY_TOKEN=" + c.inject}
		p, err := b.plan()
		cause, hint := "", ""
		if e := (*profiles.Error)(nil); errors.As(err, &e) {
			cause, hint = err.Error(), e.Hint
		} else {
			require.NoError(t, err, c)
			_, cause, hint = p.Injects()
		}
		require.Contains(t, cause, c.cause, c)
		require.Contains(t, hint, c.hint, c)
		if with, ok := strings.CutPrefix(hint, "--allow "); ok { // the control: it does mend it
			b.request.Allow = append(b.request.Allow, with)
			p, err = b.plan()
			require.NoError(t, err, c)
			ok, _, _ := p.Injects()
			require.True(t, ok)
		}
	}
	b := newBench(t)
	b.write("work/ca.pem", "of a project")
	b.write("ca.pem", "of the user")
	require.NoError(t, os.Chmod(filepath.Join(b.home, "ca.pem"), 0o664)) // not root's alone, whoever is asking
	require.NoError(t, os.Symlink(filepath.Join(b.workspace, "ca.pem"), filepath.Join(b.home, "link.pem")))
	b.environ = []string{
		"MY_TOKEN=" + token, "NODE_EXTRA_CA_CERTS=" + filepath.Join(b.workspace, "ca.pem"), "CURL_CA_BUNDLE=" + filepath.Join(b.home, "link.pem"),
		"SSL_CERT_FILE=" + filepath.Join(b.home, "ca.pem"), "PIP_CERT=relative.pem",
	}
	b.request.Allow, b.request.Inject = []string{"a.example", "*.b.example"}, []string{"MY_TOKEN=a.example", "MY_TOKEN=*.b.example"}
	r, err := b.plan()
	require.NoError(t, err)
	require.Empty(t, r.reader.setup.Certificates)
	require.Contains(t, r.Warnings, "SSL_CERT_FILE="+filepath.Join(b.home, "ca.pem")+" does not count for what pccrun itself sends: SSL_CERT_FILE="+filepath.Join(b.home, "ca.pem")+" in ~/.config/pccrun/environment makes it count")
	b.mine("SSL_CERT_FILE="+filepath.Join(b.home, "ca.pem"), "SSL_CERT_FILE="+filepath.Join(b.workspace, "ca.pem"))
	r, err = b.plan()
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(b.home, "ca.pem")}, r.reader.setup.Certificates)
	require.Contains(t, strings.Join(r.Warnings, "\n"), filepath.Join(b.workspace, "ca.pem")+": sandboxed commands can write it")
	require.Equal(t, rules.Inspect, r.Rules.Decide("a.example", 443).Action)
	require.Equal(t, rules.Allow, r.Rules.Decide("a.example", 80).Action)
	require.Equal(t, rules.Inspect, r.Rules.Decide("x.b.example", 443).Action)
	require.NotContains(t, strings.Join(r.Environ, "\n"), token)
}

// TestInspectedStreams has the requests of connections read that have no descriptor, and of
// such that have one.
func TestInspectedStreams(t *testing.T) {
	host, ca := server(t)
	b := newBench(t)
	b.state = filepath.Join(b.home, ".state")
	b.mine("SSL_CERT_FILE=" + ca)
	b.environ = []string{"CORP_CA_FILE=" + ca, "MY_TOKEN=" + token} // which no list has
	b.request.Allow, b.request.Inject = []string{"GET https://" + host + "/ok/**"}, []string{"MY_TOKEN=" + host}
	p, err := b.plan()
	require.NoError(t, err)
	require.True(t, p.Inspects())
	placeholder := getenv(p.Environ, "MY_TOKEN")
	require.Len(t, placeholder, len(token))
	again, err := b.plan()
	require.NoError(t, err)
	require.Equal(t, placeholder, getenv(again.Environ, "MY_TOKEN"), "the same in each run")
	files, err := p.StartInspector(func() (*os.File, error) { return os.Open("/proc/self/exe") }, 0, 0)
	require.NoError(t, err)
	require.Equal(t, authorityPath, files[0].Path)
	client := filepath.Join(b.home, "client.pem")
	writeCertificate(t, client, &x509.Certificate{SerialNumber: big.NewInt(2), BasicConstraintsValid: true})
	trusting := p.Trusting(append(p.Environ, "CORP_CA_FILE="+ca, "CORP_CLIENT_CERT="+client, "CORP_CA_GONE=/nosuch"))
	for _, entry := range []string{"SSL_CERT_FILE=" + bundlePath, "CORP_CA_FILE=" + bundlePath, "CORP_CLIENT_CERT=" + client, "CORP_CA_GONE=/nosuch"} {
		require.Contains(t, trusting, entry)
	}
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(files[0].Text)))
	var seen log
	s, err := p.Open(seen.note)
	require.NoError(t, err)
	defer s.Close()
	s.Begin(nil)
	streams := NewStreams(p.Listen[0])
	s.Listeners(t.Context(), []net.Listener{streams})
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	defer socket.Close()
	for _, dial := range []func() net.Conn{
		func() net.Conn {
			ours, theirs := net.Pipe()
			require.NoError(t, streams.Hand(t.Context(), theirs))
			return ours
		},
		func() net.Conn {
			ours, err := net.Dial("unix", socket.Addr().String())
			require.NoError(t, err)
			theirs, err := socket.Accept()
			require.NoError(t, err)
			require.NoError(t, streams.Hand(t.Context(), theirs))
			return ours
		},
	} {
		client := &http.Client{Transport: &http.Transport{
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example"}),
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
			TLSClientConfig: &tls.Config{RootCAs: roots},
		}}
		for path, want := range map[string]string{"/ok/x": "GET /ok/x ", "/no": "allow_with"} {
			answer, err := client.Get("https://" + host + path)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			answer.Body.Close()
			require.Contains(t, string(text), want)
		}
		client.CloseIdleConnections()
	}
	await.Until(t, "its end is told", seen.has(func(e netproxy.Event) bool { return e.Kind == netproxy.Closed && e.Up > 0 && e.Down > 0 }))
	require.True(t, seen.has(func(e netproxy.Event) bool {
		return e.Kind == netproxy.Denied && e.Request == "GET https://"+host+"/no"
	})())

	// Where the process has been killed nothing goes on without it. The control is above.
	require.NoError(t, unix.Kill(p.reader.number(), unix.SIGKILL))
	await.Until(t, "its end is noticed", func() bool {
		p.reader.mu.Lock()
		defer p.reader.mu.Unlock()
		return p.reader.dead
	})
	left := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			return ours, streams.Hand(t.Context(), theirs)
		},
	}}
	answer, err := left.Get("http://" + host + "/ok/x")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, http.StatusBadGateway, answer.StatusCode)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), errGone.Error())
}
