package conformance_test

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers"
	fakecloudflare "github.com/pccrun/pccrun/test/internal/cloudflare"
	fakedaytona "github.com/pccrun/pccrun/test/internal/daytona"
	fake "github.com/pccrun/pccrun/test/internal/e2b"
	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
	fakemodal "github.com/pccrun/pccrun/test/internal/modal"
	fakesprites "github.com/pccrun/pccrun/test/internal/sprites"
	fakevercel "github.com/pccrun/pccrun/test/internal/vercel"

	"github.com/pccrun/pccrun/providers/cloudflare"
	"github.com/pccrun/pccrun/providers/daytona"
	"github.com/pccrun/pccrun/providers/e2b"
	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/providers/modal"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/providers/sprites"
	"github.com/pccrun/pccrun/providers/vercel"
)

// places are the providers: the next one is the next row.
var places = []*place{
	{name: "e2b", keys: []string{"E2B_API_KEY"}, wrongKey: "e2b_ffff", start: startE2B, wire: e2bWire, sleeps: true},
	{name: "daytona", keys: []string{"DAYTONA_API_KEY"}, wrongKey: "dtn_ffff", start: startDaytona, wire: daytonaWire, sleeps: true},
	{name: "cloudflare", keys: []string{"SANDBOX_API_KEY", "CLOUDFLARE_SANDBOX_URL"}, wrongKey: "ffff", start: startCloudflare, wire: cloudflareWire, idles: true, noKeep: "the end of its sandboxes cannot be moved"},
	{name: "modal", keys: []string{"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"}, wrongKey: "ak-ffff", start: startModal, wire: modalWire, noKeep: "the end of its sandboxes cannot be moved"},
	{name: "sprites", keys: []string{"SPRITES_TOKEN"}, wrongKey: "wrong", start: startSprites, wire: spritesWire, sleeps: true, noKeep: "the end of its sandboxes cannot be moved",
		noProgram: "its management socket is elsewhere than in a real sprite, and a sprite without it is refused"},
	{name: "vercel", keys: []string{"VERCEL_OIDC_TOKEN"}, wrongKey: wrongVercel, start: startVercel, wire: vercelWire, sleeps: true, ends: true, noKeep: "the command may reach it"},
}

// placeOf is the place of a name.
func placeOf(name string) *place {
	return places[slices.IndexFunc(places, func(p *place) bool { return p.name == name })]
}

// wrongVercel is a token that names a team and a project.
const wrongVercel = "e30.eyJvd25lcl9pZCI6InRlYW1fMSIsInByb2plY3RfaWQiOiJwcmpfMSJ9.wrong"

// least is the provider that has only what every one must have.
var least = &place{name: "example", keys: []string{"EXAMPLE_KEY"}, wrongKey: "wrong", start: startExample}

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

// A cloud is what each server is that behaves as a provider.
type cloud interface {
	Environ() []string
	Sandboxes(state string) []string
	Home(id string) string
	Calls() []string
	CreateTexts() string
	Received() int64
	Remove(id string)
	Pause(id string)
	Unplug()
	Break(fault func(r *http.Request) *faults.Fault)
	Settings() *machine.Setting
	Stop() error
}

// serve has a server be up, which just was started, and says how its provider is made of an adapter.
func serve[S remote.Service](t *testing.T, s cloud, err error, wire func() *wire, service func(environ []string) S, base func(S) *remote.Base) *served {
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	v := &served{
		environ: s.Environ(), stand: s.Sandboxes, home: s.Home, calls: s.Calls, received: s.Received, made: s.CreateTexts, remove: s.Remove, unplug: s.Unplug,
		pause: s.Pause, decide: s.Break, fault: func(kinds ...string) { s.Break(faultsOf(wire(), kinds)) }, set: s.Settings(), around: func(hosts map[string]string, booted func(*machine.Machine)) {
			s.Settings().Hosts, s.Settings().Booted = hosts, booted
		},
		path: func(dir string) { s.Settings().Path = dir },
	}
	v.open = func(environ []string, state, program string) providers.Provider {
		adapter := service(environ)
		b := base(adapter)
		if v.atOnce {
			b.API.Wait = time.Millisecond
		}
		b.Facts.Now = func() time.Time { return time.Now().Add(time.Duration(v.ahead.Add(v.goesOn.Load()))) }
		return remote.New(adapter, b.Facts, providers.Host{Environ: environ, Git: plainGit, LinuxProgram: opens(program), StateDir: state})
	}
	return v
}

