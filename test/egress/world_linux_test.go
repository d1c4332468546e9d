// Package egress shows what leaves a sandbox, with the real program and real
// clients, in a world of the test's own: a network namespace in which every
// address of the internet is served by the test, and every question for a name
// is answered, and written down, by it.
//
// The program under test knows nothing of this. It asks the name server of the
// machine's resolv.conf and dials addresses as ever; both end here.
package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/internal/outgoing"
	"github.com/pccrun/pccrun/namespaces/network"
	"github.com/pccrun/pccrun/test/internal/claude"
	"github.com/pccrun/pccrun/test/internal/host"
	"github.com/pccrun/pccrun/test/internal/npm"
	"github.com/pccrun/pccrun/test/internal/tempuser"
)

// Where the hosts of the world are.
const (
	good4, good6 = "140.82.112.3", "2a00:1450:4001::3"
	evil4, evil6 = "140.82.112.4", "2a00:1450:4001::4"
	private4     = "10.1.2.3"
	metadata4    = "169.254.169.254"
	claude4      = "140.82.112.5"
	git4         = "140.82.112.6"
	agents4      = "140.82.112.7"
)

var hosts = map[string][]string{
	"good.example.":          {good4, good6},
	"www.good.example.":      {good4},
	"api.good.example.":      {good4},
	"six.good.example.":      {good6},
	"evil.example.":          {evil4, evil6},
	"rebind.good.example.":   {private4},
	"git.corp.":              {private4},
	"meta.good.example.":     {metadata4},
	"loop.good.example.":     {"127.0.0.1"},
	"mapped.good.example.":   {"::ffff:10.1.2.3"},
	"mixed.good.example.":    {private4, good4},
	"clash.good.example.":    {"198.18.0.99"},
	"dead.good.example.":     {"140.82.112.99"},
	"internal.good.example.": {private4},
	"claude.good.example.":   {claude4},
	"elsewhere.example.":     {claude4},
	"git.good.example.":      {git4},

	// What the agents' own programs are set up for. The world has them too.
	"api.anthropic.com.":                 {agents4},
	"platform.claude.com.":               {agents4},
	"claude.ai.":                         {agents4},
	"api.openai.com.":                    {agents4},
	"auth.openai.com.":                   {agents4},
	"chatgpt.com.":                       {agents4},
	"generativelanguage.googleapis.com.": {agents4},
	"cloudcode-pa.googleapis.com.":       {agents4},
	"oauth2.googleapis.com.":             {agents4},
	"www.googleapis.com.":                {agents4},
}

// A world is the internet of the test.
type world struct {
	net *network.Net
	tls *tls.Config // of all hosts

	mu      sync.Mutex
	serve   map[string]func(net.Conn) // by address and port
	asked   []string                  // names
	reached []string                  // addresses and ports
}

var (
	theWorld *world
	program  string // pccrun
	goClient string // a copy of this program, which fetches a URL
	caFile   string
	shared   string // a directory that everybody can read
	modules  string // of node: test/internal/npm's; "" where they cannot be had
	yarns    string // the two yarns, the same
)

// TestMain runs the tests once more in namespaces of their own.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == fetcher {
		fetch(os.Args[1])
		return
	}
	if what := os.Getenv(lackVariable); what != "" {
		fmt.Println(beWithout(what, os.Args[1:]))
		os.Exit(1)
	}
	if os.Getenv("EGRESS_TEST_WORLD") == "" {
		os.Exit(inNamespaces())
	}
	shared, program, goClient = os.Getenv("EGRESS_TEST_WORLD"), os.Getenv("PCCRUN_TEST_BIN"), filepath.Join(os.Getenv("EGRESS_TEST_WORLD"), fetcher)
	caFile = filepath.Join(shared, "ca.pem")
	if dir := os.Getenv("PCCRUN_TEST_CLIENTS"); dir != "" {
		modules = filepath.Join(dir, "node_modules")
	}
	if dir := os.Getenv("EGRESS_TEST_YARNS"); dir != "" {
		yarns = filepath.Join(dir, "node_modules")
	}
	w, err := newWorld()
	if err == nil {
		err = mine("SSL_CERT_FILE=" + caFile)
	}
	if err == nil {
		err = inDatabase(os.Getenv("EGRESS_TEST_HOME"))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	theWorld = w
	os.Exit(m.Run())
}

const fetcher = "fetch"

// mine writes the user's own file, which says what counts for what pccrun itself sends.
func mine(lines ...string) error {
	path := filepath.Join(os.Getenv("EGRESS_TEST_HOME"), outgoing.File)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644)
}

