package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHostsOwnProxy: behind a proxy that the host has to use, connections go to it by
// name. The rules for names hold, and so does the check of an address where the name
// resolves on the host; a name that does not is the proxy's own to resolve.
func TestHostsOwnProxy(t *testing.T) {
	var asked seen
	const at = agents4 + ":3128"
	theWorld.mu.Lock()
	servers := map[string]func(net.Conn){"443": theWorld.serve[good4+":443"], "80": theWorld.serve[good4+":80"]}
	theWorld.serve[at] = func(c net.Conn) {
		br := bufio.NewReader(c)
		r, err := http.ReadRequest(br)
		if err != nil {
			c.Close()
			return
		}
		asked.add(r.Method + " " + r.Host)
		if r.Method != http.MethodConnect {
			defer c.Close()
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nthe proxy's %s\n", r.URL)
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		_, port, _ := net.SplitHostPort(r.Host)
		servers[port](readAhead{c, br}) // whatever the name
	}
	theWorld.mu.Unlock()
	t.Cleanup(func() {
		theWorld.mu.Lock()
		defer theWorld.mu.Unlock()
		delete(theWorld.serve, at)
	})
	const script = `get() { curl -sS -m 100 "$1" 2>&1; }; get https://www.good.example/; get http://www.good.example/x; get https://unknown.good.example/; get https://rebind.good.example/; get https://evil.example/; get https://api.good.example/ok; get https://api.good.example/no; get https://six.good.example/`
	b := newBench(t, "--allow", "www.good.example", "--allow", "unknown.good.example", "--allow", "rebind.good.example", "--allow", "six.good.example", "--allow", "GET https://api.good.example/ok")
	lines := []string{"HTTPS_PROXY=http://chatgpt.com:3128", "http_proxy=http://chatgpt.com:3128", "NO_PROXY=six.good.example"}
	run := func(script string) (string, []string) {
		var out string
		_, reached := theWorld.since(func() {
			out, _ = b.run(append([]string{"env", lines[0], lines[1], lines[2]}, b.sandboxed(script)...)...)
		})
		return out, reached
	}
	out, _ := run(script)
	require.Contains(t, out, "HTTPS_PROXY, http_proxy, NO_PROXY of the environment does not count for what pccrun itself sends: the same line in ~/.config/pccrun/environment makes it count")
	require.Contains(t, out, "hello www.good.example from")
	require.Empty(t, asked.take(), "a proxy that a project could have named")
	require.NoError(t, mine(append(lines, "SSL_CERT_FILE="+caFile)...))
	defer mine("SSL_CERT_FILE=" + caFile)
	for _, prefix := range []string{"", bare} {
		out, reached := run(prefix + script)
		require.Contains(t, out, "the proxy chatgpt.com:3128 of ~/.config/pccrun/environment", "the user is told")
		require.Contains(t, out, "hello www.good.example from")
		if prefix == "" {
			require.Contains(t, out, "the proxy's http://www.good.example/x")
		}
		require.Contains(t, out, "hello unknown.good.example from", "which resolves nowhere else")
		require.Contains(t, out, "hello api.good.example from", "inspected")
		require.Contains(t, out, "hello six.good.example from", "NO_PROXY")
		require.Contains(t, out, "denied: request GET https://api.good.example/no")
		require.Contains(t, out, "denied: rebind.good.example:443 (to allow: --allow 'private rebind.good.example')")
		require.Contains(t, out, "to allow: --allow evil.example")
		list := asked.take()
		require.Contains(t, list, "CONNECT unknown.good.example:443")
		require.Contains(t, list, "CONNECT api.good.example:443")
		for _, never := range []string{"CONNECT evil.example:443", "CONNECT rebind.good.example:443", "CONNECT six.good.example:443"} {
			require.NotContains(t, list, never)
		}
		events, _ := b.run(program, "net", "--each")
		for _, host := range []string{"www", "unknown", "api"} {
			require.Regexp(t, "allowed "+host+`\.good\.example:443 via \S+ (to \S+ )?by the host's own proxy`, events)
		}
		require.NotRegexp(t, "six.good.example:443 via .* by the host's own proxy", events)
		for _, r := range reached {
			require.Contains(t, []string{at, "[" + good6 + "]:443"}, r, "nothing else was dialled")
		}
	}
	b.flags = append(b.flags, "--allow", "evil.example", "--allow", "private rebind.good.example")
	run("curl -sS -m 100 https://evil.example/ https://rebind.good.example/")
	require.ElementsMatch(t, []string{"CONNECT evil.example:443", "CONNECT rebind.good.example:443"}, asked.take(), "the control: allowed, it goes there")
}

// readAhead is a connection of which something was read.
type readAhead struct {
	net.Conn
	br *bufio.Reader
}

func (r readAhead) Read(b []byte) (int, error) { return r.br.Read(b) }