func startE2B(t *testing.T) *served {
	s, err := fake.Start(credential)
	return serve(t, s, err, e2bWire, e2b.NewService, func(s *e2b.Service) *remote.Base { return &s.Base })
}

func startDaytona(t *testing.T) *served {
	s, err := fakedaytona.Start()
	return serve(t, s, err, daytonaWire, daytona.NewService, func(s *daytona.Service) *remote.Base { return &s.Base })
}

func startCloudflare(t *testing.T) *served {
	s, err := fakecloudflare.Start()
	return serve(t, s, err, cloudflareWire, cloudflare.NewService, func(s *cloudflare.Service) *remote.Base { return &s.Base })
}

func startModal(t *testing.T) *served {
	s, err := fakemodal.Start()
	return serve(t, s, err, modalWire, modal.NewService, func(s *modal.Service) *remote.Base { return &s.Base })
}

func startSprites(t *testing.T) *served {
	s, err := fakesprites.Start()
	return serve(t, s, err, spritesWire, sprites.NewService, func(a *sprites.Service) *remote.Base {
		a.Facts.Sockets = []string{s.Socket()}
		return &a.Base
	})
}

func startVercel(t *testing.T) *served {
	s, err := fakevercel.Start(credential)
	return serve(t, s, err, vercelWire, vercel.NewService, func(s *vercel.Service) *remote.Base { return &s.Base })
}

// wire is what calls are on a provider's wire.
type wire struct {
	create, upload, download, destroy, start func(r *http.Request) bool
	line                                     func(r *http.Request) bool // what carries the line to pccrun in the sandbox
	key                                      string
}

func is(r *http.Request, method, path string) bool {
	return r.Method == method && strings.HasPrefix(r.URL.Path, path)
}

func e2bFault(kind string) func(r *http.Request) *faults.Fault { return faultOf(kind, e2bWire()) }

// faultsOf is what kinds of faults are on a wire: the first of them that a call has.
func faultsOf(w *wire, kinds []string) func(r *http.Request) *faults.Fault {
	var list []func(r *http.Request) *faults.Fault
	for _, kind := range kinds {
		list = append(list, faultOf(kind, w))
	}
	return func(r *http.Request) *faults.Fault {
		for _, of := range list {
			if f := of(r); f != nil {
				return f
			}
		}
		return nil
	}
}

func e2bWire() *wire {
	start := func(r *http.Request) bool { return is(r, "POST", "/process.Process/Start") }
	return &wire{
		create:   func(r *http.Request) bool { return r.Method == "POST" && r.URL.Path == "/v2/sandboxes" },
		upload:   func(r *http.Request) bool { return is(r, "POST", "/files") },
		download: func(r *http.Request) bool { return is(r, "GET", "/files") },
		destroy:  func(r *http.Request) bool { return is(r, "DELETE", "/sandboxes/") },
		start:    start, line: func(r *http.Request) bool { return start(r) && carries(r) }, key: fake.Key,
	}
}

func daytonaWire() *wire {
	var mu sync.Mutex
	lines := map[string]bool{} // sessions in which one is
	session := func(r *http.Request) string {
		_, after, _ := strings.Cut(r.URL.Path, "/process/session/")
		name, _, _ := strings.Cut(after, "/")
		return name
	}
	start := func(r *http.Request) bool { return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/exec") }
	return &wire{
		create: func(r *http.Request) bool { return r.Method == "POST" && r.URL.Path == "/api/sandbox" },
		upload: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/files/bulk-upload") },
		download: func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/files/download") && strings.Contains(r.URL.Query().Get("path"), "-down/")
		},
		destroy: func(r *http.Request) bool { return is(r, "DELETE", "/api/sandbox/") },
		start:   start,
		line: func(r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if start(r) && carries(r) {
				lines[session(r)] = true
			}
			return strings.HasSuffix(r.URL.Path, "/logs") && lines[session(r)]
		},
		key: fakedaytona.Key,
	}
}

