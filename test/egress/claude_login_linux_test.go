package egress

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/agent"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// anthropic is what of Anthropic logs an account in, and has the model of an endpoint for
// it. What requests for the model are made as goes into tokens, what is taken for a log-in
// into codes.
func anthropic(model http.Handler, tokens, codes *seen) http.Handler {
	account := map[string]any{"uuid": "00000000-0000-4000-8000-000000000001", "email": "dev@example.com", "email_address": "dev@example.com", "full_name": "Dev", "display_name": "Dev", "has_claude_max": true}
	organization := map[string]any{"uuid": "00000000-0000-4000-8000-000000000002", "name": "of the test", "organization_type": "claude_max", "rate_limit_tier": "default_claude_max_5x"}
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("POST /v1/oauth/token", func(w http.ResponseWriter, r *http.Request) {
		var asked map[string]any
		_ = json.NewDecoder(r.Body).Decode(&asked)
		codes.add(fmt.Sprint(r.Host, " ", asked["grant_type"], " ", asked["code"]))
		reply(w, map[string]any{
			"access_token": "sk-ant-oat01-of-the-test", "refresh_token": "sk-ant-ort01-of-the-test", "token_type": "Bearer", "expires_in": 28800,
			"scope": "user:profile user:inference user:sessions:claude_code", "account": account, "organization": organization,
		})
	})
	mux.HandleFunc("/api/oauth/profile", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"account": account, "organization": organization})
	})
	mux.HandleFunc("/api/oauth/claude_cli/roles", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"organization_role": "admin", "organization_name": "of the test"})
	})
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		tokens.add(r.Host + " " + r.Header.Get("Authorization"))
		model.ServeHTTP(w, r)
	})
	return mux
}

// TestClaudeLogin logs Claude Code in from inside, with the profile that its name picks:
// by the code that the page shows, since it takes a new port for a browser each time. Who
// has logged in is so in the next run.
func TestClaudeLogin(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	program := claudeProgram(t)
	endpoint, err := agent.Start([]agent.Step{{Say: "The job is done."}})
	require.NoError(t, err)
	defer endpoint.Close()
	to, err := url.Parse(fmt.Sprintf("http://127.0.0.1:%d", endpoint.Port()))
	require.NoError(t, err)
	model := httputil.NewSingleHostReverseProxy(to)
	model.FlushInterval = -1
	var tokens, codes seen
	theWorld.site(t, agents4+":443", anthropic(model, &tokens, &codes))

	b := newBench(t)
	line := func(flags []string, args ...string) []string {
		return append(append(append(claudeCommand(program), flags...), "--", program), args...)
	}
	const begins = "https://claude.ai/oauth/authorize?"
	login := func(flags ...string) (page *url.URL, say func(string), wait func(os.Signal) string) {
		cmd := b.command(line(flags, "auth", "login")...)
		keys, err := cmd.StdinPipe()
		require.NoError(t, err)
		page, wait = b.signIn(cmd, begins)
		return page, func(text string) { _, err := io.WriteString(keys, text); require.NoError(t, err) }, wait
	}
	// The code brings back the state that the page was asked with: all that is in its URL.
	code := func(page *url.URL) string {
		return "code-of-the-test#" + strings.TrimPrefix(page.RawQuery, "z-") + "\n"
	}
	page, say, wait := login("--deny", "platform.claude.com")
	say(code(page))
	out := wait(syscall.Signal(0))
	require.Contains(t, out, "denied: platform.claude.com:443", "the user is told")
	require.Empty(t, codes.take())
	require.NoFileExists(t, filepath.Join(b.home, ".claude", ".credentials.json"))

	page, say, wait = login()
	say(code(page))
	out = wait(syscall.Signal(0))
	require.Contains(t, out, "Login successful")
	require.Contains(t, out, "profile claude")
	require.Equal(t, []string{"platform.claude.com authorization_code code-of-the-test"}, codes.take())
	require.NotContains(t, out, "quarantined")
	b.keeps(".claude/.credentials.json")

	for _, prefix := range []string{"", bare} {
		script := append(append(claudeCommand(program), "--profile", "claude"), "--", "bash", "-c", prefix+program+" -p 'go on' </dev/null")
		out, _ = b.run(script...)
		require.Contains(t, out, "The job is done.")
		require.Contains(t, tokens.take(), "api.anthropic.com Bearer sk-ant-oat01-of-the-test", "the next run is logged in")
	}
	_, reached := theWorld.since(func() {
		out = b.refused("api.anthropic.com:443", line([]string{"--deny", "api.anthropic.com"}, "-p", "go on"))
	})
	require.NotContains(t, out, "The job is done.")
	require.Contains(t, out, "denied: api.anthropic.com:443", "the user is told")
	require.Empty(t, tokens.take())
	require.NotContains(t, strings.Join(reached, " "), agents4)
}

// claudeCommand is pccrun's line for Claude Code, up to the flags of a test.
func claudeCommand(claude string) []string {
	return []string{program, "--env", "SSL_CERT_FILE", "--env", "NODE_EXTRA_CA_CERTS", "--env", "CLAUDE_CODE_MAX_RETRIES=0", "--read", shared, "--read", filepath.Dir(claude)}
}

// claudeProgram is Claude Code.
func claudeProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv("PCCRUN_TEST_CLAUDE")
	if program == "" {
		t.Skip("needs claude code: PCCRUN_TEST_CLAUDE, or a run of test/agent, names one")
	}
	return program
}
