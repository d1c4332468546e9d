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
//
//test:root
func TestLoginAsks(t *testing.T) {
	t.Parallel()
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
		if os.Getuid() == 0 { // who it was is given up, and cannot see what was made
			require.NotContains(t, told, "login")
		} else {
			require.Contains(t, told, "login not copied to the host: ~/.claude/.credentials.json: it was made inside")
		}
		require.NoFileExists(t, p.home+"/.claude/.credentials.json")
		shown := typeAt(t, p.command("home", "login"), "", func(shown string) string {
			if strings.HasSuffix(shown, "[y/N] ") {
				return answer + "\n"
			}
			return ""
		})
		require.Contains(t, shown, "copy the login of dev@example.com (organisation o) to ~/.claude/.credentials.json?")
		text, err := os.ReadFile(p.home + "/.claude/.credentials.json")
		out, told, code := p.pccrun("--profile", "mine", "--home", "persist", "--", "grep", "-c", "next-run", p.home+"/.claude/.credentials.json")
		require.Equal(t, "1\n", out, "the agent inside goes on: %s", told)
		require.Zero(t, code)
		if answer == "n" {
			require.ErrorIs(t, err, os.ErrNotExist)
			require.Contains(t, shown, "not copied")
			continue
		}
		require.NoError(t, err, shown)
		require.True(t, bytes.Contains(text, []byte("next-run-y")), string(text))
	}
}

// As root a login that was not renewed is not said to be, and one that was is copied on request.
//
//test:root
func TestRootLogin(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	p := newPupil(t)
	p.write(".config/pccrun/profiles/mine.jsonc", `{"extends": "claude"}`, 0o600)
	require.NoError(t, os.Mkdir(p.home+"/.claude", 0o700))
	p.write(".claude/.credentials.json", `{"claudeAiOauth": {"refreshToken": "own-1"}}`, 0o600)
	for script, said := range map[string]bool{"true": false, "sed -i s/own-1/run-2/ ~/.claude/.credentials.json": true} {
		_, told, code := p.pccrun("--profile", "mine", "--home", "persist", "--", "sh", "-c", script)
		require.Zero(t, code, told)
		hint := strings.Contains(told, "a renewed login stays in the home of this workspace: root privileges were dropped\npccrun: hint: pccrun home login --profile mine asks and copies it")
		require.Equal(t, said, hint, "%s: %s", script, told)
		require.Equal(t, said, strings.Contains(told, "login"), told)
	}
}
