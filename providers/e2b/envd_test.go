package e2b_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/remote"
)

// message is one of envd's stream.
func message(flags byte, text string) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text)))) + text
}

const begun = `{"event":{"start":{"pid":7}}}`

// sandboxOf returns a sandbox whose daemon a function is.
func sandboxOf(t *testing.T, daemon http.HandlerFunc) (*e2b.Service, *remote.Sandbox) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/connect") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"sandboxID":"abc","envdAccessToken":"t1","trafficAccessToken":"t2"}`)
			return
		}
		if r.Header.Get("X-Access-Token") != "t1" || r.Header.Get("E2b-Traffic-Access-Token") != "t2" || r.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s %s: headers %v", r.Method, r.URL, r.Header)
		}
		daemon(w, r)
	}))
	t.Cleanup(server.Close)
	s := e2b.NewService([]string{key, "E2B_API_URL=" + server.URL, "E2B_SANDBOX_URL=" + server.URL})
	box, err := s.Resume(t.Context(), "abc")
	require.NoError(t, err)
	return s, box
}

// TestStreams holds what envd says, and what it should not, against how a program's end is told.
func TestStreams(t *testing.T) {
	start := message(0, begun)
	end := func(text string) string { return start + message(0, `{"event":{"end":{`+text+`}}}`) }
	for name, c := range map[string]struct {
		stream string
		kind   string
		code   int
		err    string
		cut    bool // nobody knows whether the program goes on
	}{
		"success":                  {stream: end(`"exited":true`)},
		"a keepalive, then a code": {stream: start + message(0, `{"event":{"keepalive":{}}}`) + end(`"exited":true,"exitCode":37`), code: 37},
		"a signal":                 {stream: end(`"status":"signal: terminated"`), code: remote.Killed},
		"no stream":                {stream: "<html>", kind: "text/html", err: `e2b: execute: the answer is "text/html" and not a stream: is a proxy in between?`},
		"nothing":                  {err: "unexpected EOF", cut: true},
		"cut after the start":      {stream: start, err: "unexpected EOF", cut: true},
		"cut in a head":            {stream: start + "\x00\x00", err: "unexpected EOF", cut: true},
		"cut in a message":         {stream: start + message(0, `{"event":{}}`)[:9], err: "unexpected EOF", cut: true},
		"ended without an end":     {stream: start + message(2, `{}`), err: "unexpected EOF", cut: true},
		"too long":                 {stream: "\x00\xff\xff\xff\xff", err: "e2b: execute: a message that is none of envd's", cut: true},
		"compressed":               {stream: message(1, "{}"), err: "e2b: execute: a message that is none of envd's", cut: true},
		"no JSON":                  {stream: message(0, "{"), err: "e2b: execute: a message that is none of envd's: unexpected end of JSON input", cut: true},
		"refused":                  {stream: message(2, `{"error":{"code":"not_found","message":"no such program"}}`), err: "e2b: execute: not_found: no such program"},
		"not there":                {stream: message(2, `{"error":{"code":"unavailable","message":"later"}}`), err: "e2b: execute: unavailable: later", cut: true},
		"ended by envd":            {stream: start + message(2, `{"error":{"code":"internal","message":"oops"}}`), err: "e2b: execute: internal: oops", cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, box := sandboxOf(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.kind == "" {
					c.kind = "application/connect+json"
				}
				w.Header().Set("Content-Type", c.kind)
				_, _ = io.WriteString(w, c.stream)
			})
			code, err := s.Exec(t.Context(), box, &remote.Exec{Argv: []string{"true"}})
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, c.code, code)
				return
			}
			require.ErrorContains(t, err, c.err)
			var cut *remote.CutError
			require.Equal(t, c.cut, errors.As(err, &cut), "%v", err)
		})
	}
	t.Run("an answer of another kind", func(t *testing.T) {
		s, box := sandboxOf(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
		_, err := s.Exec(t.Context(), box, &remote.Exec{Argv: []string{"true"}})
		var refused *remote.APIError
		require.ErrorAs(t, err, &refused)
		var cut *remote.CutError
		require.False(t, errors.As(err, &cut))
	})
}

// TestInput holds what is sent to a program against what its daemon hears: input and its end.
func TestInput(t *testing.T) {
	for name, c := range map[string]struct {
		status int    // of the answer to input
		code   string // envd's word for it
		lost   bool   // the input did not arrive
	}{
		"to the end":        {},
		"the program ended": {status: 404, code: "not_found"},
		"it reads no more":  {status: 500, code: "internal"},
		"it did not arrive": {status: 502, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var heard []string
			over := make(chan struct{})
			s, box := sandboxOf(t, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				text = text[bytes.IndexByte(text, '{'):]
				var in struct {
					Input struct{ Stdin []byte }
				}
				if err := json.Unmarshal(text, &in); err != nil {
					t.Error(err)
				}
				_, what, _ := strings.Cut(r.URL.Path, "process.Process/")
				said := what
				if who, _, _ := r.BasicAuth(); what == "Start" {
					said += " " + who
				}
				if in.Input.Stdin != nil {
					said += " stdin=" + string(in.Input.Stdin)
				}
				mu.Lock()
				heard = append(heard, said)
				last := what == "CloseStdin"
				mu.Unlock()
				switch {
				case what == "Start":
					w.Header().Set("Content-Type", "application/connect+json")
					_, _ = io.WriteString(w, message(0, begun))
					w.(http.Flusher).Flush()
					select {
					case <-over:
						_, _ = io.WriteString(w, message(0, `{"event":{"end":{"exited":true}}}`))
					case <-r.Context().Done():
					}
					return
				case what == "SendInput" && c.status != 0:
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(c.status)
					_, _ = fmt.Fprintf(w, `{"code":%q,"message":"no"}`, c.code)
				default:
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, "{}")
				}
				if last {
					close(over)
				}
			})
			e := &remote.Exec{Argv: []string{"cat"}, Root: true, In: strings.NewReader("hello"), Lost: func(error) {
				mu.Lock()
				defer mu.Unlock()
				if !c.lost {
					t.Error("input that arrived is lost")
				}
				c.lost = false
			}}
			code, err := s.Exec(t.Context(), box, e)
			require.NoError(t, err)
			require.Zero(t, code)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, []string{"Start root", "SendInput stdin=hello", "CloseStdin"}, heard)
			require.False(t, c.lost, "what was lost was not told")
		})
	}
}
