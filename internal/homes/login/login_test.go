package login

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/homes"
)

// jwt is a token of an account.
func jwt(user, organisation string) string {
	claims, _ := json.Marshal(map[string]any{"email": "dev@example.com", "https://api.openai.com/auth": map[string]string{"chatgpt_account_id": organisation, "chatgpt_user_id": user}})
	return "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"
}

// An endpoint takes the refresh token `new` once, and answers for an account.
type endpoint struct {
	*httptest.Server
	user, organisation string
	status             int
	asked              []map[string]string
	meanwhile          func()
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{user: "u", organisation: "o"}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		_ = json.NewDecoder(r.Body).Decode(&body)
		e.asked = append(e.asked, body)
		if e.meanwhile != nil {
			e.meanwhile()
		}
		if e.status != 0 {
			w.Header().Set("Location", e.URL)
			w.WriteHeader(e.status)
			return
		}
		fmt.Fprintf(w, `{"access_token": "access-3", "refresh_token": "refresh-3", "expires_in": 3600, "scope": "a b", "id_token": %q,
			"account": {"uuid": %q, "email_address": "dev@example.com"}, "organization": {"uuid": %q}}`, jwt(e.user, e.organisation), e.user, e.organisation)
	}))
	t.Cleanup(e.Close)
	return e
}

// A file of each form, with a refresh token; what an agent keeps beside stays.
func file(form, refresh string) string {
	if form == "opencode" {
		return fmt.Sprintf(`{"anthropic": {"type": "api", "key": "k"}, "openai": {"type": "oauth", "access": %q, "refresh": %q, "expires": 1, "accountId": "o"}, "x": {"type": "wellknown", "key": "A", "token": "t"}}`, jwt("u", "o"), refresh)
	}
	if form == "codex" {
		return fmt.Sprintf(`{"OPENAI_API_KEY": null, "tokens": {"access_token": "access-1", "refresh_token": %q, "id_token": %q, "account_id": "o"}, "last_refresh": "x"}`, refresh, jwt("u", "o"))
	}
	return fmt.Sprintf(`{"claudeAiOauth": {"accessToken": "access-1", "refreshToken": %q, "expiresAt": 1, "scopes": ["a"], "subscriptionType": "max"}, "mcpOAuth": {"x": 12345678901234567890}}`, refresh)
}

// begin makes a user's home in which a log-in stands, and one in which a run has renewed it.
func begin(t *testing.T, form string, e *endpoint) (l *Login, inside func() homes.Tokens) {
	home := t.TempDir()
	path := map[string]string{"claude": home + "/.claude/.credentials.json", "codex": home + "/.codex/auth.json", "opencode": home + "/.local/share/opencode/auth.json"}[form]
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(file(form, "refresh-1")), 0o640))
	require.NoError(t, os.WriteFile(home+"/.claude.json", []byte(`{"oauthAccount": {"accountUuid": "u", "organizationUuid": "o", "emailAddress": "dev@example.com"}}`), 0o600))
	l = &Login{Form: form, Endpoint: e.URL, Path: path, UserHome: home, Inside: []byte(file(form, "refresh-2")), Client: &http.Client{}}
	l.Keep = func(text []byte) error { l.Inside = text; return nil }
	l.Copied = func(t homes.Tokens) (bool, bool) { return t.Refresh == "refresh-1", true }
	return l, func() homes.Tokens { return homes.TokensOf(form, l.Inside) }
}

