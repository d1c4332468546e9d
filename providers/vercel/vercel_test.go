package vercel_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/vercel"
)

func token(claims string) string {
	return "VERCEL_OIDC_TOKEN=e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
}

var environ = []string{"VERCEL_TOKEN=x", "VERCEL_TEAM_ID=team", "VERCEL_PROJECT_ID=project"}

func TestReady(t *testing.T) {
	named := token(`{"owner_id":"o","project_id":"p"}`)
	for name, c := range map[string]struct {
		environ []string
		err     string
	}{
		"a token that names all": {[]string{named}, ""},
		"one beside the names":   {environ, ""},
		"both":                   {append([]string{named}, environ...), ""},
		"none":                   {nil, "provider vercel: VERCEL_OIDC_TOKEN is not set"},
		"without a project":      {environ[:2], "provider vercel: VERCEL_OIDC_TOKEN is not set"},
		"of no three parts":      {[]string{"VERCEL_OIDC_TOKEN=x"}, "provider vercel: VERCEL_OIDC_TOKEN: want a token of three parts"},
		"of nobody's":            {[]string{token(`{}`)}, "provider vercel: VERCEL_OIDC_TOKEN: it names no team and project"},
		"of yesterday":           {[]string{token(`{"owner_id":"o","project_id":"p","exp":1}`)}, "provider vercel: VERCEL_OIDC_TOKEN: it held until " + time.Unix(1, 0).Format(time.DateTime)},
		"of today":               {[]string{token(fmt.Sprintf(`{"owner_id":"o","project_id":"p","exp":%d}`, time.Now().Unix()))}, ""},
		"in the clear":           {[]string{named, "VERCEL_API_URL=http://api.example.com"}, "provider vercel: VERCEL_API_URL: http://api.example.com is not https: the key would be sent in clear text"},
	} {
		t.Run(name, func(t *testing.T) {
			err := vercel.NewService(c.environ).Ready()
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
		})
	}
}

// TestKeyEnds: when a token ends it says itself.
func TestKeyEnds(t *testing.T) {
	ends := time.Now().Add(time.Hour).Truncate(time.Second)
	facts := vercel.NewService([]string{token(fmt.Sprintf(`{"owner_id":"o","project_id":"p","exp":%d}`, ends.Unix()))}).Facts
	require.True(t, ends.Equal(facts.KeyEnds))
	require.Contains(t, facts.KeyNew, "vercel env pull")
	require.Zero(t, vercel.NewService(environ).Facts.KeyEnds)
}

// TestRequest holds what is asked for against the policy's rules, never less than them, and what the user chose.
func TestRequest(t *testing.T) {
	for name, c := range map[string]struct {
		allow   []string
		network any
	}{
		"nothing":    {nil, map[string]any{"mode": "deny-all"}},
		"names":      {[]string{"github.com", "allow *.example.com"}, map[string]any{"allow": []any{"github.com", "*.example.com"}}},
		"a port":     {[]string{"github.com:22"}, nil},
		"an address": {[]string{"10.0.0.0/8"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &profiles.Policy{}
			for _, text := range c.allow {
				policy.Network.Allow = append(policy.Network.Allow, profiles.NetRule{Text: text})
			}
			text, err := json.Marshal(vercel.NewService(environ).Describe(&remote.Request{Policy: policy, Lifetime: time.Minute, Image: "i", Region: "r", Size: profiles.Size{CPUs: 4, MemoryMB: 8192}}))
			require.NoError(t, err)
			var body map[string]any
			require.NoError(t, json.Unmarshal(text, &body))
			want := map[string]any{"projectId": "project", "name": "pccrun--", "timeout": 60000.0, "persistent": true, "image": "i", "region": "r", "resources": map[string]any{"vcpus": 4.0}}
			if c.network != nil {
				want["networkPolicy"] = c.network
			}
			require.Equal(t, want, body)
		})
	}
}

// TestRefusals: what the account lacks is said with what helps; what is gone is told from other errors.
func TestRefusals(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(`{"error":{"code":"a_code","message":"in words"}}`))
	}))
	defer server.Close()
	s := vercel.NewService(append([]string{"VERCEL_API_URL=" + server.URL}, environ...))
	for code, want := range map[int]string{401: "is not accepted", 402: "the plan", 403: "may not do this", 410: "its files are kept"} {
		status = code
		_, failed := s.Find(t.Context(), nil)
		require.True(t, strings.HasSuffix(failed.Error(), ": in words"), failed)
		hint, is := failed.(interface{ Hint() string })
		require.True(t, is, code)
		require.Contains(t, hint.Hint(), want)
	}
	status = http.StatusNotFound
	box := &remote.Sandbox{ID: "gone", Address: server.URL}
	for _, err := range []error{s.Destroy(t.Context(), "gone"), s.Extend(t.Context(), box, time.Minute, false)} {
		require.ErrorIs(t, err, remote.ErrGone)
	}
	_, err := s.Resume(t.Context(), "gone")
	require.ErrorIs(t, err, remote.ErrGone)
	_, err = s.Exec(t.Context(), box, &remote.Exec{Argv: []string{"true"}})
	require.ErrorIs(t, err, remote.ErrGone)
	require.Equal(t, vercel.Name, s.Name())
	require.True(t, s.Facts.Elsewhere)
}
