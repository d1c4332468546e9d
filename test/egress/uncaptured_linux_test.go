package egress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/seccomp"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// What kernels lack, as a filter around pccrun has it: profiles of OCI's.
var lacks = map[string]string{
	// socket(AF_NETLINK, …, NETLINK_NETFILTER): there are no rules for packets.
	"netfilter": `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": 93,
		"args": [{"index": 0, "value": 16, "op": "SCMP_CMP_EQ"}, {"index": 2, "value": 12, "op": "SCMP_CMP_EQ"}]}]}`,
	// setsockopt(…, IPPROTO_IP, IP_TRANSPARENT): neither they nor routes lead anywhere.
	"capture": `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["setsockopt"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1,
		"args": [{"index": 1, "value": 0, "op": "SCMP_CMP_EQ"}, {"index": 2, "value": 19, "op": "SCMP_CMP_EQ"}]}]}`,
}

// lackVariable tells this program to be what follows, on a kernel that lacks
// something.
const lackVariable = "EGRESS_TEST_LACKS"

func beWithout(what string, argv []string) error {
	runtime.LockOSThread()
	filter, err := seccomp.CompileOCI([]byte(lacks[what]), runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	os.Unsetenv(lackVariable)
	return fmt.Errorf("execve %s: %w", path, unix.Exec(path, argv, os.Environ()))
}

// lacking runs a script in the sandbox on such a kernel; "" lacks nothing.
func (b *bench) lacking(what, script string) (string, int) {
	b.t.Helper()
	argv := b.sandboxed(script)
	if what != "" {
		argv = append([]string{"env", lackVariable + "=" + what, "/proc/self/exe"}, argv...)
		self, err := os.Executable()
		require.NoError(b.t, err)
		argv[2] = self
	}
	return b.run(argv...)
}

// TestUncaptured: where nothing captures connections, a policy that names hosts is
// refused by name, and with leave the proxy alone is the way out.
func TestUncaptured(t *testing.T) {
	const (
		proxied = "curl -sS -m 100 http://good.example/ 2>&1"
		direct  = bare + proxied
	)
	b := newBench(t, "--allow", "good.example")
	for what, want := range map[string]int{"": 0, "capture": 125} {
		out, code := b.lacking(what, "echo it ran; "+direct)
		require.Equal(t, want, code, out)
		require.Equal(t, want == 0, strings.Contains(out, "it ran"), out)
		require.Equal(t, want == 0, strings.Contains(out, "hello good.example"), "the control: it is captured\n%s", out)
		if want != 0 {
			require.Equal(t, "pccrun: guarantee net.transparent: missing: set a socket to accept packets to any address: setsockopt: operation not permitted (required by flag --allow)\n"+
				"pccrun: hint: --allow-missing net.transparent runs with the proxy only, for programs that honour HTTPS_PROXY\n", out)
		}
	}
	b.flags = append(b.flags, "--allow-missing", "net.transparent")
	// Longer than rules for packets hold that nobody renews.
	out, code := b.lacking("capture", "sleep 4; "+proxied+"; "+direct+" || exit 3")
	require.Equal(t, 3, code, out)
	require.Contains(t, out, "pccrun: guarantee net.transparent may be missing: --allow-missing\n")
	require.Contains(t, out, "pccrun: guarantee net.transparent: missing: set a socket")
	require.Equal(t, 1, strings.Count(out, "hello good.example"), out)
	out, _ = b.lacking("capture", strings.ReplaceAll(proxied, "good", "evil"))
	require.Contains(t, out, "denied", "the proxy decides as ever")

	out, code = newBench(t).lacking("capture", "echo it ran")
	require.Equal(t, "it ran\n", out, "no host is named: nothing is missing")
	require.Zero(t, code)

	// The events have what became of the plan.
	for what, want := range map[string]string{"": `"state":"kept"`, "netfilter": `"state":"weak","mechanism":"routes"`, "capture": `"state":"missing"`} {
		b := newBench(t, "--allow", "good.example", "--allow-missing", "net.transparent")
		file := filepath.Join(b.home, "events")
		b.flags = append(b.flags, "--events", file)
		out, code = b.lacking(what, "true")
		require.Zero(t, code, out)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, string(text), `{"name":"net.transparent",`+want)
	}

	// What is known before the start is said before it.
	b = newBench(t, "--dry-run")
	for i := range 4097 {
		b.flags = append(b.flags, "--allow", fmt.Sprintf("10.1.%d.%d:80", i>>8, i&255))
	}
	out, code = b.inside("echo it ran")
	require.Equal(t, 125, code)
	require.Contains(t, out, "guarantee net.transparent: missing: 4097 rules for addresses: at most 4096 can be captured (required by flag --allow)")
}