// inDatabase makes a directory the home that the world's user database has. Whoever adds a user to this machine puts another
// file in the place of the database, and the mount on it is gone: each test asks for it.
func inDatabase(home string) error {
	line := fmt.Sprintf("world:x:%d:%d::%s:/bin/bash\n", os.Getuid(), os.Getgid(), home)
	text, err := os.ReadFile("/etc/passwd")
	if err != nil || strings.HasPrefix(string(text), line) {
		return err
	}
	dir := filepath.Join(shared, "database") // a file system of its own, since what lies in a hidden directory is hidden by each name
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	file := filepath.Join(dir, "passwd")
	if err := os.WriteFile(file, append([]byte(line), text...), 0o644); err != nil {
		return err
	}
	if err := unix.Mount(file, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// fetch prints what is at a URL, as a program does that resolves names itself.
func fetch(url string) {
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	r, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext}}).Get(url)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	io.Copy(os.Stdout, r.Body)
}

// inNamespaces starts this program again, in a network namespace in which it is
// allowed everything, as the same user.
func inNamespaces() int {
	t := &outer{}
	bin := host.Program(t)
	dir, err := os.MkdirTemp("", "pccrun-egress-*")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	home, err := os.MkdirTemp("", "pccrun-egress-home-*")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(home)
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fetcher), self, 0o755)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "EGRESS_TEST_WORLD="+dir, "EGRESS_TEST_HOME="+home, "PCCRUN_TEST_BIN="+bin)
	if program, err := claude.Fetch(context.Background()); err == nil {
		cmd.Env = append(cmd.Env, "PCCRUN_TEST_CLAUDE="+program)
	}
	if dir, err := npm.FetchClients(context.Background()); err == nil {
		cmd.Env = append(cmd.Env, "PCCRUN_TEST_CLIENTS="+dir)
	}
	if dir, err := npm.Fetch(context.Background(), "yarns-1", npm.Yarns...); err == nil {
		cmd.Env = append(cmd.Env, "EGRESS_TEST_YARNS="+dir)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = tempuser.InNamespaces(unix.CLONE_NEWNET|unix.CLONE_NEWNS, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_ADMIN)
	runtime.LockOSThread() // the death signal is the thread's
	err = cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Println("needs user and network namespaces:", err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// outer stands in for a test where there is none yet.
type outer struct{ testing.TB }

func (*outer) Helper()                   {}
func (*outer) Errorf(f string, a ...any) { fmt.Printf(f+"\n", a...) }
func (*outer) FailNow()                  { os.Exit(1) }

func newWorld() (*world, error) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, err
	}
	plan := &network.Plan{Range: network.NewRange(7), Allowed: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	var fds []int
	for _, s := range plan.Sockets() {
		fd, err := unix.Socket(s.Domain, s.Type|unix.SOCK_CLOEXEC, s.Protocol)
		if err != nil {
			return nil, err
		}
		fds = append(fds, fd)
	}
	n, err := plan.Prepare().Open(fds)
	if err != nil {
		return nil, err
	}
	if err := n.Adopt(); err != nil {
		return nil, err
	}
	w := &world{net: n, serve: map[string]func(net.Conn){}}
	go n.KeepAlive(context.Background())
	go w.answer()
	for _, l := range n.Captured {
		go w.accept(l)
	}
	return w, w.services()
}

// accept is the internet.
func (w *world) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		at := c.LocalAddr().String()
		w.mu.Lock()
		serve := w.serve[at]
		w.reached = append(w.reached, at)
		w.mu.Unlock()
		if serve == nil {
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
			continue
		}
		go serve(c)
	}
}

// answer is every name server.
func (w *world) answer() {
	buf := make([]byte, 1500)
	for {
		n, from, err := w.net.Questions.ReadFrom(buf)
		if err != nil {
			return
		}
		if b := w.reply(buf[:n]); b != nil {
			w.net.Questions.WriteTo(b, from)
		}
	}
}

// answerTCP is every name server by TCP, for one question.
func (w *world) answerTCP(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err != nil || n < 2 {
		return
	}
	b := w.reply(buf[2:n])
	c.Write(append([]byte{byte(len(b) >> 8), byte(len(b))}, b...))
}

