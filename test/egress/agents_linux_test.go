package egress

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/websocket"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// site has a handler answer by TLS at an address of the world for as long as
// the test runs.
func (w *world) site(t *testing.T, at string, h http.Handler) {
	q := newQueue()
	go (&http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}).Serve(tls.NewListener(q, w.tls))
	w.mu.Lock()
	w.serve[at] = q.put
	w.mu.Unlock()
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.serve, at)
	})
}

// seen collects what requests carried.
type seen struct {
	mu   sync.Mutex
	list []string
}

func (s *seen) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, text)
}

// take returns what was seen since it was taken last.
func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

// responses is what a model says in the words of OpenAI's Responses API.
func responses() (events []string) {
	usage := `{"input_tokens":1,"input_tokens_details":null,"output_tokens":1,"output_tokens_details":null,"total_tokens":2}`
	return []string{
		`{"type":"response.created","response":{"id":"r1"}}`,
		`{"type":"response.output_item.done","item":{"type":"message","role":"assistant","id":"m1","content":[{"type":"output_text","text":"The job is done."}]}}`,
		`{"type":"response.completed","response":{"id":"r1","usage":` + usage + `}}`,
	}
}

// openai is a host of OpenAI's: a model that has one answer, by a websocket or
// by server-sent events, and the end of a login.
func openai(keys, codes *seen) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/v1/responses", "/backend-api/codex/responses"} {
		stream := websocket.Server{Handler: func(c *websocket.Conn) {
			var request string
			for websocket.Message.Receive(c, &request) == nil {
				for _, e := range responses() {
					_ = websocket.Message.Send(c, e)
				}
			}
		}}
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			keys.add(r.Host + " " + r.Method + " " + r.Header.Get("Authorization"))
			if r.Method == http.MethodGet {
				stream.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			for _, e := range responses() {
				fmt.Fprintf(w, "data: %s\n\n", e)
				_ = http.NewResponseController(w).Flush()
			}
		})
	}
	mux.HandleFunc("/backend-api/codex/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"models":[]}`) })
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"models":[]}`) })
	mux.HandleFunc("/backend-api/wham/accounts/check", func(w http.ResponseWriter, r *http.Request) {
		keys.add(r.Host + " " + r.Method + " " + r.Header.Get("Authorization"))
		http.NotFound(w, r)
	})
	mux.HandleFunc("POST /oauth/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("grant_type") == "authorization_code" {
			codes.add(r.Host + " " + r.FormValue("code"))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"id_token": token, "access_token": token, "refresh_token": "refresh-of-the-test", "expires_in": 3600})
	})
	return mux
}

// token is a JWT that nobody signed, of an account with a plan.
var token = func() string {
	claims, _ := json.Marshal(map[string]any{
		"email": "dev@example.com", "sub": "u", "exp": time.Now().Add(time.Hour).Unix(),
		"https://api.openai.com/auth": map[string]string{"chatgpt_account_id": "account", "chatgpt_plan_type": "plus", "chatgpt_user_id": "u"},
	})
	return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}()

// agentCommand is the line of an agent's program, by the name that picks its
// profile, with flags of pccrun's before it.
func (b *bench) agentCommand(flags []string, agent string, args ...string) []string {
	argv := []string{program, "--env", "SSL_CERT_FILE", "--env", "NODE_EXTRA_CA_CERTS", "--read", shared, "--read", modules}
	return append(append(append(argv, flags...), "--", agent), args...)
}

// codex are what its test runs are told.
var codex = []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go on"}

// codexProgram is Codex itself, not the script that looks for it.
func codexProgram(t *testing.T) string {
	t.Helper()
	if modules == "" {
		t.Skip("needs packages of npm's: PCCRUN_TEST_CLIENTS names them, or its client brings them")
	}
	list, _ := filepath.Glob(filepath.Join(modules, "@openai", "codex-linux-*", "vendor", "*", "bin", "codex"))
	if len(list) == 0 {
		t.Skip("needs a codex for this machine")
	}
	return list[0]
}

// refused runs an agent until a host is refused to it, since it tries again for long, and
// returns what was said.
func (b *bench) refused(host string, argv []string) string {
	b.t.Helper()
	file := filepath.Join(b.home, "events")
	return b.until("it is refused "+host, func() bool {
		text, _ := os.ReadFile(file)
		return strings.Contains(string(text), `"what":"connect `+host)
	}, slices.Insert(argv, 1, "--events", file)...)
}