// TestUncapturedJava: Java knows of no variable of a proxy's, and of JAVA_TOOL_OPTIONS
// alone, which says a line at each start: it is set only where nothing captures.
func TestUncapturedJava(t *testing.T) {
	if _, err := exec.LookPath("java"); err != nil {
		t.Skip("needs java")
	}
	const script = `keytool -importcert -noprompt -alias w -file $CA -keystore k.p12 -storetype PKCS12 -storepass changeit >/dev/null 2>&1
cat > F.java <<'X'
import java.net.*; import java.net.http.*;
public class F { public static void main(String[] hosts) throws Exception { for (String host : hosts) {
  for (String url : new String[]{"https://" + host + "/", "http://" + host + "/"}) try {
    System.out.print("client: " + HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString()).body());
    System.out.print("connection: " + new String(new URL(url).openStream().readAllBytes()));
  } catch (java.io.IOException e) { System.out.println(e); }
  try (Socket s = new Socket(host, 6379)) { s.getOutputStream().write("PING\r\n".getBytes()); System.out.println("socket: " + host + new String(s.getInputStream().readNBytes(5))); }
  catch (java.io.IOException e) { System.out.println(e); }
} } }
X
echo own: $JAVA_TOOL_OPTIONS
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djavax.net.ssl.trustStore=k.p12 -Djavax.net.ssl.trustStorePassword=changeit F.java good.example evil.example`
	b := newBench(t, "--allow", "good.example:80,443,6379", "--allow-missing", "net.transparent")
	out, _ := b.lacking("", "echo own: $JAVA_TOOL_OPTIONS")
	require.Contains(t, out, "own:\n", "where connections are captured it needs no variable")

	out, _ = b.lacking("capture", "unset JAVA_TOOL_OPTIONS; "+script)
	require.NotContains(t, out, "hello", "the control: nothing leads out without it")
	require.NotContains(t, out, "PONG")
	b.flags = append(b.flags, "--env", "JAVA_TOOL_OPTIONS=-Dmine=1")
	out, _ = b.lacking("capture", script)
	require.Equal(t, 2, strings.Count(out, "client: hello good.example"), out)
	require.Equal(t, 2, strings.Count(out, "connection: hello good.example"), out)
	require.Contains(t, out, "socket: good.example+PONG")
	require.Contains(t, out, "-DsocksProxyPort=3128 -Dmine=1\n", "the user's own stay")
	require.NotContains(t, out, "hello evil.example")
	require.NotContains(t, out, "evil.example+PONG")
}

// TestUncapturedYarn: both yarns go by variables of their own, and nothing else
// leads out. The newer one takes each YARN_ of which it does not know for a mistake.
func TestUncapturedYarn(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("needs node")
	}
	if yarns == "" {
		t.Skip("needs packages of npm's, which its client brings")
	}
	const install = `d=$(mktemp -d); cd $d; echo '{"name":"own","dependencies":{"tiny":"*"}}' > package.json; `
	for name, script := range map[string]string{
		"classic": install + `echo cafile \"$CA\" > .yarnrc; node YARN/yarn/bin/yarn.js install --no-progress --no-lockfile --network-timeout 100000 --registry https://HOST/npm/; node -p 'require("tiny")'`,
		"berry": install + `touch yarn.lock; export YARN_NPM_REGISTRY_SERVER=https://HOST/npm YARN_HTTPS_CA_FILE_PATH=$CA YARN_ENABLE_TELEMETRY=0 YARN_NPM_MINIMAL_AGE_GATE=0 YARN_HTTP_RETRY=0 YARN_NODE_LINKER=node-modules YARN_ENABLE_IMMUTABLE_INSTALLS=0
node YARN/@yarnpkg/cli-dist/bin/yarn.js install; node -p 'require("tiny")'`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "--allow", "good.example", "--allow-missing", "net.transparent", "--read", yarns)
			script = strings.ReplaceAll(script, "YARN/", yarns+"/")
			good := strings.ReplaceAll(script, "HOST", "good.example")
			out, _ := b.lacking("capture", good)
			require.Contains(t, out, "tiny came", out)
			out, _ = b.lacking("capture", "unset YARN_HTTP_PROXY YARN_HTTPS_PROXY HTTP_PROXY HTTPS_PROXY http_proxy https_proxy npm_config_proxy npm_config_https_proxy; "+good)
			require.NotContains(t, out, "tiny came", "the control: nothing leads out without them")
			out, _ = b.lacking("capture", strings.ReplaceAll(script, "HOST", "evil.example"))
			require.NotContains(t, out, "tiny came")
		})
	}
}