func (w *world) reply(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
	name := strings.ToLower(q.Name.String())
	w.mu.Lock()
	w.asked = append(w.asked, name)
	w.mu.Unlock()
	list, ok := hosts[name]
	if !ok && strings.HasSuffix(name, ".evil.example.") {
		list, ok = hosts["evil.example."], true
	}
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, text := range list {
		a := netip.MustParseAddr(text)
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	b, _ := m.Pack()
	return b
}

// since returns what was asked and reached while f ran.
func (w *world) since(f func()) (asked, reached []string) {
	w.mu.Lock()
	a, r := len(w.asked), len(w.reached)
	w.mu.Unlock()
	f()
	w.mu.Lock()
	defer w.mu.Unlock()
	asked = slices.Clone(w.asked[a:])
	slices.Sort(asked)
	return slices.Compact(asked), slices.Clone(w.reached[r:])
}

// authority makes a certificate for all of the world's names, and the file of
// who signed it: another, since some clients take no authority for a server.
func authority() (*tls.Config, error) {
	sign := func(t, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte, error) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, nil, err
		}
		if by == nil {
			by = key
		}
		t.NotBefore, t.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, by)
		return key, der, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of the world"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, caDER, err := sign(ca, ca, nil)
	if err != nil {
		return nil, err
	}
	names := []string{"*.good.example"}
	for name := range hosts {
		names = append(names, strings.TrimSuffix(name, "."))
	}
	key, der, err := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "world"}, DNSNames: names,
		IPAddresses: []net.IP{net.ParseIP(good4), net.ParseIP(evil4), net.ParseIP(private4)},
		KeyUsage:    x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, caKey)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	if err := os.WriteFile(caFile, text, 0o644); err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"http/1.1"}}, nil
}

// A bench is a workspace and a home to run in.
type bench struct {
	t     *testing.T
	dir   string
	home  string
	flags []string
}

func newBench(t *testing.T, flags ...string) *bench {
	t.Helper()
	require.NoError(t, inDatabase(os.Getenv("EGRESS_TEST_HOME")))
	b := &bench{t: t, dir: t.TempDir(), home: t.TempDir(), flags: flags}
	for _, d := range []string{b.dir, b.home, filepath.Dir(b.dir)} {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	return b
}

// command prepares bash in the sandbox, or outside for argv that is not
// pccrun's.
func (b *bench) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = b.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.home, "LC_ALL=C.UTF-8", "CA=" + caFile, "FETCH=" + goClient, "LIB=" + modules,
		"CURL_CA_BUNDLE=" + caFile, "NODE_EXTRA_CA_CERTS=" + caFile, "SSL_CERT_FILE=" + caFile, "GIT_SSL_CAINFO=" + caFile, "GIT_TERMINAL_PROMPT=0",
	}
	return cmd
}

// sandboxed is the command line of a script in the sandbox.
func (b *bench) sandboxed(script string) []string {
	argv := []string{program}
	for _, name := range []string{"CA", "FETCH", "LIB", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "GIT_SSL_CAINFO", "GIT_TERMINAL_PROMPT"} {
		argv = append(argv, "--env", name)
	}
	argv = append(argv, "--read", shared)
	if modules != "" {
		argv = append(argv, "--read", modules)
	}
	return append(append(argv, b.flags...), "--", "bash", "-c", script)
}

// start starts a command without the capabilities that this process has of its
// world.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
	require.NoError(t, cmd.Start())
}

func (b *bench) run(argv ...string) (string, int) {
	b.t.Helper()
	cmd := b.command(argv...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	start(b.t, cmd)
	stop := time.AfterFunc(await.Patience, func() { cmd.Process.Kill() })
	defer stop.Stop()
	cmd.Wait()
	return out.String(), cmd.ProcessState.ExitCode()
}

// inside runs a script in the sandbox, outside in the world, where what it makes in
// a temporary directory would stay: Claude Code has a name of its own for that, and Java
// none.
func (b *bench) inside(script string) (string, int) { return b.run(b.sandboxed(script)...) }
func (b *bench) outside(script string) (string, int) {
	dir := b.t.TempDir()
	return b.run("env", "TMPDIR="+dir, "CLAUDE_CODE_TMPDIR="+dir, "JAVA_TOOL_OPTIONS=-XX:-UsePerfData", "bash", "-c", script)
}

// bare takes the proxy's variables from what follows: all of them, TestBare holds.
const bare = `unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy NO_PROXY NODE_USE_ENV_PROXY npm_config_proxy npm_config_https_proxy npm_config_noproxy YARN_HTTP_PROXY YARN_HTTPS_PROXY CARGO_HTTP_PROXY GLOBAL_AGENT_HTTP_PROXY GLOBAL_AGENT_NO_PROXY ELECTRON_GET_USE_PROXY HEX_HTTP_PROXY HEX_HTTPS_PROXY GIT_CONFIG_COUNT GIT_CONFIG_KEY_0 GIT_CONFIG_VALUE_0 GIT_CONFIG_KEY_1 GIT_CONFIG_VALUE_1 CLOUDSDK_PROXY_TYPE CLOUDSDK_PROXY_ADDRESS CLOUDSDK_PROXY_PORT RSYNC_PROXY; `
