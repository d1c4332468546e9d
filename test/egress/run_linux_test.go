package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
)

// A running sandbox takes lines of bash and says what they print.
type running struct {
	b   *bench
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	log *strings.Builder
}

func (b *bench) shell() *running {
	b.t.Helper()
	argv := slices.Insert(b.sandboxed("exec bash -s <&3 >&3 3>&-"), 1, "--pass-fd", "3")
	r := &running{b: b, cmd: b.command(argv...), log: &strings.Builder{}}
	// It is handed through, as the standard three are not, and works while the
	// launcher is stopped.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(b.t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	r.in, r.out = ours, bufio.NewReader(ours)
	r.cmd.ExtraFiles, r.cmd.Stdout, r.cmd.Stderr = []*os.File{theirs}, r.log, r.log
	start(b.t, r.cmd)
	theirs.Close()
	b.t.Cleanup(func() {
		r.cmd.Process.Signal(unix.SIGCONT)
		r.in.Close()
		r.cmd.Wait()
		if b.t.Failed() {
			b.t.Log(r.log)
		}
	})
	return r
}

func (r *running) say(line string) string {
	r.b.t.Helper()
	_, err := fmt.Fprintf(r.in, "%s; echo; echo END\n", line)
	require.NoError(r.b.t, err)
	var text strings.Builder
	stuck := time.AfterFunc(await.Patience, func() { r.cmd.Process.Signal(unix.SIGCONT); r.cmd.Process.Kill() })
	defer stuck.Stop()
	for {
		line, err := r.out.ReadString('\n')
		require.NoError(r.b.t, err, r.log)
		if line == "END\n" {
			return strings.TrimSpace(text.String())
		}
		text.WriteString(line)
	}
}

// TestStopped stops the launcher: what is new is refused soon and at once, and
// works again when it goes on. A connection that stood is none the worse.
func TestStopped(t *testing.T) {
	r := newBench(t, "--allow", "good.example:80,6379", "--local", "localhost:9").shell()
	const get = "curl -sS -m 5 http://good.example/ 2>&1"
	const direct, proxied = bare + get, "http_proxy=http://127.0.0.1:3128 " + get
	const literal = bare + "curl -sS -m 100 --resolve good.example:80:198.19.0.0 http://good.example/ 2>&1"
	works := func(try string) func() bool {
		return func() bool { return strings.Contains(r.say(try), "hello good.example") }
	}
	for _, try := range []string{direct, proxied, literal} {
		await.Until(t, "the control: it runs", works(try))
	}
	r.say(bare + "exec 5<>/dev/tcp/good.example/6379")
	require.Equal(t, "+PONG", strings.TrimSpace(r.say("echo PING >&5; read -t 100 x <&5; echo $x")))
	require.NoError(t, r.cmd.Process.Signal(unix.SIGSTOP))
	await.Until(t, "no name is found", func() bool { return strings.Contains(r.say(direct), "curl: (6)") })
	for _, try := range []string{proxied, literal} {
		require.Contains(t, r.say(try), "curl: (7)", "refused, and not left waiting")
	}
	r.say("echo PING >&5")
	require.NoError(t, r.cmd.Process.Signal(unix.SIGCONT))
	await.Until(t, "it goes on", works(direct))
	require.Equal(t, "+PONG", strings.TrimSpace(r.say("read -t 100 x <&5; echo $x")))
}

