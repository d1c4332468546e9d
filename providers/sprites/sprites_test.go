package sprites_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/sprites"
)

func TestReady(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		err     string
	}{
		"a token":        {[]string{"SPRITES_TOKEN=x"}, ""},
		"its other":      {[]string{"SPRITE_TOKEN=x"}, ""},
		"none":           {nil, "provider sprites: SPRITES_TOKEN is not set"},
		"in the clear":   {[]string{"SPRITES_TOKEN=x", "SPRITES_API_URL=http://api.example.com"}, "provider sprites: SPRITES_API_URL: http://api.example.com is not https: the key would be sent in clear text"},
		"this machine's": {[]string{"SPRITES_TOKEN=x", "SPRITES_API_URL=http://localhost:1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := sprites.NewService(c.environ).Ready()
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
		})
	}
}

// TestFilter holds what the filter is asked for against the policy's rules: never less than them, and never no rule, which
// would filter nothing.
func TestFilter(t *testing.T) {
	for name, c := range map[string]struct {
		allow []string
		want  string
	}{
		"nothing": {nil, `{"rules":[{"domain":"*","action":"deny"}]}`},
		"names": {[]string{"github.com", "allow *.example.com"},
			`{"rules":[{"domain":"*","action":"deny"},{"domain":"github.com","action":"allow"},{"domain":"*.example.com","action":"allow"}]}`},
		"a port":     {[]string{"github.com:22"}, "null"},
		"an address": {[]string{"10.0.0.0/8"}, "null"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := &profiles.Policy{}
			for _, text := range c.allow {
				policy.Network.Allow = append(policy.Network.Allow, profiles.NetRule{Text: text})
			}
			text, err := json.Marshal(sprites.NewService(nil).Describe(&remote.Request{Policy: policy}))
			require.NoError(t, err)
			var said struct {
				Network json.RawMessage       `json:"network"`
				URL     struct{ Auth string } `json:"url_settings"`
			}
			require.NoError(t, json.Unmarshal(text, &said))
			if said.Network == nil {
				said.Network = json.RawMessage("null")
			}
			require.JSONEq(t, c.want, string(said.Network))
			require.Equal(t, "sprite", said.URL.Auth, "its address is nobody else's")
		})
	}
}

// TestRefusals: what the account lacks is said with what helps; what is gone is told from other errors.
func TestRefusals(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	s := sprites.NewService([]string{"SPRITES_TOKEN=x", "SPRITES_API_URL=" + server.URL})
	for code, want := range map[int]string{401: "is not accepted", 402: "the plan", 403: "may not do this"} {
		status = code
		_, failed := s.Find(t.Context(), nil)
		hint, is := failed.(interface{ Hint() string })
		require.True(t, is, code)
		require.Contains(t, hint.Hint(), want)
	}
	status = http.StatusNotFound
	box := &remote.Sandbox{ID: "gone", Address: server.URL}
	require.ErrorIs(t, s.Destroy(t.Context(), "gone"), remote.ErrGone)
	require.ErrorIs(t, s.Park(t.Context(), box), remote.ErrGone)
	_, err := s.Resume(t.Context(), "gone")
	require.ErrorIs(t, err, remote.ErrGone)
	_, err = s.Exec(t.Context(), box, &remote.Exec{Argv: []string{"true"}})
	require.ErrorIs(t, err, remote.ErrGone)
	require.Equal(t, sprites.Name, s.Name())
	require.Equal(t, []string{"/.sprite/api.sock"}, s.Facts.Sockets)
}
