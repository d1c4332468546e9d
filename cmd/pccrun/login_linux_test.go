package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokens is a program that plays a provider's token endpoint at loopback: `tokens TEMPLATE FILE USER`
// writes the template with its address in the place of ADDRESS, and gives new tokens of that user
// for each refresh token that begins with `run-`, once.
func tokens() {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err == nil {
		var text []byte
		text, err = os.ReadFile(os.Args[1])
		text = []byte(strings.ReplaceAll(string(text), "ADDRESS", "http://"+listener.Addr().String()+"/token"))
		if err == nil {
			err = os.WriteFile(os.Args[2], text, 0o600)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = http.Serve(listener, answerTokens(os.Args[3]))
}

// answerTokens is the endpoint's handler.
func answerTokens(user string) http.HandlerFunc {
	used := map[string]bool{}
	return func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Refresh string `json:"refresh_token"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		if !strings.HasPrefix(body.Refresh, "run-") || used[body.Refresh] {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		used[body.Refresh] = true
		fmt.Fprintf(w, `{"access_token": "access-of-endpoint", "refresh_token": "next-%s", "expires_in": 3600, "account": {"uuid": %q, "email_address": "dev@example.com"}, "organization": {"uuid": "o"}}`, body.Refresh, user)
	}
}

// A log-in that was made inside is taken over at a terminal, by who says yes to the account.
func TestLoginAsks(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("needs a user who is not root: what is renewed stays inside")
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: answerTokens("somebody")}
	go server.Serve(listener)
	defer server.Close()
	for _, answer := range []string{"n", "y"} {
		p := newPupil(t)
		p.write(".config/pccrun/profiles/mine.jsonc", fmt.Sprintf(`{"extends": "claude", "seeds": {"~/.claude/.credentials.json": {"mode": "login", "renew": "claude", "endpoint": "http://%s/token"}}}`, listener.Addr()), 0o600)
		_, told, code := p.pccrun("--profile", "mine", "--", "sh", "-c", `mkdir -p ~/.claude; echo '{"claudeAiOauth": {"refreshToken": "run-`+answer+`"}}' > ~/.claude/.credentials.json`)
		require.Zero(t, code, told)
		require.Contains(t, told, "stays there: ~/.claude/.credentials.json: it was made inside")
		require.NoFileExists(t, p.home+"/.claude/.credentials.json")
		shown := typeAt(t, p.command("home", "login"), "", func(shown string) string {
			if strings.HasSuffix(shown, "[y/N] ") {
				return answer + "\n"
			}
			return ""
		})
		require.Contains(t, shown, "take the log-in of dev@example.com (organisation o) over to ~/.claude/.credentials.json?")
		text, err := os.ReadFile(p.home + "/.claude/.credentials.json")
		if answer == "n" {
			require.ErrorIs(t, err, os.ErrNotExist)
			require.Contains(t, shown, "not taken over")
			continue
		}
		require.NoError(t, err, shown)
		require.True(t, bytes.Contains(text, []byte("next-run-y")), string(text))
	}
}
