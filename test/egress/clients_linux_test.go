package egress

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/netproxy"
)

const (
	newNode   = `$LIB/node-*/bin/node` // which undici and Gemini CLI want, and whose own fetch takes the proxy that NODE_USE_ENV_PROXY turns on
	nodeFetch = `node -e 'fetch(process.argv[1]).then(r => r.text()).then(console.log).catch(e => { console.log(String(e.cause ?? e)); process.exit(1) })' `
	pyFetch   = `python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=100).read().decode())' `
	tcpTalk   = `python3 -c 'import sys, socket; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 100); s.sendall(sys.argv[3].encode() + b"\r\n"); print(s.recv(100))' `
)

// What node's and Python's libraries are asked to do, all of it by TLS.
const (
	undiciFetch = newNode + ` -e 'const u = require(process.env.LIB + "/undici"); if (process.env.https_proxy) u.setGlobalDispatcher(new u.EnvHttpProxyAgent())
u.request(process.argv[1]).then(r => r.body.text()).then(console.log).catch(e => { console.log(String(e.cause ?? e)); process.exit(1) })' `
	grpcTalk = `node -e 'const grpc = require(process.env.LIB + "/@grpc/grpc-js"), as = b => b
const c = new grpc.Client(process.argv[1], grpc.credentials.createSsl(require("fs").readFileSync(process.env.CA)))
const s = c.makeBidiStreamRequest("/world/talk", as, as, { deadline: Date.now() + 100000 })
s.on("data", d => { console.log(String(d)); if (/one$/.test(d)) s.write(Buffer.from("two")); else s.end() })
s.on("error", e => { console.log(String(e)); process.exit(1) }); s.on("end", () => c.close()); s.write(Buffer.from("one"))' `
	wsTalk = `node -e 'const s = new (require(process.env.LIB + "/ws"))(process.argv[1], { handshakeTimeout: 100000 }); let n = 0
s.on("open", () => s.send("one")); s.on("message", d => { console.log(String(d)); if (n++) s.close(); else s.send("two") })
s.on("error", e => { console.log(String(e)); process.exit(1) })' `
	aioFetch = `PYTHON -c 'import sys, asyncio, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s, s.get(sys.argv[1]) as r: print(await r.text())
asyncio.run(main())' `
	aioTalk = `PYTHON -c 'import sys, asyncio, aiohttp
async def main():
    async with aiohttp.ClientSession(trust_env=True) as s, s.ws_connect(sys.argv[1]) as w:
        for word in "one", "two": await w.send_str(word); print(await w.receive_str(timeout=100))
asyncio.run(main())' `
	javaFetch = `cat > F.java <<'X'
public class F { public static void main(String[] a) throws Exception { System.out.print(new String(java.net.http.HttpClient.newHttpClient().send(java.net.http.HttpRequest.newBuilder(java.net.URI.create(a[0])).build(), java.net.http.HttpResponse.BodyHandlers.ofByteArray()).body())); } }
X
[ -e k.p12 ] || keytool -importcert -noprompt -alias w -file $CA -keystore k.p12 -storetype PKCS12 -storepass changeit
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djavax.net.ssl.trustStore=k.p12 -Djavax.net.ssl.trustStorePassword=changeit F.java `
	requestsGet = `PYTHON -c 'import sys, requests; print(requests.get(sys.argv[1], timeout=100).text)' `

	npmInstall  = `d=$(mktemp -d); cd $d && echo {} > package.json && npm install --loglevel warn --no-audit --no-fund --no-update-notifier --fetch-retries 0 --cafile $CA --registry https://HOST/npm/ tiny; node -p 'require("tiny")'`
	pipDownload = `d=$(mktemp -d); PYTHON -m pip download -q --disable-pip-version-check --no-cache-dir --no-deps --retries 0 --timeout 100 --cert $CA -i https://HOST/simple/ -d $d tiny; PYTHON -c 'import sys; sys.path.append(sys.argv[1]); import tiny; print(tiny.word)' $d/*.whl`
)

// pythonWith returns an interpreter that has a module.
func pythonWith(module string) (string, bool) {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+module).Run() == nil {
			return python, true
		}
	}
	return "", false
}

// runnable returns a client's script, with the Python that has the module, or skips where
// what it runs is not to be had.
func runnable(t *testing.T, needs, script, module string) string {
	t.Helper()
	if _, err := exec.LookPath(needs); err != nil {
		t.Skip("needs " + needs)
	}
	if (strings.Contains(script, "process.env.LIB") || strings.Contains(script, newNode)) && modules == "" {
		t.Skip("needs packages of npm's: PCCRUN_TEST_CLIENTS names them, or its client brings them")
	}
	if module == "" {
		return script
	}
	python, ok := pythonWith(module)
	if !ok {
		t.Skip("needs python3 with " + module)
	}
	return strings.ReplaceAll(script, "PYTHON", python)
}

// TestBare: a program that is started without the proxy's variables has none of them,
// which those have as well that only npm or git reads.
func TestBare(t *testing.T) {
	b := newBench(t, "--allow", "good.example")
	with, _ := b.inside("env")
	without, _ := b.inside(bare + "env")
	var names []string
	for _, e := range netproxy.Environ("http://127.0.0.1:3128") {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
		require.Contains(t, "\n"+with, "\n"+name+"=", "the control")
		require.NotContains(t, "\n"+without, "\n"+name+"=")
	}
	require.Contains(t, names, "npm_config_https_proxy")
	require.NotContains(t, without, "3128")
}

