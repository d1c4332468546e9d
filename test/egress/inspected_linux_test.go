package egress

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInspectedClients has programs send requests to a host whose requests are judged: one that
// is allowed, and one that is not. No client is told of the session's authority, nor of the
// world's, whose certificate the host has and another host that is not inspected. Those that
// trust by other means native's TestTrusted has.
func TestInspectedClients(t *testing.T) {
	var paths seen
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths.add(r.URL.Path)
		io.WriteString(w, "hello "+r.URL.Path+"\n")
	}))
	out, _ := newBench(t).outside("curl -sS -m 100 https://chatgpt.com/no")
	require.Contains(t, out, "hello /no", "the control: outside it works")
	require.Equal(t, []string{"/no"}, paths.take())
	for _, c := range []struct{ name, needs, script, module string }{
		{name: "curl", needs: "curl", script: bare + "curl -sS -m 100 "},
		{name: "node 24, undici", needs: "bash", script: undiciFetch},
		{name: "python, requests", needs: "python3", script: requestsGet, module: "requests"},
		{name: "python, aiohttp", needs: "python3", script: bare + aioFetch, module: "aiohttp"},
		{name: "Go", needs: "bash", script: bare + "$FETCH "},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.script = runnable(t, c.needs, c.script, c.module)
			script := ""
			for _, u := range []string{"https://chatgpt.com/ok/x", "https://chatgpt.com/no", "https://good.example/"} {
				script += c.script + u + " 2>&1; "
			}
			out, _ := newBench(t, "--allow", "GET,HEAD https://chatgpt.com/ok/**", "--allow", "good.example").inside(script)
			require.Contains(t, out, "hello /ok/x")
			require.Contains(t, out, "hello good.example from", "its certificate is the world's own")
			require.NotContains(t, out, "hello /no")
			require.Contains(t, out, "denied: request GET https://chatgpt.com/no (to allow: --allow 'GET https://chatgpt.com/no')", "the user is told")
			require.Equal(t, []string{"/ok/x"}, slices.Compact(paths.take()))
		})
	}
}