func spritesWire() *wire {
	start := func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/exec") && r.Header.Get("Upgrade") != ""
	}
	return &wire{
		create:   func(r *http.Request) bool { return r.Method == "POST" && r.URL.Path == "/v1/sprites" },
		upload:   func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/fs/write") },
		download: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/fs/read") },
		destroy:  func(r *http.Request) bool { return is(r, "DELETE", "/v1/sprites/") },
		start:    start,
		line:     func(r *http.Request) bool { return start(r) && slices.Contains(r.URL.Query()["cmd"], inside.Attach) },
		key:      fakesprites.Token,
	}
}

func vercelWire() *wire {
	start := func(r *http.Request) bool { return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/cmd") }
	return &wire{
		create:   func(r *http.Request) bool { return r.Method == "POST" && r.URL.Path == "/v3/sandboxes" },
		upload:   func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/fs/write") },
		download: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/fs/read") },
		destroy:  func(r *http.Request) bool { return is(r, "DELETE", "/v2/sandboxes/") },
		start:    start, line: func(r *http.Request) bool { return start(r) && carries(r) }, key: fakevercel.Token,
	}
}

// named are parts of a path that name one sandbox, session or command.
var named = regexp.MustCompile(`/([^/]*[0-9][^/]*|[^/]{20,})`)

// faultOf is what a kind of fault is on a wire.
func faultOf(kind string, w *wire) func(r *http.Request) *faults.Fault {
	seen := map[string]bool{}
	var mu sync.Mutex
	var count atomic.Int32
	first := func(r *http.Request) bool { // of a method and path, names that were given to single things apart
		key := r.Method + named.ReplaceAllString(r.URL.Path, "/*")
		if r.Header.Get("Content-Type") == "application/grpc" {
			key = r.URL.Path
		}
		mu.Lock()
		defer mu.Unlock()
		was := seen[key]
		seen[key] = true
		return !was
	}
	return func(r *http.Request) *faults.Fault {
		create, download, destroy, start, line := w.create(r), w.download(r), w.destroy(r), w.start(r), w.line(r)
		switch {
		case kind == slow:
			return &faults.Fault{Delay: 100 * time.Millisecond}
		case kind == busy && first(r):
			return &faults.Fault{Status: 429, Header: http.Header{"Retry-After": {"1"}}, Body: `{"code":429,"message":"rate limit"}`}
		case kind == broken && !create && !start && first(r):
			return &faults.Fault{Status: 500, Body: `{"code":500,"message":"oops"}`}
		case kind == lostCreate && create && count.Add(1) == 1:
			return &faults.Fault{Cut: -1, After: true}
		case kind == twiceCreate && create:
			return &faults.Fault{Twice: true}
		case kind == neverCreate && create:
			return &faults.Fault{Status: 400, Body: `{"code":400,"message":"quota of sandboxes exceeded for ` + w.key + `"}`}
		case kind == htmlCreate && create:
			return &faults.Fault{Status: 200, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>log in</html>"}
		case kind == cutExec && line && count.Add(1) == 1:
			return &faults.Fault{Cut: 4000}
		case kind == cutOften && line:
			return &faults.Fault{Cut: 3000 * int(count.Add(1))}
		case kind == cutDownload && download && count.Add(1) == 1:
			return &faults.Fault{Cut: 40}
		case kind == wrongOnce && download && count.Add(1) == 1:
			return &faults.Fault{Rewrite: func(b []byte) []byte { b[len(b)/2] ^= 1; return b }}
		case kind == noDownload && download:
			return &faults.Fault{Status: 404, Body: `{"code":404,"message":"no such file"}`}
		case kind == noDestroy && destroy:
			return &faults.Fault{Status: 403, Body: `{"code":403,"message":"not yours"}`}
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
