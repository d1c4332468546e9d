package conformance_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/host"

	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/inside"
)

// places are the providers: the next one is the next row.
var places = []*place{
	{name: "e2b", keys: []string{"E2B_API_KEY"}, wrongKey: "e2b_ffff", start: startE2B},
}

// The kinds of faults that a server puts in.
const (
	slow         = "each answer is slow"
	busy         = "the first call of each kind is refused with 429 and Retry-After"
	broken       = "the first call of each kind that may be repeated is answered by 500"
	lostCreate   = "a sandbox is created and the answer is lost"
	twiceCreate  = "a sandbox is created twice by one call"
	neverCreate  = "no sandbox is created: there is no room"
	htmlCreate   = "a proxy answers in place of the provider"
	cutExec      = "the stream ends in the middle of a message, once"
	cutOften     = "each stream of the command ends in the middle of a message"
	cutDownload  = "the download ends too soon, once"
	wrongOnce    = "the download is altered, once"
	noDownload   = "no download comes through"
	noDestroy    = "sandboxes cannot be destroyed"
	extendBroken = "sandboxes cannot be extended"
)

func startE2B(t *testing.T) *served {
	s, err := fake.Start(credential)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return &served{
		environ: s.Environ(), stand: s.Sandboxes, home: s.Home, calls: s.Calls,
		open: func(environ []string) providers.Provider {
			return e2b.New(providers.Host{Environ: environ, Launcher: host.Program(t), CacheDir: cacheDir}, e2b.Options{})
		},
		path:  func(dir string) { s.Path = dir },
		made:  func() string { text, _ := json.Marshal(s.Made()); return string(text) },
		fault: func(kind string) { s.Break(e2bFault(kind)) },
	}
}

// e2bFault is what a kind of fault is on E2B's wire.
func e2bFault(kind string) func(r *http.Request) *fake.Fault {
	seen := map[string]bool{}
	var mu sync.Mutex
	var count atomic.Int32
	first := func(r *http.Request) bool { // of a method and path, names of sandboxes apart
		key := r.Method + strings.Join(strings.Split(r.URL.Path, "/")[:2], "/") + r.URL.Path[max(0, len(r.URL.Path)-8):]
		mu.Lock()
		defer mu.Unlock()
		was := seen[key]
		seen[key] = true
		return !was
	}
	is := func(r *http.Request, method, path string) bool {
		return r.Method == method && strings.HasPrefix(r.URL.Path, path)
	}
	return func(r *http.Request) *fake.Fault {
		create, download := is(r, "POST", "/v2/sandboxes") && r.URL.Path == "/v2/sandboxes", is(r, "GET", "/files")
		destroy := is(r, "DELETE", "/sandboxes/")
		start := is(r, "POST", "/process.Process/Start")
		line := start && carries(r)
		switch {
		case kind == slow:
			return &fake.Fault{Delay: 100 * time.Millisecond}
		case kind == busy && first(r):
			return &fake.Fault{Status: 429, Header: http.Header{"Retry-After": {"1"}}, Body: `{"code":429,"message":"rate limit"}`}
		case kind == broken && !create && !start && first(r):
			return &fake.Fault{Status: 500, Body: `{"code":500,"message":"oops"}`}
		case kind == lostCreate && create && count.Add(1) == 1:
			return &fake.Fault{Cut: -1, After: true}
		case kind == twiceCreate && create:
			return &fake.Fault{Twice: true}
		case kind == neverCreate && create:
			return &fake.Fault{Status: 400, Body: `{"code":400,"message":"quota of sandboxes exceeded for ` + fake.Key + `"}`}
		case kind == htmlCreate && create:
			return &fake.Fault{Status: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>log in</html>"}
		case kind == cutExec && line && count.Add(1) == 1:
			return &fake.Fault{Cut: 4000}
		case kind == cutOften && line:
			return &fake.Fault{Cut: 3000 + 500*int(count.Add(1))}
		case kind == cutDownload && download && count.Add(1) == 1:
			return &fake.Fault{Cut: 40}
		case kind == wrongOnce && download && count.Add(1) == 1:
			return &fake.Fault{Rewrite: func(b []byte) []byte { b[len(b)/2] ^= 1; return b }}
		case kind == noDownload && download:
			return &fake.Fault{Status: 404, Body: `{"code":404,"message":"no such file"}`}
		case kind == noDestroy && destroy:
			return &fake.Fault{Status: 403, Body: `{"code":403,"message":"not yours"}`}
		}
		return nil
	}
}

// carries reports whether a call executes what carries the line to pccrun in the sandbox.
func carries(r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	return bytes.Contains(body, []byte(inside.Attach))
}