// until runs a command line until something holds, and returns what was said.
func (b *bench) until(what string, holds func() bool, argv ...string) string {
	b.t.Helper()
	cmd := b.command(argv...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	start(b.t, cmd)
	defer cmd.Process.Kill()
	await.Until(b.t, what, holds)
	require.NoError(b.t, cmd.Process.Signal(syscall.SIGTERM))
	defer time.AfterFunc(await.Patience, func() { cmd.Process.Kill() }).Stop()
	cmd.Wait()
	return out.String()
}

// TestCodex has the real Codex work with a key that it does not have, by the
// websocket that it prefers, without the proxy's variables: it is a program in Rust
// that is linked with musl's library. Its name picks its profile.
func TestCodex(t *testing.T) {
	program := codexProgram(t)
	var keys, codes seen
	theWorld.site(t, agents4+":443", openai(&keys, &codes))
	const key = "sk-proj-the-real-key-of-the-test-0123456789"
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".key"), []byte(key+"\n"), 0o600))
	flags := []string{"--inject", "CODEX_API_KEY=api.openai.com", "--inject-file", "CODEX_API_KEY=~/.key", "--profile", "codex"}
	out, _ := b.run(b.agentCommand(flags, "bash", "-c",
		bare+"env; "+program+" "+strings.Join(codex[:3], " ")+" 'go on' 2>&1; grep -rs "+key[:20]+" /proc/[0-9]*/environ ~ /tmp | head")...)
	require.Contains(t, out, "The job is done.")
	require.Contains(t, out, "CODEX_API_KEY=sk-proj-")
	require.NotContains(t, out, key[10:])
	used := keys.take()
	require.NotEmpty(t, used)
	for _, k := range used {
		require.Equal(t, "api.openai.com GET Bearer "+key, k, "the host sees the real one, and a websocket is enough")
	}

	asked, _ := theWorld.since(func() {
		out = b.refused("api.openai.com:443", b.agentCommand([]string{"--env", "CODEX_API_KEY=sk-some", "--deny", "api.openai.com"}, program, codex...))
	})
	require.Contains(t, out, "profile codex")
	require.NotContains(t, out, "The job is done.")
	require.Contains(t, out, "denied: api.openai.com:443", "the user is told")
	require.NotContains(t, asked, "api.openai.com.")
	require.Empty(t, keys.take())
}

// TestCodexLogin logs in from inside: the URL is shown outside, the browser
// there comes back to a port that is published, and what was logged in works in
// the next run.
func TestCodexLogin(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	program := codexProgram(t)
	var keys, codes seen
	theWorld.site(t, agents4+":443", openai(&keys, &codes))
	b := newBench(t)
	login := func(flags ...string) (*url.URL, func(os.Signal) string) {
		return b.signIn(b.command(b.agentCommand(flags, program, "login")...), "https://auth.openai.com/oauth/authorize?")
	}
	page, wait := login()
	require.Error(t, come(page), "not published: nobody is there")
	wait(os.Interrupt)
	require.Empty(t, codes.take())

	page, wait = login("--publish", "1455")
	require.NoError(t, come(page))
	require.Contains(t, wait(syscall.Signal(0)), "Successfully logged in")
	require.Equal(t, []string{"auth.openai.com code-of-the-test"}, codes.take())
	b.keeps(".codex/auth.json")

	// Its own login, in the next run. What the service answers to an account is
	// not played here: the token that it is asked with is enough.
	out := b.until("it is logged in", func() bool { return slices.Contains(keys.take(), "chatgpt.com GET Bearer "+token) }, b.agentCommand(nil, program, codex...)...)
	require.NotContains(t, out, "quarantined", "what it makes of its own in each run is no attack")
}

// TestGemini has the real Gemini CLI work with a key that it does not have.
func TestGemini(t *testing.T) {
	program := geminiProgram(t)
	var keys seen
	answer := `{"candidates":[{"content":{"role":"model","parts":[{"text":"The job is done."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}`
	theWorld.site(t, agents4+":443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys.add(r.Host + " " + r.Header.Get("X-Goog-Api-Key"))
		_, _ = io.Copy(io.Discard, r.Body)
		if strings.HasSuffix(r.URL.Path, ":streamGenerateContent") {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\r\n\r\n", answer)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer)
	}))
	const key = "AIzaSyTheRealKeyOfTheTest0123456789abcd"
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".key"), []byte(key+"\n"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(b.home, ".gemini"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.home, ".gemini", "settings.json"), []byte(`{"general":{"maxAttempts":1,"retryFetchErrors":false}}`), 0o600))
	flags := []string{"--inject", "GEMINI_API_KEY=generativelanguage.googleapis.com", "--inject-file", "GEMINI_API_KEY=~/.key", "--env", "GEMINI_CLI_TRUST_WORKSPACE=true", "--profile", "gemini"}
	args := []string{"-m", "gemini-2.5-flash", "-p", "go on"}
	out, _ := b.run(b.agentCommand(flags, "bash", "-c",
		"env; "+program+" "+strings.Join(args[:3], " ")+" 'go on' 2>&1; grep -rs "+key[:20]+" /proc/[0-9]*/environ ~ /tmp | head")...)
	require.Contains(t, out, "The job is done.")
	require.Contains(t, out, "GEMINI_API_KEY=")
	require.NotContains(t, out, key[10:])
	for _, k := range keys.take() {
		require.Equal(t, "generativelanguage.googleapis.com "+key, k, "the host sees the real one")
	}
	_, reached := theWorld.since(func() {
		out = b.refused("generativelanguage.googleapis.com:443", b.agentCommand([]string{"--env", "GEMINI_API_KEY=AIzaSome", "--env", "GEMINI_CLI_TRUST_WORKSPACE=true", "--deny", "generativelanguage.googleapis.com"}, program, args...))
	})
	require.Contains(t, out, "profile gemini")
	require.NotContains(t, out, "The job is done.")
	require.Contains(t, out, "denied: generativelanguage.googleapis.com:443", "the user is told")
	require.Empty(t, reached)
}