func TestAddresses(t *testing.T) {
	b := newBench(t, "--allow", "10.1.0.0/16:80", "--allow", "["+good6+"]:80", "--allow", evil4+":80", "--deny", "10.1.9.0/24")
	get := func(host string) string { return "curl -g -sS -m 100 http://" + host + "/ 2>&1; " }
	out, _ := b.inside(bare + get(private4) + get("["+good6+"]") + get(evil4))
	require.Contains(t, out, "hello "+private4+" from")
	require.Contains(t, out, "hello ["+good6+"] from")
	require.Contains(t, out, "hello "+evil4+" from")
	out, _ = b.inside(bare + get("10.1.9.9") + get(good4))
	require.NotContains(t, out, "hello")
	require.Contains(t, out, "denied: 10.1.9.9:80")
	require.Contains(t, out, "denied: "+good4+":80 (to allow: --allow "+good4+")")
	out, _ = b.inside("curl -sS -m 100 http://" + private4 + "/; curl -sS -m 100 -x socks5://127.0.0.1:3128 http://" + evil4)
	require.Contains(t, out, "hello "+private4+" from", "by the proxy too")
	require.Contains(t, out, "hello "+evil4+" from")
}

// TestMixed dials the address that may be dialled, and the name wins over what
// else it leads to.
func TestMixed(t *testing.T) {
	b := newBench(t, "--allow", "*.good.example", "--allow", "private internal.good.example")
	_, reached := theWorld.since(func() {
		out, _ := b.inside(bare + "curl -sS -m 100 http://mixed.good.example/")
		require.Contains(t, out, "from "+good4+":80")
		out, _ = b.inside(bare + "curl -sS -m 100 http://internal.good.example/")
		require.Contains(t, out, "from "+private4+":80")
	})
	require.Equal(t, []string{good4 + ":80", private4 + ":80"}, reached)
	b = newBench(t, "--allow", "clash.good.example", "--allow", "198.18.0.0/15")
	out, _ := b.inside(bare + "curl -sS -m 100 http://clash.good.example/")
	require.Contains(t, out, "hello clash.good.example from 198.18.0.99:80", "opted in")
}

// TestResolvedFirst holds that a client that looks a name up itself reaches it
// through the proxy by its fake address.
func TestResolvedFirst(t *testing.T) {
	b := newBench(t, "--allow", "good.example")
	for _, flags := range []string{"-x socks5://127.0.0.1:3128", "-x socks5h://127.0.0.1:3128"} {
		out, _ := b.inside(bare + "curl -sS -m 100 " + flags + " https://good.example/")
		require.Contains(t, out, "hello good.example")
	}
	out, _ := b.inside(bare + `a=$(getent ahostsv4 good.example | head -1 | cut -d' ' -f1); curl -sS -m 100 -p -x http://127.0.0.1:3128 -H 'Host: good.example' http://$a/; getent hosts $a; getent ahostsv6 good.example; getent hosts localhost`)
	require.Contains(t, out, "hello good.example")
	require.Contains(t, out, "198.19.0.0      good.example", "its name, by PTR")
}

func TestLocal(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		defer l.Close()
		go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.Host) }))
		port := fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
		b := newBench(t, "--local", port)
		out, _ := b.inside(bare + "curl -sS -m 100 http://host.pccrun.internal:" + port)
		require.Contains(t, out, "hello host.pccrun.internal:"+port)
		for _, rule := range []string{port, "localhost:" + port} {
			b := newBench(t, "--local", rule)
			for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "host.pccrun.internal"} {
				out, _ := b.inside(bare + "curl -g -sS -m 100 http://" + host + ":" + port)
				require.Contains(t, out, "hello "+host, rule)
			}
		}
		out, _ = newBench(t, "--allow", "host:"+port).inside(bare + "curl -sS -m 100 http://127.0.0.1:" + port)
		require.NotContains(t, out, "hello", "its own loopback is its own")
		out, _ = newBench(t, "--allow", "good.example").inside(bare + "curl -sS -m 100 http://host.pccrun.internal:" + port)
		require.Contains(t, out, "to allow: --local")
	}
}

