package daytona_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/remote"
)

const key = "DAYTONA_API_KEY=dtn_00"

func TestReady(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		err     string
	}{
		"a key":                    {[]string{key}, ""},
		"none":                     {nil, "provider daytona: DAYTONA_API_KEY is not set"},
		"a token":                  {[]string{"DAYTONA_JWT_TOKEN=x", "DAYTONA_ORGANIZATION_ID=o"}, ""},
		"a token without its team": {[]string{"DAYTONA_JWT_TOKEN=x"}, "provider daytona: DAYTONA_API_KEY is not set"},
		"in the clear":             {[]string{key, "DAYTONA_API_URL=http://api.example.com"}, "provider daytona: DAYTONA_API_URL: http://api.example.com is not https: the key would be sent in clear text"},
		"to this machine":          {[]string{key, "DAYTONA_API_URL=http://localhost:3000/"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := daytona.NewService(c.environ).Ready()
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
		})
	}
}

// serves returns the service beside an API that answers each request by "METHOD /path".
func serves(t *testing.T, answers map[string][]string) *daytona.Service {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Method + " " + r.URL.Path
		list := answers[name]
		if len(list) == 0 {
			http.NotFound(w, r)
			return
		}
		if len(list) > 1 {
			answers[name] = list[1:]
		}
		w.Header().Set("Content-Type", "application/json")
		if status, is := map[string]int{"409": 409}[list[0]]; is {
			w.WriteHeader(status)
			return
		}
		_, _ = w.Write([]byte(list[0]))
	}))
	t.Cleanup(server.Close)
	return daytona.NewService([]string{key, "DAYTONA_API_URL=" + server.URL})
}

// TestLife: a sandbox is found, woken, put to rest and destroyed by what the API says of it.
func TestLife(t *testing.T) {
	const toolbox = `"toolboxProxyUrl":"https://proxy.example.com/toolbox/"`
	s := serves(t, map[string][]string{
		"GET /sandbox":                  {`{"items":[{"id":"a","state":"started","cpu":2,"memory":1}],"nextCursor":"2"}`, `{"items":[{"id":"b","state":"stopped"}]}`},
		"GET /sandbox/b":                {`{"id":"b","state":"stopped"}`, `{"id":"b","state":"starting"}`, `{"id":"b","state":"started",` + toolbox + `}`, `{"id":"b","state":"stopped"}`},
		"POST /sandbox/b/start":         {`{}`},
		"POST /sandbox/b/stop":          {"409"},
		"GET /sandbox/bad":              {`{"id":"bad","state":"build_failed","errorReason":"no \u001b space"}`},
		"GET /sandbox/evil":             {`{"id":"../x","state":"started"}`},
		"GET /sandbox/clear":            {`{"id":"clear","state":"started","toolboxProxyUrl":"http://proxy.example.com"}`},
		"POST /sandbox/a/last-activity": {`{}`}, "POST /sandbox/a/autostop/90": {`{}`}, "POST /sandbox/a/autodelete/0": {`{}`}, "POST /sandbox/a/autodelete/-1": {`{}`},
	})
	found, err := s.Find(t.Context(), map[string]string{"k": "v"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.True(t, found[0].Running)
	require.False(t, found[1].Running)
	require.InDelta(t, 0.117, s.Facts.Price(found[0].Size()), 0.001)
	require.NoError(t, s.Extend(t.Context(), &found[0], 90*time.Minute, true))
	require.NoError(t, s.Extend(t.Context(), &found[0], 90*time.Minute, false))
	require.ErrorIs(t, s.Extend(t.Context(), &found[0], 80*time.Minute, true), remote.ErrGone, "a timer that the API does not have")

	box, err := s.Resume(t.Context(), "b")
	require.NoError(t, err)
	require.True(t, box.Running)
	require.ErrorContains(t, s.Park(t.Context(), box), "409", "it is stopped already, as the engine finds out")

	_, err = s.Resume(t.Context(), "bad")
	require.ErrorContains(t, err, `did not start: build_failed "no \x1b space"`)
	_, err = s.Status(t.Context(), "evil")
	require.ErrorContains(t, err, "names no sandbox")
	_, err = s.Status(t.Context(), "clear")
	require.ErrorContains(t, err, "is not https")
	_, err = s.Status(t.Context(), "gone")
	require.ErrorIs(t, err, remote.ErrGone)
	require.ErrorIs(t, s.Destroy(t.Context(), "gone"), remote.ErrGone)
	require.ErrorIs(t, s.Park(t.Context(), &remote.Sandbox{ID: "gone"}), remote.ErrGone)
}

// TestRefusals: what the account lacks is said with what helps, and never with the key.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status        int
		message, want string
	}{
		{401, "", "DAYTONA_API_KEY is not accepted"},
		{402, "", "dashboard/billing"},
		{403, "Forbidden resource", "permissions"},
		{400, "Total CPU limit exceeded. Maximum allowed: 10.", "the account's limit is reached"},
		{400, "Invalid sandbox name", ""},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = fmt.Fprintf(w, `{"statusCode":%d,"message":%q}`, c.status, c.message)
		}))
		_, err := daytona.NewService([]string{key, "DAYTONA_API_URL=" + server.URL}).Find(t.Context(), nil)
		server.Close()
		require.ErrorContains(t, err, c.message)
		require.NotContains(t, err.Error(), strings.TrimPrefix(key, "DAYTONA_API_KEY="))
		hint, is := err.(interface{ Hint() string })
		require.True(t, is)
		if c.want == "" {
			require.Empty(t, hint.Hint())
		}
		require.Contains(t, hint.Hint(), c.want)
		require.Equal(t, c.status == 401, strings.Contains(hint.Hint(), "not accepted"), "%d: it is the key's fault", c.status)
	}
}

// TestALogWithoutAnEnd: the toolbox does not always end a log. A command is over when its exit status is there.
func TestALogWithoutAnEnd(t *testing.T) {
	mux := http.NewServeMux()
	answers := func(pattern, text string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(text))
		})
	}
	printed := make(chan struct{})
	answers("POST /box/process/session", "{}")
	answers("POST /box/process/session/{s}/exec", `{"cmdId":"one"}`)
	answers("DELETE /box/process/session/{s}", "{}")
	mux.HandleFunc("GET /box/process/session/{s}/command/one", func(w http.ResponseWriter, _ *http.Request) {
		<-printed
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"exitCode":3}`))
	})
	mux.HandleFunc("GET /box/process/session/{s}/command/one/logs", func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		gone := ws.CloseRead(r.Context())
		_ = ws.Write(gone, websocket.MessageBinary, []byte("\x01\x01\x01hello\n"))
		close(printed)
		<-gone.Done()
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s := daytona.NewService([]string{key})
	var out bytes.Buffer
	code, err := s.Exec(t.Context(), &remote.Sandbox{ID: "box", Address: server.URL + "/box"}, &remote.Exec{Argv: []string{"x"}, Out: &out, Err: &out, In: strings.NewReader("")})
	require.NoError(t, err)
	require.Equal(t, 3, code)
	require.Equal(t, "hello\n", out.String())
}
