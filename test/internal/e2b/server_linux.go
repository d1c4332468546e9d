// Package e2b is a small server that behaves as E2B does, for tests: its control plane, and
// the daemon of each sandbox, behind one address. E2B's own client passes its calls unchanged
// (the package's test). Where the test is root a sandbox is a machine of its own (package
// machine) with a root and a user; else what it executes is executed on this machine, in a
// directory of its own.
//
// Faults are put in by the test: see [Server.Break].
package e2b

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// Key is the key that the server takes.
const Key = "e2b_00112233445566778899aabbccddeeff"

// Server is one.
type Server struct {
	*machine.Cloud[running]
	Pages int // how many sandboxes a page of a list has; 0 for 100
}

// A Fault is what becomes of one call.
type Fault = faults.Fault

// box is a sandbox.
type box = machine.Sandbox[running]

// running is what a sandbox has beside its name.
type running struct {
	template string
	token    string
	ends     time.Time
}

// Start starts a server. What it executes for the user runs as that identity, this process's
// own if it is nil.
func Start(credential *syscall.Credential) (*Server, error) {
	s := &Server{}
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{
		Name: "e2b", Port: ":49983", Machines: credential != nil, Owner: credential, Stopped: "paused", Route: s.route,
		Anyone: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		Daemon: func(b *box) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Set("E2b-Sandbox-Id", b.ID)
				s.daemon(w, r)
			})
		},
	})
	return s, err
}

// Environ are the variables by which E2B's own client, and pccrun, find the server.
func (s *Server) Environ() []string {
	return []string{"E2B_API_KEY=" + Key, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}
}

func answer(w http.ResponseWriter, status int, v any) { machine.Answer(w, status, v) }

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]any{"code": status, "message": text})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	p := r.URL.Path
	if port := r.Header.Get("E2b-Sandbox-Port"); port != "" && port != "49983" {
		s.preview(w, r, port)
		return
	}
	switch {
	case strings.HasPrefix(p, "/process.Process/"), strings.HasPrefix(p, "/filesystem.Filesystem/"), p == "/files", p == "/health":
		s.daemon(w, r)
		return
	case r.Header.Get("X-API-KEY") != Key:
		refuse(w, http.StatusUnauthorized, "Invalid API key "+r.Header.Get("X-API-KEY")) // a careless server
		return
	case p == "/v2/sandboxes" && r.Method == http.MethodPost:
		s.create(w, r)
		return
	case p == "/v2/sandboxes" && r.Method == http.MethodGet:
		s.list(w, r)
		return
	}
	rest, connect := strings.CutPrefix(p, "/v2")
	id, verb, _ := strings.Cut(strings.TrimPrefix(rest, "/sandboxes/"), "/")
	b := s.Sandbox(id)
	switch {
	case b == nil:
		refuse(w, http.StatusNotFound, "sandbox "+strconv.Quote(id)+" not found")
	case verb == "" && r.Method == http.MethodGet:
		answer(w, http.StatusOK, s.told(b, true))
	case verb == "" && r.Method == http.MethodDelete:
		s.Remove(id)
		w.WriteHeader(http.StatusNoContent)
	case verb == "timeout" && r.Method == http.MethodPost:
		s.Set(func() { b.Runs.ends = time.Now().Add(timeout(r, 300)) })
		w.WriteHeader(http.StatusNoContent)
	case verb == "pause" && r.Method == http.MethodPost:
		if b.State == "paused" {
			refuse(w, http.StatusConflict, "sandbox is paused already")
			return
		}
		s.Set(func() { b.State = "paused" })
		s.End(b)
		w.WriteHeader(http.StatusNoContent)
	case verb == "connect" && connect && r.Method == http.MethodPost:
		status := http.StatusOK
		if b.State == "paused" {
			status = http.StatusCreated
		}
		s.Set(func() { b.State, b.Runs.ends = "running", time.Now().Add(timeout(r, 300)) })
		answer(w, status, s.told(b, true))
	default:
		refuse(w, http.StatusMethodNotAllowed, r.Method+" "+p)
	}
}

// preview is a port of a sandbox, which only who has its token reaches.
func (s *Server) preview(w http.ResponseWriter, r *http.Request, port string) {
	b := s.Sandbox(r.Header.Get("E2b-Sandbox-Id"))
	if b == nil || r.Header.Get("E2b-Traffic-Access-Token") != "traffic-"+b.Runs.token {
		refuse(w, http.StatusForbidden, "missing traffic access token")
		return
	}
	s.Preview(w, r, b, port)
}

func timeout(r *http.Request, usual int) time.Duration {
	var body struct {
		Timeout *int `json:"timeout"`
	}
	if json.NewDecoder(r.Body).Decode(&body) == nil && body.Timeout != nil {
		usual = *body.Timeout
	}
	return time.Duration(usual) * time.Second
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	body := struct {
		Template string            `json:"templateID"`
		Timeout  int               `json:"timeout"`
		Metadata map[string]string `json:"metadata"`
	}{Timeout: 300}
	b, err := s.Create(r, &body, func(n int) string { return fmt.Sprintf("i%04dsandbox", n) })
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return
	case body.Template != "base" && body.Template != "large":
		refuse(w, http.StatusNotFound, "template '"+body.Template+"' not found")
		return
	}
	b.State, b.Labels = "running", body.Metadata
	b.Runs = running{body.Template, rand.Text(), b.Started.Add(time.Duration(body.Timeout) * time.Second)}
	s.Show(b)
	answer(w, http.StatusCreated, s.told(b, true))
}

// told is a sandbox as the control plane tells of it.
func (s *Server) told(b *box, secret bool) (m map[string]any) {
	s.Set(func() {
		cpus, memory := 2, 512
		if b.Runs.template == "large" {
			cpus, memory = 4, 4096
		}
		m = map[string]any{
			"sandboxID": b.ID, "templateID": b.Runs.template, "clientID": "x", "envdVersion": "0.6.13", "state": b.State, "domain": nil,
			"startedAt": b.Started.UTC().Format(time.RFC3339), "endAt": b.Runs.ends.UTC().Format(time.RFC3339), "cpuCount": cpus, "memoryMB": memory,
			"diskSizeMB": 10240, "metadata": b.Labels,
		}
	})
	if secret {
		m["envdAccessToken"], m["trafficAccessToken"] = b.Runs.token, "traffic-"+b.Runs.token
	}
	return m
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	pairs, err := url.ParseQuery(query.Get("metadata"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "metadata")
		return
	}
	want := map[string]string{}
	for key, values := range pairs {
		key, _ = url.QueryUnescape(key) // encoded twice
		want[key], _ = url.QueryUnescape(values[0])
	}
	list := []map[string]any{}
	for _, b := range s.Bearing(want) {
		if told := s.told(b, false); query.Get("state") == "" || slices.Contains(strings.Split(query.Get("state"), ","), told["state"].(string)) {
			list = append(list, told)
		}
	}
	at, _ := strconv.Atoi(query.Get("nextToken"))
	list, next := machine.Page(list, at, cmp.Or(s.Pages, 100))
	if next > 0 {
		w.Header().Set("X-Next-Token", strconv.Itoa(next))
	}
	answer(w, http.StatusOK, list)
}
