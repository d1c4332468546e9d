package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		_, told, code := p.pccrun("--profile", "mine", "--home", "persist", "--", "sh", "-c", `mkdir -p ~/.claude; echo '{"claudeAiOauth": {"refreshToken": "run-`+answer+`"}}' > ~/.claude/.credentials.json`)
		require.Zero(t, code, told)
		require.Contains(t, told, "login not copied to the host: ~/.claude/.credentials.json: it was made inside")
		require.NoFileExists(t, p.home+"/.claude/.credentials.json")
		shown := typeAt(t, p.command("home", "login"), "", func(shown string) string {
			if strings.HasSuffix(shown, "[y/N] ") {
				return answer + "\n"
			}
			return ""
		})
		require.Contains(t, shown, "copy the login of dev@example.com (organisation o) to ~/.claude/.credentials.json?")
		text, err := os.ReadFile(p.home + "/.claude/.credentials.json")
		if answer == "n" {
			require.ErrorIs(t, err, os.ErrNotExist)
			require.Contains(t, shown, "not copied")
			continue
		}
		require.NoError(t, err, shown)
		require.True(t, bytes.Contains(text, []byte("next-run-y")), string(text))
	}
}
