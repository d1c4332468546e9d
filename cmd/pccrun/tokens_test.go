package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
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