// TestUncapturedSSH: ssh reads no variable, and goes by a program that knows of
// proxies, as docs/network.md has it.
func TestUncapturedSSH(t *testing.T) {
	for _, needs := range []string{"ssh", "socat"} {
		if _, err := exec.LookPath(needs); err != nil {
			t.Skip("needs " + needs)
		}
	}
	b := newBench(t, "--allow", "good.example:22", "--allow-missing", "net.transparent")
	const command = `ssh -v -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=100 `
	const by = `-o ProxyCommand="socat - PROXY:127.0.0.1:%h:%p,proxyport=3128" `
	out, _ := b.lacking("capture", command+by+"good.example true 2>&1")
	require.Contains(t, out, "remote software version world")
	out, _ = b.lacking("capture", command+"good.example true 2>&1")
	require.NotContains(t, out, "remote software", "the control")
	out, _ = b.lacking("capture", command+by+"evil.example true 2>&1")
	require.NotContains(t, out, "remote software")
}

// TestInsideNested: the filter of an outer pccrun refuses the sockets of netfilter's.
//
//test:root
func TestInsideNested(t *testing.T) {
	b := newBench(t, "--nested", "--allow", "good.example", "--read", program)
	const get = bare + "curl -sS -m 100 http://good.example/; curl -sS -m 100 http://www.good.example/"
	const own = "XDG_STATE_HOME=$(mktemp -d) " // the user's own home is not there
	out, _ := b.inside(bare + own + program + " --allow good.example --allow www.good.example --allow 198.18.0.0/15 -- bash -c '" + get + "'")
	require.Contains(t, out, "net.transparent: weak, by routes: no netfilter socket can be opened\n")
	require.Contains(t, out, "hello good.example", out)
	require.NotContains(t, out, "hello www.good.example", "the outer one does not allow it")
	out, _ = b.inside(bare + own + program + " -- bash -c '" + get + "'")
	require.NotContains(t, out, "hello", "the control: the inner one allows nothing")
}

// TestNoNetfilter: a kernel that cannot be told of rules for packets has routes,
// which capture the ports that the policy names.
//
//test:root
func TestNoNetfilter(t *testing.T) {
	b := newBench(t, "--allow", "good.example")
	out, code := b.lacking("netfilter", bare+"curl -sS -m 100 http://good.example/; curl -sS -m 100 https://good.example/; curl -sS -m 100 http://evil.example/; curl -sS -m 100 http://"+evil4+"")
	require.Zero(t, code, out)
	require.Contains(t, out, "pccrun: guarantee net.transparent: weak, by routes: no netfilter socket can be opened\n")
	require.Equal(t, 2, strings.Count(out, "hello good.example"), out)
	require.NotContains(t, out, "hello evil")
	require.NotContains(t, out, "hello "+evil4)

	b.flags = append(b.flags, "--strict", "--allow-missing", "fs.hide,fs.protect,fs.special,ipc.unix,info.host,res.memory,res.cpu,res.pids")
	out, code = b.lacking("", "echo it ran")
	require.Zero(t, code, "the control: %s", out)
	out, code = b.lacking("netfilter", "echo it ran")
	require.Equal(t, 125, code, out)
	require.Contains(t, out, "pccrun: guarantee net.transparent: only weakly kept, by routes: no netfilter socket can be opened (required by flag --allow)\n")
}
