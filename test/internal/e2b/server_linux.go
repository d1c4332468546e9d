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
	"io"

	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// Key is the key that the server takes.
const Key = "e2b_00112233445566778899aabbccddeeff"

// Server is one.
type Server struct {
	URL   string
	Path  string // a directory that stands first in the PATH of what is executed
	Pages int    // how many sandboxes a page of a list has; 0 for 100

	// Of sandboxes that are machines:
	Hosts  map[string]string        // names that they know, and addresses of their own
	Booted func(m *machine.Machine) // hears of each; nil hears of none

	http       *httptest.Server
	dir        string
	credential *syscall.Credential
	machines   bool
	local      net.Listener // where the daemons would listen in machines of their own

	mu    sync.Mutex
	boxes map[string]*box
	next  int
	calls []string // method and path of each
	fault func(r *http.Request) *Fault
	made  []map[string]any // the bodies of requests to create
}

// A Fault is what becomes of one call.
type Fault = faults.Fault

// daemonPort is where the daemon listens in each sandbox.
const daemonPort = ":49983"

// Start starts a server. What it executes for the user runs as that identity, this process's
// own if it is nil.
func Start(credential *syscall.Credential) (*Server, error) {
	dir, err := os.MkdirTemp("", "pccrun-e2b-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	s := &Server{dir: dir, credential: credential, boxes: map[string]*box{}, machines: credential != nil}
	if !s.machines {
		if s.local, err = machine.ListenShared(daemonPort); err != nil {
			return nil, err
		}
		go func() { _ = http.Serve(s.local, http.HandlerFunc(health)) }()
	}
	s.http = httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	return s, nil
}

// Stop ends all sandboxes and the server.
func (s *Server) Stop() error {
	for _, id := range s.Sandboxes("") {
		s.remove(id)
	}
	if s.local != nil {
		s.local.Close()
	}
	s.http.CloseClientConnections()
	s.http.Close()
	return os.RemoveAll(s.dir)
}

// Environ are the variables by which E2B's own client, and pccrun, find the server.
func (s *Server) Environ() []string {
	return []string{"E2B_API_KEY=" + Key, "E2B_API_URL=" + s.URL, "E2B_SANDBOX_URL=" + s.URL}
}

// Break has a function decide what becomes of each call; nil for no fault.
func (s *Server) Break(fault func(r *http.Request) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Sandboxes are the names of those that stand, in a state if that is not "".
func (s *Server) Sandboxes(state string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, b := range s.boxes {
		if state == "" || b.state == state {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// Calls are the method and path of each call so far.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// CreateRequests are the bodies of the requests to create so far.
func (s *Server) CreateRequests() []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.made)
}

// Home is the home in a sandbox.
func (s *Server) Home(id string) string { return filepath.Join(s.dir, id, "home") }

// box is a sandbox.
type box struct {
	id, token string
	state     string
	metadata  map[string]string
	started   time.Time
	ends      time.Time
	home      string
	mu        sync.Mutex
	machine   *machine.Machine // nil while it is paused, and where there are none
	daemon    net.Listener
	processes map[uint32]*process
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	fault := s.fault
	s.mu.Unlock()
	faults.Serve(w, r, fault, s.route)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]any{"code": status, "message": text})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	p := r.URL.Path
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
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	switch {
	case b == nil:
		refuse(w, http.StatusNotFound, "sandbox "+strconv.Quote(id)+" not found")
	case verb == "" && r.Method == http.MethodGet:
		answer(w, http.StatusOK, s.told(b, true))
	case verb == "" && r.Method == http.MethodDelete:
		s.remove(id)
		w.WriteHeader(http.StatusNoContent)
	case verb == "timeout" && r.Method == http.MethodPost:
		s.set(b, func() { b.ends = time.Now().Add(timeout(r, 300)) })
		w.WriteHeader(http.StatusNoContent)
	case verb == "pause" && r.Method == http.MethodPost:
		if b.state == "paused" {
			refuse(w, http.StatusConflict, "sandbox is paused already")
			return
		}
		s.set(b, func() { b.state = "paused" })
		b.kill()
		w.WriteHeader(http.StatusNoContent)
	case verb == "connect" && connect && r.Method == http.MethodPost:
		status := http.StatusOK
		if b.state == "paused" {
			status = http.StatusCreated
		}
		s.set(b, func() { b.state, b.ends = "running", time.Now().Add(timeout(r, 300)) })
		answer(w, status, s.told(b, true))
	default:
		refuse(w, http.StatusMethodNotAllowed, r.Method+" "+p)
	}
}

func (s *Server) set(_ *box, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
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
	text, _ := io.ReadAll(r.Body)
	var body struct {
		Template string            `json:"templateID"`
		Timeout  int               `json:"timeout"`
		Metadata map[string]string `json:"metadata"`
	}
	var all map[string]any
	if json.Unmarshal(text, &body) != nil || json.Unmarshal(text, &all) != nil {
		refuse(w, http.StatusBadRequest, "no JSON")
		return
	}
	if body.Template != "base" {
		refuse(w, http.StatusNotFound, "template '"+body.Template+"' not found")
		return
	}
	if body.Timeout == 0 {
		body.Timeout = 300
	}
	s.mu.Lock()
	s.next++
	s.made = append(s.made, all)
	b := &box{id: fmt.Sprintf("i%04dsandbox", s.next), token: rand.Text(), state: "running", metadata: body.Metadata, started: time.Now(), ends: time.Now().Add(time.Duration(body.Timeout) * time.Second), processes: map[uint32]*process{}}
	b.home = s.Home(b.id)
	s.mu.Unlock()
	err := os.MkdirAll(b.home, 0o755)
	if err == nil && s.credential != nil {
		err = os.Chown(b.home, int(s.credential.Uid), int(s.credential.Gid))
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	s.mu.Lock()
	s.boxes[b.id] = b
	s.mu.Unlock()
	answer(w, http.StatusCreated, s.told(b, true))
}

// told is a sandbox as the control plane tells of it.
func (s *Server) told(b *box, secret bool) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]any{
		"sandboxID": b.id, "templateID": "base", "clientID": "x", "envdVersion": "0.6.13", "state": b.state, "domain": nil,
		"startedAt": b.started.UTC().Format(time.RFC3339), "endAt": b.ends.UTC().Format(time.RFC3339), "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 10240, "metadata": b.metadata,
	}
	if secret {
		m["envdAccessToken"], m["trafficAccessToken"] = b.token, nil
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
	for _, id := range s.Sandboxes("") {
		s.mu.Lock()
		b := s.boxes[id]
		s.mu.Unlock()
		if b == nil || query.Get("state") != "" && !slices.Contains(states, b.state) {
			continue
		}
		fits := true
		for key, values := range pairs {
			key, _ = url.QueryUnescape(key) // encoded twice
			value, _ := url.QueryUnescape(values[0])
			fits = fits && b.metadata[key] == value
		}
		if fits {
			list = append(list, s.told(b, false))
		}
	}
	size := s.Pages
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

// remove ends a sandbox with all that runs in it.
func (s *Server) remove(id string) {
	s.mu.Lock()
	b := s.boxes[id]
	delete(s.boxes, id)
	s.mu.Unlock()
	if b == nil {
		return
	}
	b.kill()
	_ = os.RemoveAll(filepath.Dir(b.home))
}

// health is all that the daemon answers to whoever asks.
func health(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

// boot starts the sandbox's machine, if it has none that runs.
func (s *Server) boot(b *box) (*machine.Machine, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.machines || b.machine != nil {
		return b.machine, nil
	}
	root := filepath.Join(filepath.Dir(b.home), "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	o := machine.Options{Root: root, Home: b.home, Hosts: s.Hosts}
	if s.Path != "" {
		o.Shows = []string{s.Path}
	}
	m, err := machine.Start(o)
	if err != nil {
		return nil, err
	}
	if b.daemon, err = m.Listen("0.0.0.0" + daemonPort); err != nil {
		m.Stop()
		return nil, err
	}
	go func() {
		_ = http.Serve(b.daemon, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("E2b-Sandbox-Id", b.id)
			s.daemon(w, r)
		}))
	}()
	b.machine = m
	if s.Booted != nil {
		s.Booted(m)
	}
	return m, nil
}

// kill ends all processes of a sandbox, those in sessions of their own too: with its machine, or
// by a variable that each of them has.
func (b *box) kill() {
	b.mu.Lock()
	m := b.machine
	b.machine = nil
	if m != nil {
		b.daemon.Close()
	}
	b.mu.Unlock()
	if m != nil {
		m.Stop()
		return
	}
	for range 20 {
		found := false
		list, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, name := range list {
			env, err := os.ReadFile(name)
			if err != nil || !bytes.Contains(append([]byte{0}, env...), []byte("\x00E2B_SANDBOX_ID="+b.id+"-"+b.token+"\x00")) {
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