// TestOwnServers holds that what the command serves itself is its own.
func TestOwnServers(t *testing.T) {
	b := newBench(t, "--allow", "good.example")
	for _, address := range []string{"127.0.0.1", "::1", "0.0.0.0", "::"} {
		to := strings.NewReplacer("0.0.0.0", "localhost", "::1", "[::1]").Replace(address)
		if address == "::" {
			to = "[::1]"
		}
		out, _ := b.inside(bare + "echo served > f; python3 -m http.server -b " + address + " 8000 >/dev/null 2>&1 & until curl -g -sS -m 100 http://" + to + ":8000/f 2>/dev/null; do sleep 0.05; done; kill %1")
		require.Contains(t, out, "served", address)
	}
}

func TestPublish(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := fmt.Sprint(free.Addr().(*net.TCPAddr).Port)
	out, code := newBench(t, "--publish", port).inside("echo ran")
	require.Equal(t, 125, code)
	require.Contains(t, out, "address already in use")
	require.NotContains(t, out, "ran")
	free.Close()

	for i, address := range []string{"127.0.0.1", "::1", "127.0.0.1"} {
		rule, inside := port, port
		if i == 2 {
			rule, inside = port+":3000", "3000"
		}
		r := newBench(t, "--publish", rule).shell()
		r.say("echo published > f; python3 -m http.server -b " + address + " " + inside + " >/dev/null 2>&1 & :")
		get := func(host string) (string, error) {
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: await.Patience}
			resp, err := c.Get("http://" + net.JoinHostPort(host, port) + "/f")
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}
		await.Until(t, "the server answers", func() bool { text, _ := get("127.0.0.1"); return text == "published\n" })
		for range 120 { // more than there are sockets
			text, err := get("::1")
			require.NoError(t, err)
			require.Equal(t, "published\n", text)
		}
		require.Equal(t, "none", r.say(bare+"curl -sS -m 100 http://"+evil4+" 2>/dev/null || echo none"), "it opens nothing")
		r.in.Close()
		r.cmd.Wait()
		_, err := get("127.0.0.1")
		require.Error(t, err, "the port is closed with the sandbox")
	}
}

// TestSockets shows a unix socket of the host, by path.
//
//test:root
func TestSockets(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	path := filepath.Join(dir, "s.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, os.Chmod(path, 0o666))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello from the host\n")
			c.Close()
		}
	}()
	script := `python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(99))' ` + path
	out, _ := newBench(t, "--socket", path).inside(script)
	require.Contains(t, out, "hello from the host")
	out, _ = newBench(t, "--read", dir).inside(script)
	require.NotContains(t, out, "hello from the host", "not named")
}

// TestResolvConfIsALink has a host whose resolv.conf leads to where the sandbox
// has nothing, as systemd-resolved makes it.
//
//test:root
func TestResolvConfIsALink(t *testing.T) {
	for _, tool := range []string{"unshare", "setpriv", "cp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	b := newBench(t, "--allow", "good.example")
	elsewhere := t.TempDir() // below /tmp: private in the sandbox
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "resolv.conf"), []byte("nameserver 9.9.9.9\n"), 0o644))

	argv := append([]string{"unshare", "-m", "bash", "-c", `mount -n -t tmpfs etc /mnt && cp -a /etc/. /mnt/ 2>/dev/null
ln -sf "$0/resolv.conf" /mnt/resolv.conf && mount -n --bind /mnt /etc && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"`, elsewhere},
		b.sandboxed(bare+"cat /etc/resolv.conf; curl -sS -m 100 http://good.example/; touch /etc/resolv.conf")...)
	cmd := b.command(argv...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN}} // to mount, which setpriv takes away
	require.NoError(t, cmd.Start())
	cmd.Wait()
	require.Contains(t, out.String(), "nameserver 198.18.0.53\n")
	require.Contains(t, out.String(), "hello good.example")
	require.Contains(t, out.String(), "Read-only file system")
	text, err := os.ReadFile(filepath.Join(elsewhere, "resolv.conf"))
	require.NoError(t, err)
	require.Equal(t, "nameserver 9.9.9.9\n", string(text))
}
