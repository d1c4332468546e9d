package cloudflare_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/cloudflare"
	"github.com/pccrun/pccrun/providers/remote"
)

func TestReady(t *testing.T) {
	const key, url = "SANDBOX_API_KEY=x", "CLOUDFLARE_SANDBOX_URL=https://bridge.example.workers.dev/"
	for name, c := range map[string]struct {
		environ []string
		err     string
	}{
		"both":           {[]string{key, url}, ""},
		"no key":         {[]string{url}, "provider cloudflare: SANDBOX_API_KEY is not set"},
		"no address":     {[]string{key}, "provider cloudflare: CLOUDFLARE_SANDBOX_URL is not set"},
		"neither":        {nil, "provider cloudflare: CLOUDFLARE_SANDBOX_URL and SANDBOX_API_KEY are not set"},
		"in the clear":   {[]string{key, "CLOUDFLARE_SANDBOX_URL=http://bridge.example.com"}, "provider cloudflare: CLOUDFLARE_SANDBOX_URL: http://bridge.example.com is not https: the key would be sent in clear text"},
		"this machine's": {[]string{key, "CLOUDFLARE_SANDBOX_URL=http://localhost:8787"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := cloudflare.NewService(c.environ).Ready()
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
		})
	}
}

// TestChoices: the Worker decides of what its sandboxes are made, how large they are and where.
func TestChoices(t *testing.T) {
	p := cloudflare.New(providers.Host{Environ: []string{"SANDBOX_API_KEY=x", "CLOUDFLARE_SANDBOX_URL=https://bridge.example.com"}})
	plan := func(place profiles.Place) error {
		_, err := p.Plan(&profiles.Policy{Place: place}, nil, &remote.Examined{Provider: cloudflare.Name}, providers.Command{})
		return err
	}
	require.NoError(t, plan(profiles.Place{}), "the control")
	require.ErrorContains(t, plan(profiles.Place{Image: profiles.Choice{Text: "node:24"}}), "image node:24")
	require.ErrorContains(t, plan(profiles.Place{Region: profiles.Choice{Text: "eu"}}), "region eu")
	require.ErrorContains(t, plan(profiles.Place{Size: profiles.Choice{Text: "2cpu,4g"}}), "the Worker's wrangler.jsonc decides")
}

// TestDescribe: no more is said of a run as its sandbox is made than its label.
func TestDescribe(t *testing.T) {
	text, err := json.Marshal(cloudflare.NewService(nil).Describe(&remote.Request{Labels: map[string]string{providers.LabelKey: "one", "pccrun.machine": "m"}}))
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"pccrun-m-one"}`, string(text))
}

// TestStream: what is no answer of a bridge is an error, and no end of the program.
func TestStream(t *testing.T) {
	kind, body, status := "text/event-stream", "", 200
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	s := cloudflare.NewService([]string{"SANDBOX_API_KEY=x", "CLOUDFLARE_SANDBOX_URL=" + server.URL})
	exec := func() (int, error) {
		return s.Exec(t.Context(), &remote.Sandbox{ID: "one", Address: server.URL}, &remote.Exec{Argv: []string{"true"}, Out: io.Discard, Err: io.Discard})
	}
	body = "event: stdout\ndata: aGk=\n\nevent: exit\ndata: {\"exit_code\":3}\n\n"
	code, err := exec()
	require.NoError(t, err, "the control")
	require.Equal(t, 3, code)
	for name, text := range map[string]string{
		"cut": "event: stdout\ndata: aG", "no base64": "event: stdout\ndata: !\n\n", "no end": "event: exit\ndata: {}\n\n", "an error": "event: error\ndata: {\"code\":\"exec_error\"}\n\n", "nothing": "",
	} {
		body = text
		_, err := exec()
		var cut *remote.CutError
		require.ErrorAs(t, err, &cut, name)
	}
	kind = "text/html"
	_, err = exec()
	require.ErrorContains(t, err, "is a proxy in between?")
	kind, status = "application/json", 401
	_, err = exec()
	hint, is := err.(interface{ Hint() string })
	require.True(t, is)
	require.Contains(t, hint.Hint(), "SANDBOX_API_KEY")
}
