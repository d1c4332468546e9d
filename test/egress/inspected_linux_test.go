package egress

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// javaFetch prints what is at a URL. What Java trusts is its own; TRUST says that it has
// to be told of the world's authority.
const javaFetch = `cat > F.java <<'X'
public class F { public static void main(String[] a) throws Exception { for (String u : a) System.out.print(new String(java.net.http.HttpClient.newHttpClient().send(java.net.http.HttpRequest.newBuilder(java.net.URI.create(u)).build(), java.net.http.HttpResponse.BodyHandlers.ofByteArray()).body())); } }
X
[ -z "$TRUST" ] || keytool -importcert -noprompt -alias w -file $CA -keystore k.p12 -storetype PKCS12 -storepass changeit >/dev/null 2>&1
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC ${TRUST:+-Djavax.net.ssl.trustStore=k.p12 -Djavax.net.ssl.trustStorePassword=changeit} F.java `

// TestInspectedClients has programs send requests to a host whose requests are judged,
// with the variables of the proxy and without: one that is allowed, and one that is not.
// No client is told of the session's authority, nor of the world's, whose certificate
// the host has and another host that is not inspected.
func TestInspectedClients(t *testing.T) {
	verdicts.SkipAsRoot(t)
	var paths seen
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths.add(r.URL.Path)
		io.WriteString(w, "hello "+r.URL.Path+"\n")
	}))
	for _, c := range []struct{ name, needs, script, module string }{
		{name: "curl", needs: "curl", script: "curl -sS -m 20 "},
		{name: "wget", needs: "wget", script: "wget -nv -t1 -T20 -O- ${TRUST:+--ca-certificate=$CA} "},
		{name: "node, fetch", needs: "node", script: nodeFetch},
		{name: "node 24, undici", needs: "bash", script: undiciFetch},
		{name: "python, urllib", needs: "python3", script: pyFetch},
		{name: "python, requests", needs: "python3", script: requestsGet, module: "requests"},
		{name: "python, aiohttp", needs: "python3", script: aioFetch, module: "aiohttp"},
		{name: "Go, static", needs: "bash", script: "$FETCH "},
		{name: "java", needs: "java", script: javaFetch},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.script = runnable(t, c.needs, c.script, c.module)
			urls := []string{"https://chatgpt.com/ok/x", "https://chatgpt.com/no", "https://good.example/"}
			if c.needs == "java" { // which takes long to start
				urls = []string{strings.Join(urls, " ")}
			}
			script := ""
			for _, u := range urls {
				script += c.script + u + " 2>&1; "
			}
			b := newBench(t, "--allow", "GET,HEAD https://chatgpt.com/ok/**", "--allow", "good.example")
			for _, prefix := range []string{bare, ""} {
				out, _ := b.inside(prefix + script)
				require.Contains(t, out, "hello /ok/x")
				require.Contains(t, out, "hello good.example from", "its certificate is the world's own")
				require.NotContains(t, out, "hello /no")
				require.Contains(t, out, "denied: request GET https://chatgpt.com/no (to allow: --allow 'GET https://chatgpt.com/no')", "the user is told")
				require.Equal(t, []string{"/ok/x"}, slices.Compact(paths.take()))
			}
			out, _ := b.outside("export TRUST=1 REQUESTS_CA_BUNDLE=$CA; " + script)
			require.Contains(t, out, "hello /no", "the control: outside it works")
			require.Contains(t, paths.take(), "/no")
		})
	}
}
