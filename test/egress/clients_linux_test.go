package egress

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	nodeFetch = `node -e 'fetch(process.argv[1]).then(r => r.text()).then(console.log).catch(e => { console.log(String(e.cause ?? e)); process.exit(1) })' `
	pyFetch   = `python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())' `
	tcpTalk   = `python3 -c 'import sys, socket; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20); s.sendall(sys.argv[3].encode() + b"\r\n"); print(s.recv(100))' `
)

// TestClients runs programs that resolve names and connect on their own, with
// the variables of the proxy and without, each to an allowed host and to
// another.
func TestClients(t *testing.T) {
	for _, c := range []struct {
		name   string
		needs  string
		script string // HOST stands for the host
		want   string
		bare   bool // it knows no proxy anyway
	}{
		{name: "curl, http", needs: "curl", script: "curl -sS -m 20 http://HOST/", want: "hello HOST from"},
		{name: "curl, https", needs: "curl", script: "curl -sS -m 20 https://HOST/", want: "hello HOST from"},
		{name: "curl, IPv4", needs: "curl", script: "curl -4 -sS -m 20 https://HOST/", want: "hello HOST from", bare: true},
		{name: "curl, IPv6", needs: "curl", script: "curl -6 -sS -m 20 https://HOST/", want: "hello HOST from", bare: true},
		{name: "wget", needs: "wget", script: "wget -nv -t1 -T20 -O- --ca-certificate=$CA https://HOST/", want: "hello HOST from"},
		{name: "git, https", needs: "git", script: "d=$(mktemp -d); git clone -q https://HOST/repo.git $d/clone && cat $d/clone/file", want: "content"},
		{name: "node, fetch", needs: "node", script: nodeFetch + "https://HOST/", want: "hello HOST from"},
		{name: "python, urllib", needs: "python3", script: pyFetch + "https://HOST/", want: "hello HOST from"},
		{name: "Go, static", needs: "bash", script: "$FETCH https://HOST/", want: "hello HOST from"},
		{name: "java", needs: "java", script: `keytool -importcert -noprompt -alias w -file $CA -keystore k.p12 -storetype PKCS12 -storepass changeit >/dev/null 2>&1
cat > F.java <<'X'
public class F { public static void main(String[] a) throws Exception { System.out.print(new String(java.net.http.HttpClient.newHttpClient().send(java.net.http.HttpRequest.newBuilder(java.net.URI.create(a[0])).build(), java.net.http.HttpResponse.BodyHandlers.ofByteArray()).body())); } }
X
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djavax.net.ssl.trustStore=k.p12 -Djavax.net.ssl.trustStorePassword=changeit F.java https://HOST/`, want: "hello HOST from", bare: true},
		{name: "psql", needs: "psql", script: "psql -w 'host=HOST user=u dbname=d connect_timeout=10' -c 'select 1' 2>&1", want: "the database of the world", bare: true},
		{name: "ssh", needs: "ssh", script: "ssh -v -o BatchMode=yes -o StrictHostKeyChecking=no -o ConnectTimeout=10 HOST true 2>&1", want: "remote software version world", bare: true},
		{name: "redis, by hand", needs: "python3", script: tcpTalk + "HOST 6379 PING", want: "+PONG", bare: true},
		{name: "busybox, a resolver of its own", needs: "busybox", script: "busybox nslookup HOST", want: "198.19.", bare: true},
		{name: "busybox wget", needs: "busybox", script: "busybox wget -q -O- http://HOST/", want: "hello HOST from", bare: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skip("needs " + c.needs)
			}
			b := newBench(t, "--allow", "good.example:22,80,443,5432,6379")
			for _, prefix := range []string{bare, ""} {
				if prefix == "" && c.bare {
					continue
				}
				out, _ := b.inside(prefix + strings.ReplaceAll(c.script, "HOST", "good.example"))
				require.Contains(t, out, strings.ReplaceAll(c.want, "HOST", "good.example"))
				asked, reached := theWorld.since(func() {
					out, _ = b.inside(prefix + strings.ReplaceAll(c.script, "HOST", "evil.example"))
				})
				require.NotContains(t, out, strings.ReplaceAll(c.want, "HOST", "evil.example"))
				require.Contains(t, out, "allowed by --allow evil.example", "the user is told")
				require.Empty(t, asked, "nobody was asked for its name")
				require.Empty(t, reached)
			}
			if c.want == "198.19." {
				return
			}
			out, _ := b.outside(strings.ReplaceAll(c.script, "HOST", "evil.example"))
			require.Contains(t, out, strings.ReplaceAll(c.want, "HOST", "evil.example"), "the control: outside it works")
		})
	}
}
