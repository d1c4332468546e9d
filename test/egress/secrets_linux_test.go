package egress

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretEchoed has a host that sends a secret back as it is, in base64, and as URLs
// escape both. The control is a client outside.
func TestSecretEchoed(t *testing.T) {
	const key = "tok-en+with/special=zebra&more_0123456789"
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("X-Key")
		coded := base64.StdEncoding.EncodeToString([]byte("user:" + sent))
		w.Header().Set("X-Echo", url.QueryEscape(sent))
		fmt.Fprintf(w, "<p>%s</p><a href=\"/?k=%s&b=%s\">%s</a>\n%s\n", sent, url.QueryEscape(sent), url.QueryEscape(coded), url.PathEscape(sent), coded)
		if strings.Contains(strings.ToLower(r.Header.Get("Accept")), "charset") || r.Header.Get("Accept-Charset") != "" {
			_, _ = w.Write([]byte("as asked: EBCDIC"))
		}
	}))
	b := newBench(t, "--allow", "chatgpt.com", "--inject", "KEY=chatgpt.com", "--inject-file", "KEY=~/.key")
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".key"), []byte(key+"\n"), 0o600))
	const script = `curl -isS -m 100 -H "X-Key: $KEY" -H 'Accept: text/plain;q=1; Charset="utf-16", */*' -H 'Accept-Charset: cp037' https://chatgpt.com/ 2>&1`
	out, _ := b.inside(script)
	require.Contains(t, out, "<a href")
	coded := base64.StdEncoding.EncodeToString([]byte("user:" + key))
	require.NotContains(t, out, "special")
	require.NotContains(t, out, "zebra")
	require.NotContains(t, out, coded[20:40])
	require.NotContains(t, out, "as asked")
	out, _ = b.outside("KEY='" + key + "'; " + script)
	require.Contains(t, out, "special", "the control")
	require.Contains(t, out, coded[20:40])
	require.Contains(t, out, "as asked")
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
        s = socket.create_connection(("good.example", 6379), 100); s.sendall(b"PING\r\n")
        if s.recv(10): open.append(s)
        else: refused += 1
    except OSError: refused += 1
print("open", len(open), "refused", refused)
for s in open: s.close()
import time
got, late = b"", time.time() + 150 # what was open is not closed at once on the way out
while not got and time.time() < late:
    try:
        s = socket.create_connection(("good.example", 6379), 100); s.sendall(b"PING\r\n"); got = s.recv(10)
    except OSError: time.sleep(0.05)
print("then", got)' `
	for count, want := range map[string]string{"100": "open 100 refused 0\n", "300": "open 136 refused 164\n"} {
		out, _ := b.run(append([]string{"bash", "-c", `ulimit -n 400; exec "$@"`, "bash"}, b.sandboxed(script+count)...)...)
		require.Contains(t, out, want)
		require.Contains(t, out, "then b'+PONG")
		require.Equal(t, count == "300", strings.Contains(out, "too many connections at once: further ones are reset ("), out)
	}
}

// TestGitCredentials: git inside signs in as the user's git does outside, and has never seen with
// what. The control is git outside.
func TestGitCredentials(t *testing.T) {
	const password = "gitpass-zebra-0123456789"
	var got []string
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, sent, is := r.BasicAuth(); is {
			got = append(got, user+" "+sent)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	b := newBench(t, "--allow", "chatgpt.com", "--use", "git-credentials")
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".kept"), []byte("https://me:"+password+"@chatgpt.com\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".gitconfig"), []byte("[credential]\n\thelper = store --file "+b.home+"/.kept\n"), 0o600))
	const script = "GIT_TERMINAL_PROMPT=0 git ls-remote https://chatgpt.com/x.git 2>&1; env"
	out, _ := b.inside(script)
	require.Equal(t, []string{"me " + password}, got, out)
	require.NotContains(t, out, "zebra")
	got = nil
	_, _ = b.outside(script)
	require.Equal(t, []string{"me " + password}, got, "the control")
}
