// Package e2b is a small server that behaves as E2B does, for tests: its control plane, and
// the daemon of each sandbox, behind one address. E2B's own client passes its calls unchanged
// (the package's test). Where the test is root a sandbox is a machine of its own (package
// machine) with a root and a user; else what it executes is executed on this machine, in a
// directory of its own.
//
// Faults are put in by the test: see [Server.Break].
package e2b

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"net/http"
	"net/url"
	"os"
	"path/filepath"
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
	Pages      int // how many sandboxes a page of a list has; 0 for 100
	credential *syscall.Credential
}

// A Fault is what becomes of one call.
type Fault = faults.Fault

// box is a sandbox.
type box = machine.Sandbox[running]

// running is what a sandbox has beside its name.
type running struct {
	template  string
	token     string
	ends      time.Time
	processes map[uint32]*process
}

// Start starts a server. What it executes for the user runs as that identity, this process's
// own if it is nil.
func Start(credential *syscall.Credential) (*Server, error) {
	s := &Server{credential: credential}
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{
		Name: "e2b", Port: ":49983", Machines: credential != nil, Owner: credential, Stopped: "paused", Route: s.route, Kill: kill,
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
	b.Runs = running{body.Template, rand.Text(), b.Started.Add(time.Duration(body.Timeout) * time.Second), map[uint32]*process{}}
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
	states := strings.Split(query.Get("state"), ",")
	list := []map[string]any{}
	for _, b := range s.Bearing(func(labels map[string]string) bool {
		for key, values := range pairs {
			key, _ = url.QueryUnescape(key) // encoded twice
			if value, _ := url.QueryUnescape(values[0]); labels[key] != value {
				return false
			}
		}
		return true
	}) {
		if told := s.told(b, false); query.Get("state") == "" || slices.Contains(states, told["state"].(string)) {
			list = append(list, told)
		}
	}
	size := s.Pages
	if size == 0 {
		size = 100
	}
	if size == 0 {
		size = 100
	}
	at, _ := strconv.Atoi(query.Get("nextToken"))
	if at < 0 || at > len(list) {
		refuse(w, http.StatusBadRequest, "nextToken")
		return
	}
	list = list[at:]
	if len(list) > size {
		list = list[:size]
		w.Header().Set("X-Next-Token", strconv.Itoa(at+size))
	}
	answer(w, http.StatusOK, list)
}

// kill ends the processes of a sandbox that is no machine, those in sessions of their own too, by
// a variable that each of them has.
func kill(b *box) {
	for range 20 {
		found := false
		list, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range list {
			env, err := os.ReadFile(name)
			if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00E2B_SANDBOX_ID="+b.ID+"-"+b.Runs.token+"\x00")) {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil && pid != os.Getpid() {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}
