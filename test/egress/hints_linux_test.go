package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// TestHints follows the hint of each kind of refused connection to the letter: the command that was
// refused works then, as it does outside, and with any flag less of those that were printed it does
// not. test/hints.txt says which row follows which hint.
func TestHints(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	_, port, _ := net.SplitHostPort(l.Addr().String())
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	const some = "--allow other.example"
	get := func(url string) string { return bare + "curl -gfsS -m 20 " + url }
	proxied := func(url string) string { return "curl -gfsS -m 20 --noproxy none -x http://127.0.0.1:3128 " + url }
	const ping = bare + `exec 3<>/dev/tcp/good.example/6379; echo PING >&3; read -t 20 x <&3; [ "$x" ]`
	for _, row := range []struct {
		name, flags, script, says string
		outside                   string // the control, where it is not the script
	}{
		{name: "no network", script: get("https://www.good.example/"), says: `denied: resolve www\.good\.example`},
		{name: "a name", flags: some, script: get("https://www.good.example/"), says: `denied: (?:resolve )?www\.good\.example(?::443)?`},
		{name: "a name by the proxy", flags: some, script: proxied("http://www.good.example/"), says: `denied: www\.good\.example:80`, outside: get("http://www.good.example/")},
		{name: "an address", flags: some, script: get("http://" + evil4), says: `denied: 140\.82\.112\.4:80`},
		{name: "an address of IPv6", flags: some, script: get("http://[" + good6 + "]/"), says: `denied: ` + good6 + `:80`},
		{name: "another port", flags: "--allow good.example", script: ping, says: `denied: good\.example:6379`},
		{name: "a private address", flags: some, script: get("http://" + private4 + "/"), says: `denied: 10\.1\.2\.3:80`},
		{name: "a name that leads to a private address", flags: "--allow *.good.example", script: get("http://internal.good.example/"), says: `denied: internal\.good\.example:80`},
		{name: "a name that leads to an address that stands for another", flags: "--allow clash.good.example", script: get("http://clash.good.example/"), says: `denied: clash\.good\.example:80`},
		{name: "a request", flags: "--allow 'GET https://chatgpt.com/ok/**'", script: get("https://chatgpt.com/no"), says: `denied: request GET https://chatgpt\.com/no`},
		{name: "a service of the machine", flags: some, script: proxied("http://host.pccrun.internal:" + port), says: `denied: host\.pccrun\.internal:` + port, outside: get("http://127.0.0.1:" + port)},
		{name: "a service of the machine by its address", flags: some, script: proxied("http://localhost:" + port), says: `denied: localhost:` + port, outside: get("http://127.0.0.1:" + port)},
		{name: "the name of the machine", script: bare + "getent hosts host.pccrun.internal", says: `denied: resolve host\.pccrun\.internal`, outside: "true"},
	} {
		t.Run(row.name, func(t *testing.T) {
			given := vcs.Words(row.flags)
			outside := row.outside
			if outside == "" {
				outside = row.script
			}
			out, code := newBench(t).outside(outside)
			require.Zero(t, code, "the control, outside: %s", out)
			out, code = newBench(t, given...).inside(row.script)
			require.NotZero(t, code, "without the hint: %s", out)
			found := regexp.MustCompile(`(?m)^pccrun: ` + row.says + `(?:, \d+ times)? \(to allow: (.*)\)$`).FindStringSubmatch(out)
			require.NotNil(t, found, out)
			t.Log(found[1])
			flags := vcs.Words(strings.ReplaceAll(found[1], "PORT", port))
			require.Zero(t, len(flags)%2, fmt.Sprint(flags))
			out, code = newBench(t, append(given, flags...)...).inside(row.script)
			require.Zero(t, code, "%s, after: %s", found[1], out)
			for i := 0; len(flags) > 2 && i < len(flags); i += 2 {
				less := append(append(append([]string{}, given...), flags[:i]...), flags[i+2:]...)
				out, code = newBench(t, less...).inside(row.script)
				require.NotZero(t, code, "it works with %v alone: %s", less, out)
			}
		})
	}
}
