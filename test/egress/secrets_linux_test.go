package egress

import (
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretEscaped has a host that sends a secret back as libraries write it into
// HTML, scripts, JSON and URLs. The control is a client outside.
func TestSecretEscaped(t *testing.T) {
	const key = "tok-en+with/special=zebra&more_0123456789"
	page := template.Must(template.New("").Parse(`<p title={{.}}>{{.}}</p><script>x = {{.}}</script><a href="/?k={{.}}">`))
	gson := strings.NewReplacer("=", `\u003d`, "&", `\u0026`)
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("X-Key")
		w.Header().Set("X-Echo", template.URLQueryEscaper(template.URLQueryEscaper(sent)))
		if err := page.Execute(w, sent); err != nil {
			t.Error(err)
		}
		_, _ = w.Write([]byte(gson.Replace(sent)))
		fragment := &strings.Builder{}
		if err := page.Execute(fragment, sent); err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(template.HTMLEscapeString(fragment.String())) // as APIs hand out HTML
		_, _ = w.Write([]byte(url.QueryEscape(gson.Replace(sent))))
		if strings.Contains(strings.ToLower(r.Header.Get("Accept")), "charset") || r.Header.Get("Accept-Charset") != "" {
			_, _ = w.Write([]byte("as asked: EBCDIC"))
		}
		for _, c := range sent { // and to whoever did not ask
			_, _ = w.Write([]byte{byte(c), 0})
		}
	}))
	b := newBench(t, "--allow", "chatgpt.com", "--inject", "KEY=chatgpt.com", "--inject-file", "KEY=~/.key")
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".key"), []byte(key+"\n"), 0o600))
	const script = `curl -isS -m 10 -H "X-Key: $KEY" -H 'Accept: text/plain;q=1; Charset="utf-16", */*' -H 'Accept-Charset: cp037' https://chatgpt.com/ 2>&1`
	out, _ := b.inside(script)
	require.Contains(t, out, "<script>")
	require.NotContains(t, out, "special")
	require.NotContains(t, out, "zebra")
	require.NotContains(t, strings.ReplaceAll(out, "\x00", ""), "zebra")
	require.NotContains(t, out, "as asked")
	out, _ = b.outside("KEY='" + key + "'; " + script)
	require.Contains(t, out, "special", "the control")
	require.Contains(t, out, "as asked")
	require.Contains(t, out, "z\x00e\x00b\x00r\x00a")
}

// TestTooMany: there is an end to what one sandbox can have open at once, far from
// what pccrun itself needs, and the user is told. Below it all of them stand, which is
// the control.
func TestTooMany(t *testing.T) {
	b := newBench(t, "--allow", "good.example:6379")
	const script = bare + `python3 -c 'import socket, sys
open, refused = [], 0
for _ in range(int(sys.argv[1])):
    try:
        s = socket.create_connection(("good.example", 6379), 10); s.sendall(b"PING\r\n")
        if s.recv(10): open.append(s)
        else: refused += 1
    except OSError: refused += 1
print("open", len(open), "refused", refused)
for s in open: s.close()
import time; time.sleep(0.5)
s = socket.create_connection(("good.example", 6379), 10); s.sendall(b"PING\r\n"); print("then", s.recv(10))' `
	for count, want := range map[string]string{"100": "open 100 refused 0\n", "300": "open 136 refused 164\n"} {
		out, _ := b.run(append([]string{"bash", "-c", `ulimit -n 400; exec "$@"`, "bash"}, b.sandboxed(script+count)...)...)
		require.Contains(t, out, want)
		require.Contains(t, out, "then b'+PONG")
		require.Equal(t, count == "300", strings.Contains(out, "more connections at once than can be served: those beyond are reset ("), out)
	}
}
