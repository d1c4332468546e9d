package egress

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// words are the words of a text, as a shell splits it.
func words(t *testing.T, text string) (list []string) {
	out, err := exec.Command("bash", "-fc", `printf '%s\0' `+text).Output()
	require.NoError(t, err)
	for word := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if word != "" {
			list = append(list, word)
		}
	}
	return list
}

// TestHints follows a hint of each kind to the letter: the command that was refused works then, and
// with any flag less of those that were printed it does not. What the hint for a host and a port
// says is tested in netproxy/rules; test/hints.txt says which row follows which hint.
func TestHints(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	_, port, _ := net.SplitHostPort(l.Addr().String())
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") }))
	const some = "--allow other.example"
	get := func(url string) string { return bare + "curl -gfsS -m 100 " + url }
	const ping = bare + `exec 3<>/dev/tcp/good.example/6379; echo PING >&3; read -t 100 x <&3; [ "$x" ]`
	for _, row := range []struct{ name, flags, script, says string }{
		{name: "no network", script: get("https://www.good.example/"), says: `denied: resolve www\.good\.example`},
		{name: "a name", flags: some, script: get("https://www.good.example/"), says: `denied: (?:resolve )?www\.good\.example(?::443)?`},
		{name: "another port", flags: "--allow good.example", script: ping, says: `denied: good\.example:6379`},
		{name: "a client's own port", script: bare + `exec -a redis-cli bash -c 'exec 3<>/dev/tcp/good.example/6379; echo PING >&3; read -t 100 x <&3; [ "$x" ]'`, says: `denied: resolve good\.example`},
		{name: "a name of a private network", flags: some, script: get("http://git.corp/"), says: `denied: (?:resolve )?git\.corp(?::80)?`},
		{name: "a private address", flags: some, script: get("http://" + private4 + "/"), says: `denied: 10\.1\.2\.3:80`},
		{name: "a request", flags: "--allow 'GET https://chatgpt.com/ok/**'", script: get("https://chatgpt.com/no"), says: `denied: request GET https://chatgpt\.com/no`},
		{name: "a service of the machine", flags: some, script: "curl -gfsS -m 100 --noproxy none -x http://127.0.0.1:3128 http://host.pccrun.internal:" + port, says: `denied: host\.pccrun\.internal:` + port},
		{name: "the name of the machine", script: bare + "getent hosts host.pccrun.internal", says: `denied: resolve host\.pccrun\.internal`},
	} {
		t.Run(row.name, func(t *testing.T) {
			given := words(t, row.flags)
			out, code := newBench(t, given...).inside(row.script)
			require.NotZero(t, code, "without the hint: %s", out)
			// Not at the beginning of a line: what the command prints in pieces may be in one.
			found := regexp.MustCompile(`(?m)pccrun: ` + row.says + `(?:, \d+ times)? \(to allow: (.*)\)$`).FindStringSubmatch(out)
			require.NotNil(t, found, out)
			t.Log(found[1])
			flags := words(t, strings.ReplaceAll(found[1], "PORT", port))
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