func TestRenew(t *testing.T) {
	for _, form := range []string{"claude", "codex", "opencode"} {
		t.Run(form, func(t *testing.T) {
			e := newEndpoint(t)
			l, inside := begin(t, form, e)
			a, err := l.Renew(context.Background())
			require.NoError(t, err)
			require.Equal(t, "dev@example.com", a.Name)
			require.Len(t, e.asked, 1, "a refresh token may be used once")
			require.Equal(t, "refresh-2", e.asked[0]["refresh_token"])
			require.Equal(t, clients[form], e.asked[0]["client_id"])
			text, err := os.ReadFile(l.Path)
			require.NoError(t, err)
			tokens := homes.TokensOf(form, text)
			require.Equal(t, "refresh-3", tokens.Refresh)
			require.Equal(t, "access-3", tokens.Access)
			require.Equal(t, "refresh-3", inside().Refresh, "the agent inside goes on")
			info, err := os.Stat(l.Path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o640), info.Mode())
			for _, kept := range map[string][]string{"claude": {`"subscriptionType": "max"`, "12345678901234567890"}, "codex": {`"account_id": "o"`, `"OPENAI_API_KEY": null`},
				"opencode": {`"accountId": "o"`, `"key": "k"`, `"type": "wellknown"`}}[form] {
				require.Contains(t, string(text), kept)
			}
			require.NoDirExists(t, l.UserHome+"/.claude.lock")
			left, err := filepath.Glob(filepath.Dir(l.Path) + "/.pccrun-*")
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// What is not certain stays inside, and the user's file as it was.
func TestRenewRefused(t *testing.T) {
	for name, c := range map[string]struct {
		want   error
		says   string
		change func(*Login, *endpoint)
		asked  int
	}{
		"the same":                   {want: ErrSame, change: func(l *Login, _ *endpoint) { l.Inside = []byte(file("claude", "refresh-1")) }},
		"none":                       {want: ErrNone, change: func(l *Login, _ *endpoint) { l.Inside = []byte(`{"claudeAiOauth": {"refreshToken": 1}}`) }},
		"not a token":                {want: ErrNone, change: func(l *Login, _ *endpoint) { l.Inside = []byte(file("claude", "a\nb")) }},
		"a first one":                {want: ErrFirst, change: func(l *Login, _ *endpoint) { l.Copied = func(homes.Tokens) (bool, bool) { return false, false } }},
		"a first one, none outside":  {want: ErrFirst, change: func(l *Login, _ *endpoint) { os.Remove(l.Path) }},
		"renewed outside":            {want: ErrOutside, change: func(l *Login, _ *endpoint) { os.WriteFile(l.Path, []byte(file("claude", "refresh-9")), 0o600) }},
		"nobody says whose it was":   {want: ErrUnknown, change: func(l *Login, _ *endpoint) { os.Remove(l.UserHome + "/.claude.json") }},
		"nobody says whose it is":    {want: ErrUnknown, change: func(_ *Login, e *endpoint) { e.user = "" }, asked: 1},
		"another user's":             {want: ErrAnother, change: func(_ *Login, e *endpoint) { e.user = "x" }, asked: 1},
		"another organisation's":     {want: ErrAnother, change: func(_ *Login, e *endpoint) { e.organisation = "x" }, asked: 1},
		"the endpoint does not know": {says: "status 400", change: func(_ *Login, e *endpoint) { e.status = 400 }, asked: 1},
		"the endpoint leads away":    {says: "status 307", change: func(_ *Login, e *endpoint) { e.status = 307 }, asked: 1},
		"held":                       {want: ErrHeld, change: func(l *Login, _ *endpoint) { os.Mkdir(l.UserHome+"/.claude.lock", 0o700) }},
		"changed while it was asked": {want: ErrOutside, asked: 1, change: func(l *Login, e *endpoint) {
			e.meanwhile = func() { os.WriteFile(l.Path, []byte(file("claude", "refresh-9")), 0o640) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t)
			l, inside := begin(t, "claude", e)
			c.change(l, e)
			before, _ := os.ReadFile(l.Path)
			if e.meanwhile != nil {
				before = []byte(file("claude", "refresh-9"))
			}
			_, err := l.Renew(context.Background())
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			require.Len(t, e.asked, c.asked)
			after, _ := os.ReadFile(l.Path)
			require.Equal(t, string(before), string(after))
			if c.asked == 1 && e.status == 0 {
				require.Equal(t, "refresh-3", inside().Refresh, "what was given for it is not lost")
			}
		})
	}
}

// A first log-in, or another's, is taken over when somebody says yes to the account.
func TestAsked(t *testing.T) {
	e := newEndpoint(t)
	e.user = "x"
	l, _ := begin(t, "claude", e)
	l.Ask = func(a homes.Account) bool { return a.User != "x" }
	_, err := l.Renew(context.Background())
	require.ErrorIs(t, err, ErrDeclined)
	require.NoError(t, os.RemoveAll(filepath.Dir(l.Path)))
	l.Ask = func(a homes.Account) bool { return a.Name == "dev@example.com" }
	_, err = l.Renew(context.Background())
	require.NoError(t, err)
	text, err := os.ReadFile(l.Path)
	require.NoError(t, err)
	require.Equal(t, homes.Tokens{Access: "access-3", Refresh: "refresh-3", Scopes: []string{"a", "b"}}, homes.TokensOf("claude", text))
	info, err := os.Stat(l.Path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// Of opencode's entries the one that stood is renewed: an API key of the same name is no login.
func TestOpencodeKinds(t *testing.T) {
	const key = `{"openai": {"type": "api", "key": "k", "refresh": "refresh-1"}}`
	require.Equal(t, homes.Tokens{}, homes.TokensOf("opencode", []byte(key)))
	e := newEndpoint(t)
	for own, says := range map[string]string{key: "the file has api for openai", `{"x": {"type": "api"}}`: ""} {
		l, _ := begin(t, "opencode", e)
		require.NoError(t, os.WriteFile(l.Path, []byte(own), 0o600))
		_, err := l.Renew(context.Background())
		require.ErrorIs(t, err, ErrFirst, "by itself")
		l.Ask = func(homes.Account) bool { return true }
		_, err = l.Renew(context.Background())
		text, _ := os.ReadFile(l.Path)
		if says != "" {
			require.ErrorContains(t, err, says)
			require.Equal(t, own, string(text))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "refresh-3", homes.TokensOf("opencode", text).Refresh)
		require.Contains(t, string(text), `"x": {`)
	}
}

// A lock that was left is taken.
func TestStaleLock(t *testing.T) {
	e := newEndpoint(t)
	l, _ := begin(t, "claude", e)
	lock := l.UserHome + "/.claude.lock"
	require.NoError(t, os.Mkdir(lock, 0o700))
	old := time.Now().Add(-2 * stale)
	require.NoError(t, os.Chtimes(lock, old, old))
	_, err := l.Renew(context.Background())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, os.Mkdir(lock, 0o700))
	l.Inside = []byte(file("claude", "refresh-2"))
	_, err = l.Renew(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