// TestClients runs programs that resolve names and connect on their own, each to an allowed host
// and to another, which the world serves in the same way. A program that knows of proxies has
// their variables in a row of its own here, or in netproxy's tests.
//
//test:root curl,_https
func TestClients(t *testing.T) {
	out, _ := newBench(t).outside("curl -sS -m 100 https://evil.example/")
	require.Contains(t, out, "hello evil.example from", "the control: outside the other host answers")
	for _, c := range []struct {
		name    string
		needs   string
		script  string // HOST stands for the host
		want    string
		proxied bool   // with the variables of the proxy; without them it is captured
		module  string // of Python's; PYTHON stands for an interpreter that has it
	}{
		{name: "curl, http", needs: "curl", script: "curl -sS -m 100 http://HOST/", want: "hello HOST from", proxied: true},
		{name: "curl, https", needs: "curl", script: "curl -sS -m 100 https://HOST/", want: "hello HOST from"},
		{name: "curl, IPv4", needs: "curl", script: "curl -4 -sS -m 100 https://HOST/", want: "hello HOST from"},
		{name: "curl, IPv6", needs: "curl", script: "curl -6 -sS -m 100 https://HOST/", want: "hello HOST from"},
		{name: "wget", needs: "wget", script: "wget -nv -t1 -T100 -O- --ca-certificate=$CA https://HOST/", want: "hello HOST from"},
		{name: "git, https", needs: "git", script: "d=$(mktemp -d); git clone -q https://HOST/repo.git $d/clone && cat $d/clone/file", want: "content"},
		{name: "node, fetch", needs: "node", script: nodeFetch + "https://HOST/", want: "hello HOST from"},
		{name: "node 24, fetch", needs: "bash", script: strings.Replace(nodeFetch, "node", newNode, 1) + "https://HOST/", want: "hello HOST from", proxied: true},
		{name: "python, urllib", needs: "python3", script: pyFetch + "https://HOST/", want: "hello HOST from"},
		{name: "Go", needs: "bash", script: "$FETCH https://HOST/", want: "hello HOST from"},
		{name: "java", needs: "java", script: javaFetch + "https://HOST/", want: "hello HOST from"},
		{name: "node 24, undici", needs: "bash", script: undiciFetch + "https://HOST/", want: "hello HOST from", proxied: true},
		{name: "npm", needs: "npm", script: npmInstall, want: "tiny came"},
		{name: "pip", needs: "python3", module: "pip", script: pipDownload, want: "tiny came", proxied: true},
		{name: "python, requests", needs: "python3", module: "requests", script: requestsGet + "https://HOST/", want: "hello HOST from", proxied: true},
		{name: "python, aiohttp", needs: "python3", module: "aiohttp", script: aioFetch + "https://HOST/", want: "hello HOST from"},
		{name: "websocket, aiohttp", needs: "python3", module: "aiohttp", script: aioTalk + "wss://HOST/socket", want: ": two", proxied: true},
		{name: "websocket, ws", needs: "node", script: wsTalk + "wss://HOST/socket", want: ": two"},
		{name: "gRPC", needs: "node", script: grpcTalk + "HOST:50051", want: ": two", proxied: true},
		{name: "psql, TLS", needs: "psql", script: "psql -w 'host=HOST user=u dbname=d connect_timeout=100 sslmode=verify-full sslrootcert='$CA -c 'select 1'", want: "the database of the world, by TLS"},
		{name: "redis-cli", needs: "redis-cli", script: "redis-cli -h HOST PING", want: "PONG"},
		{name: "redis-cli, TLS", needs: "redis-cli", script: "redis-cli -h HOST -p 6380 --tls --cacert $CA PING", want: "PONG"},
		{name: "psql", needs: "psql", script: "psql -w 'host=HOST user=u dbname=d connect_timeout=100 sslmode=disable' -c 'select 1'", want: "the database of the world"},
		{name: "ssh", needs: "ssh", script: "ssh -v -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=100 HOST true", want: "remote software version world"},
		{name: "redis, by hand", needs: "python3", script: tcpTalk + "HOST 6379 PING", want: "+PONG"},
		{name: "busybox, a resolver of its own", needs: "busybox", script: "busybox nslookup HOST", want: "198.19."},
		{name: "busybox wget", needs: "busybox", script: "busybox wget -q -O- http://HOST/", want: "hello HOST from", proxied: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.script = runnable(t, c.needs, c.script, c.module)
			if !c.proxied {
				c.script = bare + c.script
			}
			at := func(text, host string) string { return strings.ReplaceAll(text, "HOST", host) }
			b := newBench(t, "--allow", "good.example:22,80,443,5432,6379,6380,50051")
			var out string
			asked, reached := theWorld.since(func() {
				out, _ = b.inside("(" + at(c.script, "good.example") + "\n) 2>&1; printf '\nthe other:\n'; (" + at(c.script, "evil.example") + "\n) 2>&1")
			})
			works, refused, _ := strings.Cut(out, "\nthe other:\n")
			require.Contains(t, works, at(c.want, "good.example"))
			require.NotContains(t, refused, at(c.want, "evil.example"))
			// A line of pccrun's may overtake what the command has printed.
			if c.name == "npm" { // its title has no words that name the host: it may be the user's own registry
				require.Contains(t, out, "to allow: --allow @npm")
			} else {
				require.Contains(t, out, "to allow: --allow evil.example", "the user is told")
			}
			for _, name := range asked {
				require.Equal(t, "good.example.", name, "nobody was asked for the other's name")
			}
			for _, place := range reached {
				host, _, err := net.SplitHostPort(place)
				require.NoError(t, err)
				require.Contains(t, []string{good4, good6}, host)
			}
		})
	}
}
