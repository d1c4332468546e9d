package e2b_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/remote"
)

const key = "E2B_API_KEY=e2b_00ff"

func TestReady(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		err     string
	}{
		"a key":             {[]string{key}, ""},
		"none":              {nil, "provider e2b: E2B_API_KEY is not set"},
		"no key of E2B's":   {[]string{"E2B_API_KEY=sk-1234"}, "provider e2b: E2B_API_KEY: want e2b_ and hexadecimal digits"},
		"unchecked":         {[]string{"E2B_API_KEY=sk-1234", "E2B_VALIDATE_API_KEY=false"}, ""},
		"in the clear":      {[]string{key, "E2B_API_URL=http://api.example.com"}, "provider e2b: E2B_API_URL: http://api.example.com is not https: the key would be sent in clear text"},
		"to this machine":   {[]string{key, "E2B_API_URL=http://localhost:3000"}, ""},
		"sandboxes, openly": {[]string{key, "E2B_SANDBOX_URL=http://192.0.2.1"}, "provider e2b: E2B_SANDBOX_URL: http://192.0.2.1 is not https: the key would be sent in clear text"},
		"the last one wins": {[]string{"E2B_API_KEY=x", key}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := e2b.NewService(c.environ).Ready()
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
		})
	}
}

// TestFilter holds what E2B's filter is asked for against the policy's rules: never less.
func TestFilter(t *testing.T) {
	rule := func(texts ...string) (list []profiles.NetRule) {
		for _, text := range texts {
			list = append(list, profiles.NetRule{Text: text})
		}
		return list
	}
	for name, c := range map[string]struct {
		network profiles.Network
		hosts   []any
	}{
		"nothing":        {profiles.Network{}, []any{}},
		"names":          {profiles.Network{Allow: rule("github.com", "*.example.com", "allow a.example.org")}, []any{"github.com", "*.example.com", "a.example.org"}},
		"a port":         {profiles.Network{Allow: rule("github.com", "github.com:22")}, nil},
		"a request":      {profiles.Network{Allow: rule("GET https://api.example.com/v1/*")}, nil},
		"a group":        {profiles.Network{Allow: rule("@npm")}, nil},
		"an address":     {profiles.Network{Allow: rule("10.0.0.0/8")}, nil},
		"what is denied": {profiles.Network{Allow: rule("*.example.com"), Deny: rule("bad.example.com")}, []any{"*.example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := e2b.NewService([]string{key})
			text, err := json.Marshal(s.Describe(&remote.Request{Policy: &profiles.Policy{Network: c.network}, Lifetime: time.Minute, Labels: map[string]string{"a": "b"}}))
			require.NoError(t, err)
			var body map[string]any
			require.NoError(t, json.Unmarshal(text, &body))
			want := map[string]any{
				"templateID": "base", "timeout": 60.0, "metadata": map[string]any{"a": "b"}, "autoPause": true, "allow_internet_access": c.hosts == nil || len(c.hosts) > 0,
			}
			network := map[string]any{"allowPublicTraffic": false}
			if want["network"] = network; c.hosts != nil {
				network["denyOut"] = []any{"0.0.0.0/0"}
			}
			if len(c.hosts) > 0 {
				network["allowOut"] = c.hosts
			}
			require.Equal(t, want, body)
		})
	}
}

// TestAddresses says where a sandbox is looked for, by its domain.
func TestAddresses(t *testing.T) {
	answer := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	defer s.Close()
	for given, want := range map[string]string{
		`{"sandboxID":"abc","domain":null,"cpuCount":2,"memoryMB":1024,"state":"paused"}`: "",
		`{"sandboxID":"abc","domain":"e2b.dev"}`:                                          "",
		`{"sandboxID":"abc","domain":"own.example.com"}`:                                  "",
		`{"sandboxID":"../../x"}`:                                                         "e2b: the answer names no sandbox",
		`{}`:                                                                              "e2b: the answer names no sandbox",
		`{"sandboxID":"abc","domain":"x@evil.example"}`:                                   "the sandbox's address: want an address such as https://api.example.com",
	} {
		answer = given
		box, err := e2b.NewService([]string{key, "E2B_API_URL=" + s.URL}).Status(t.Context(), "abc")
		if want != "" {
			require.EqualError(t, err, want)
			continue
		}
		require.NoError(t, err, given)
		require.Equal(t, "abc", box.ID)
	}
}

func TestPrice(t *testing.T) {
	s := e2b.NewService(nil)
	require.InDelta(t, 2*0.0504+0.0162, s.Facts.Price(profiles.Size{CPUs: 2, MemoryMB: 1024}), 1e-9)
}

// TestRefusals: what the account lacks is said with what helps; what is gone is told from other errors.
func TestRefusals(t *testing.T) {
	status := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	s := e2b.NewService([]string{key, "E2B_API_URL=" + server.URL})
	for code, want := range map[int]string{401: "keys", 402: "billing", 403: "its limit is reached", 507: "disk is full"} {
		status = code
		_, failed := s.Find(t.Context(), nil)
		hint, is := failed.(interface{ Hint() string })
		require.True(t, is, code)
		require.Contains(t, hint.Hint(), want)
		require.Equal(t, code == 401, strings.Contains(hint.Hint(), "not accepted"), "%d: it is the key's fault", code)
	}
	require.Equal(t, e2b.Name, s.Name())
	require.Equal(t, []uint16{49983}, s.Facts.Daemons)
	status = http.StatusNotFound
	require.ErrorIs(t, s.Destroy(t.Context(), "gone"), remote.ErrGone)
	_, err := s.Resume(t.Context(), "gone")
	require.ErrorIs(t, err, remote.ErrGone)
	require.ErrorIs(t, s.Extend(t.Context(), &remote.Sandbox{ID: "gone"}, time.Minute, false), remote.ErrGone)
}

// TestOldControlPlane: one of one's own without the newer calls is served by the older ones, and a template whose daemon is
// too old is named.
func TestOldControlPlane(t *testing.T) {
	version, called := "0.5.4", []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		called = append(called, r.Method+" "+r.URL.Path)
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":404,"message":"no matching operation was found"}`))
		case body["templateID"] == "absent":
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"code":404,"message":"template 'absent' not found"}`))
		case r.URL.Path == "/sandboxes" && body["secure"] != true:
			w.WriteHeader(http.StatusBadRequest)
		default:
			_, _ = w.Write([]byte(`{"sandboxID":"abc","envdVersion":"` + version + `"}`))
		}
	}))
	defer server.Close()
	s := e2b.NewService([]string{key, "E2B_API_URL=" + server.URL, "E2B_SANDBOX_URL=" + server.URL})
	request := &remote.Request{Policy: &profiles.Policy{}, Lifetime: time.Minute}
	box, err := remote.Make(t.Context(), s, request)
	require.NoError(t, err)
	require.Equal(t, "0.5.4", box.Version)
	_, err = s.Resume(t.Context(), "abc")
	require.NoError(t, err)
	require.Equal(t, []string{"POST /v2/sandboxes", "POST /sandboxes", "POST /v2/sandboxes/abc/connect", "POST /sandboxes/abc/connect"}, called)

	version, called = "0.5.1", nil
	_, err = remote.Make(t.Context(), s, request)
	require.EqualError(t, err, "provider e2b: template base: its daemon envd is 0.5.1, and 0.5.2 is the oldest that works")
	require.Contains(t, called, "DELETE /sandboxes/abc")
	_, err = remote.Make(t.Context(), s, &remote.Request{Image: "absent", Policy: &profiles.Policy{}})
	require.ErrorContains(t, err, "template 'absent' not found")
}

// TestOldDaemon: one that takes no bytes gets a form.
func TestOldDaemon(t *testing.T) {
	kinds := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
		text, _ := io.ReadAll(r.Body)
		if kind == "multipart/form-data" {
			r.Body = io.NopCloser(bytes.NewReader(text))
			file, _, err := r.FormFile("file")
			if err != nil {
				kind = err.Error()
				return
			}
			text, _ = io.ReadAll(file)
		}
		kinds[kind] = string(text)
	}))
	defer server.Close()
	s := e2b.NewService([]string{key})
	for _, version := range []string{"0.5.4", "0.6.13"} {
		file := &remote.Archive{Size: 4, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("text")), nil }}
		require.NoError(t, s.PutFile(t.Context(), &remote.Sandbox{Address: server.URL, Version: version}, "/tmp/a", file))
	}
	require.Equal(t, map[string]string{"multipart/form-data": "text", "application/octet-stream": "text"}, kinds)
}
