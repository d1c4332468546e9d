// Package daytona is a small server that behaves as Daytona (v0) does, for tests: its API, and
// the toolbox of each sandbox, behind one address. Daytona's own client passes its calls
// unchanged (the package's test). Where the test is root a sandbox is a machine of its own
// (package machine) whose user is root; else what it executes is executed on this machine, in
// a directory of its own.
//
// As Daytona's, it passes on what is printed line by line: what is no text does not come
// through, and who prints no end of a line gets one.
package daytona

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// Key is the key that the server takes.
const Key = "dtn_00112233445566778899aabbccddeeff"

// toolboxPort is where the toolbox listens in each sandbox.
const toolboxPort = ":2280"

// Server is one.
type Server struct {
	URL  string
	Path string // a directory that stands first in the PATH of what is executed

	http  *httptest.Server
	dir   string
	local net.Listener // where the toolboxes would listen in machines of their own

	mu    sync.Mutex
	boxes map[string]*box
	next  int
	calls []string
	fault func(r *http.Request) *faults.Fault
	made  []map[string]any
}

// box is a sandbox.
type box struct {
	id, state string
	labels    map[string]string
	created   time.Time
	home      string
	mu        sync.Mutex
	machine   *machine.Machine
	toolbox   net.Listener
	sessions  map[string]map[string]*command
}

// command is what a session executes.
type command struct {
	c     *exec.Cmd
	stdin io.WriteCloser
	mu    sync.Mutex
	log   []byte
	code  *int
	grown chan struct{} // closed when there is more of it
}

// Start starts a server.
func Start() (*Server, error) {
	dir, err := os.MkdirTemp("", "pccrun-daytona-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	s := &Server{dir: dir, boxes: map[string]*box{}}
	if os.Getuid() != 0 {
		if s.local, err = machine.ListenShared(toolboxPort); err != nil {
			return nil, err
		}
		go func() { _ = http.Serve(s.local, http.NotFoundHandler()) }()
	}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.calls = append(s.calls, r.Method+" "+r.URL.Path)
		fault := s.fault
		s.mu.Unlock()
		faults.Serve(w, r, fault, s.route)
	}))
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

// Environ are the variables by which Daytona's own client, and pccrun, find the server.
func (s *Server) Environ() []string {
	return []string{"DAYTONA_API_KEY=" + Key, "DAYTONA_API_URL=" + s.URL + "/api"}
}

// Break has a function decide what becomes of each call; nil for no fault.
func (s *Server) Break(fault func(r *http.Request) *faults.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// Sandboxes are the names of those that stand: "running", "paused", or all.
func (s *Server) Sandboxes(state string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, b := range s.boxes {
		if state == "" || (state == "paused") == (b.state == "stopped") {
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

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]any{"statusCode": status, "message": text, "error": http.StatusText(status)})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+Key {
		refuse(w, http.StatusUnauthorized, "Invalid credentials")
		return
	}
	kind, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	first, rest, _ := strings.Cut(rest, "/")
	id, verb := first, rest
	if kind == "api" {
		id, verb, _ = strings.Cut(rest, "/")
	}
	s.mu.Lock()
	b := s.boxes[id]
	s.mu.Unlock()
	switch {
	case kind == "api" && first == "sandbox" && id == "" && r.Method == http.MethodPost:
		s.create(w, r)
	case kind == "api" && first == "sandbox" && id == "":
		s.list(w, r)
	case kind == "api" && first != "sandbox":
		answer(w, http.StatusOK, map[string]any{})
	case b == nil:
		refuse(w, http.StatusNotFound, "Sandbox with ID or name "+id+" not found")
	case kind == "toolbox" && b.state != "started":
		refuse(w, http.StatusBadRequest, "Sandbox is not running")
	case kind == "toolbox":
		s.toolbox(w, r, b, verb)
	default:
		s.control(w, r, b, verb)
	}
}

func (s *Server) control(w http.ResponseWriter, r *http.Request, b *box, verb string) {
	set := func(state string) {
		s.mu.Lock()
		b.state = state
		s.mu.Unlock()
		answer(w, http.StatusOK, s.told(b))
	}
	switch {
	case verb == "" && r.Method == http.MethodDelete:
		s.remove(b.id)
		answer(w, http.StatusOK, s.told(b))
	case verb == "" && b.state == "starting":
		set("started") // by the next time that anybody asks
	case verb == "", verb == "last-activity" && r.Method == http.MethodPost:
		answer(w, http.StatusOK, s.told(b))
	case verb == "start" && r.Method == http.MethodPost:
		set("starting")
	case verb == "stop" && r.Method == http.MethodPost && b.state == "stopped":
		refuse(w, http.StatusBadRequest, "Sandbox is not started")
	case verb == "stop" && r.Method == http.MethodPost:
		set("stopped")
		b.kill()
	case verb == "toolbox-proxy-url":
		answer(w, http.StatusOK, map[string]string{"url": s.URL + "/toolbox"})
	default:
		refuse(w, http.StatusNotFound, "Cannot "+r.Method+" "+r.URL.Path)
	}
}

func (s *Server) told(b *box) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{
		"id": b.id, "name": b.id, "organizationId": "o", "state": b.state, "labels": b.labels, "target": "us", "cpu": 1, "memory": 1, "disk": 3, "gpu": 0, "env": map[string]string{},
		"user": "root", "public": false, "networkBlockAll": false, "toolboxProxyUrl": s.URL + "/toolbox", "createdAt": b.created.UTC().Format(time.RFC3339),
	}
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var body struct {
		Snapshot string            `json:"snapshot"`
		Labels   map[string]string `json:"labels"`
	}
	var all map[string]any
	if json.Unmarshal(text, &body) != nil || json.Unmarshal(text, &all) != nil {
		refuse(w, http.StatusBadRequest, "no JSON")
		return
	}
	if body.Snapshot == "absent" {
		refuse(w, http.StatusBadRequest, "Snapshot absent not found")
		return
	}
	s.mu.Lock()
	s.next++
	s.made = append(s.made, all)
	b := &box{id: fmt.Sprintf("%08d-sandbox", s.next), state: "starting", labels: body.Labels, created: time.Now(), sessions: map[string]map[string]*command{}}
	b.home = s.Home(b.id)
	s.boxes[b.id] = b
	s.mu.Unlock()
	if err := os.MkdirAll(b.home, 0o755); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, s.told(b))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	want := map[string]string{}
	if text := r.URL.Query().Get("labels"); text != "" && json.Unmarshal([]byte(text), &want) != nil {
		refuse(w, http.StatusBadRequest, "labels")
		return
	}
	items := []map[string]any{}
	for _, id := range s.Sandboxes("") {
		s.mu.Lock()
		b := s.boxes[id]
		s.mu.Unlock()
		fits := b != nil
		for key, value := range want {
			fits = fits && b.labels[key] == value
		}
		if fits {
			items = append(items, s.told(b))
		}
	}
	at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	size, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	if size == 0 {
		size = 100
	}
	items = items[min(at, len(items)):]
	var next any
	if len(items) > size {
		items, next = items[:size], strconv.Itoa(at+size)
	}
	answer(w, http.StatusOK, map[string]any{"items": items, "nextCursor": next})
}

// boot starts the sandbox's machine, if it has none that runs.
func (s *Server) boot(b *box) (*machine.Machine, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if os.Getuid() != 0 || b.machine != nil {
		return b.machine, nil
	}
	root := filepath.Join(filepath.Dir(b.home), "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	o := machine.Options{Root: root, Home: b.home}
	if s.Path != "" {
		o.Shows = []string{s.Path}
	}
	m, err := machine.Start(o)
	if err != nil {
		return nil, err
	}
	if b.toolbox, err = m.Listen("0.0.0.0" + toolboxPort); err != nil {
		m.Stop()
		return nil, err
	}
	go func() { _ = http.Serve(b.toolbox, http.NotFoundHandler()) }()
	b.machine = m
	return m, nil
}

// kill ends all that runs in a sandbox.
func (b *box) kill() {
	b.mu.Lock()
	m := b.machine
	b.machine = nil
	if m != nil {
		b.toolbox.Close()
	}
	for _, commands := range b.sessions {
		for _, c := range commands {
			_ = syscall.Kill(-c.c.Process.Pid, syscall.SIGKILL)
		}
	}
	b.sessions = map[string]map[string]*command{}
	b.mu.Unlock()
	if m != nil {
		m.Stop()
	}
}

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

// place is where a path of a sandbox is on this machine.
func (s *Server) place(b *box, name string) string {
	switch {
	case !filepath.IsAbs(name):
		return filepath.Join(b.home, name)
	case b.machine == nil:
		return name
	case strings.HasPrefix(name, machine.Home+"/"):
		return filepath.Join(b.home, strings.TrimPrefix(name, machine.Home))
	}
	return b.machine.Path(name)
}

func (s *Server) toolbox(w http.ResponseWriter, r *http.Request, b *box, path string) {
	m, err := s.boot(b)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	parts := strings.Split(path, "/")
	switch {
	case path == "files/bulk-upload":
		s.upload(w, r, b)
	case path == "files/download":
		name := s.place(b, r.URL.Query().Get("path"))
		if _, err := os.Stat(name); err != nil {
			refuse(w, http.StatusNotFound, "file not found: "+name)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeFile(w, r, name)
	case path == "files" && r.Method == http.MethodDelete:
		if os.Remove(s.place(b, r.URL.Query().Get("path"))) != nil {
			refuse(w, http.StatusNotFound, "file not found")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case path == "files/bulk-download":
		s.bulk(w, r, b)
	case path == "process/execute":
		var in struct{ Command, Cwd string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		c := s.command(m, b, in.Command)
		out, _ := c.CombinedOutput()
		answer(w, http.StatusOK, map[string]any{"exitCode": c.ProcessState.ExitCode(), "result": string(out)})
	case path == "process/session" && r.Method == http.MethodPost:
		var in struct {
			ID string `json:"sessionId"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		b.mu.Lock()
		b.sessions[in.ID] = map[string]*command{}
		b.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	case len(parts) >= 3 && parts[0] == "process" && parts[1] == "session":
		s.session(w, r, b, m, parts[2], parts[3:])
	default:
		refuse(w, http.StatusNotFound, "404 page not found")
	}
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request, b *box) {
	parts, err := r.MultipartReader()
	name := ""
	for err == nil {
		part, e := parts.NextPart()
		if e == io.EOF {
			answer(w, http.StatusOK, map[string]any{})
			return
		}
		if err = e; err != nil {
			break
		}
		if strings.HasSuffix(part.FormName(), ".path") {
			text, _ := io.ReadAll(part)
			name = s.place(b, string(text))
			err = os.MkdirAll(filepath.Dir(name), 0o755)
			continue
		}
		var f *os.File
		if f, err = os.Create(name); err == nil {
			_, err = io.Copy(f, part)
			f.Close()
		}
	}
	refuse(w, http.StatusBadRequest, err.Error())
}

// bulk sends files as the parts of a form.
func (s *Server) bulk(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct{ Paths []string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	form := multipart.NewWriter(w)
	w.Header().Set("Content-Type", form.FormDataContentType())
	for _, name := range in.Paths {
		kind, text := "file", []byte(nil)
		text, err := os.ReadFile(s.place(b, name))
		if err != nil {
			kind, text = "error", []byte(err.Error())
		}
		if part, err := form.CreateFormFile(kind, name); err == nil {
			_, _ = part.Write(text)
		}
	}
	_ = form.Close()
}

// command is what executes a line of a shell's in a sandbox.
func (s *Server) command(m *machine.Machine, b *box, line string) *exec.Cmd {
	c := exec.Command("/bin/sh", "-c", line)
	home := b.home
	if m != nil {
		home = machine.Home
		c = m.Command(0, 0, home, "/bin/sh", "-c", line)
	} else {
		c.Dir = home
	}
	path := os.Getenv("PATH")
	if s.Path != "" {
		path = s.Path + ":" + path
	}
	c.Env = []string{"PATH=" + path, "HOME=" + home, "USER=user"}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (s *Server) session(w http.ResponseWriter, r *http.Request, b *box, m *machine.Machine, id string, rest []string) {
	b.mu.Lock()
	commands := b.sessions[id]
	var c *command
	if len(rest) > 1 {
		c = commands[rest[1]]
	}
	b.mu.Unlock()
	switch {
	case commands == nil:
		refuse(w, http.StatusNotFound, "session not found")
	case len(rest) == 0 && r.Method == http.MethodDelete:
		b.mu.Lock()
		for _, c := range commands {
			_ = c.stdin.Close()
			if m != nil {
				machine.Signal(c.c, syscall.SIGKILL)
			} else {
				_ = syscall.Kill(-c.c.Process.Pid, syscall.SIGKILL)
			}
		}
		delete(b.sessions, id)
		b.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case len(rest) == 1 && rest[0] == "exec":
		s.execute(w, r, b, m, commands)
	case c == nil:
		refuse(w, http.StatusNotFound, "command not found")
	case len(rest) == 2:
		c.mu.Lock()
		defer c.mu.Unlock()
		answer(w, http.StatusOK, struct {
			ID      string `json:"id"`
			Command string `json:"command"`
			Code    *int   `json:"exitCode,omitempty"`
		}{rest[1], "", c.code})
	case rest[2] == "input":
		var in struct{ Data string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		if !strings.HasSuffix(in.Data, "\n") {
			in.Data += "\n"
		}
		if _, err := io.WriteString(c.stdin, in.Data); err != nil {
			refuse(w, http.StatusGone, "command has already completed")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case rest[2] == "logs":
		c.follow(w, r)
	default:
		refuse(w, http.StatusNotFound, "404 page not found")
	}
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request, b *box, m *machine.Machine, commands map[string]*command) {
	var in struct {
		Command string `json:"command"`
		Async   bool   `json:"runAsync"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || !in.Async {
		refuse(w, http.StatusBadRequest, "want a command that runs by itself")
		return
	}
	c := &command{c: s.command(m, b, in.Command), grown: make(chan struct{})}
	var err error
	if c.stdin, err = c.c.StdinPipe(); err == nil {
		var out, said io.ReadCloser
		if out, err = c.c.StdoutPipe(); err == nil {
			if said, err = c.c.StderrPipe(); err == nil {
				if err = c.c.Start(); err == nil {
					go c.watch(out, said)
				}
			}
		}
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	id := strings.ToLower(rand.Text())
	b.mu.Lock()
	commands[id] = c
	b.mu.Unlock()
	answer(w, http.StatusAccepted, map[string]string{"cmdId": id})
}

func (c *command) add(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	close(c.grown)
	c.grown = make(chan struct{})
}

// watch puts what is printed into the log, line by line, each with the mark of its stream.
func (c *command) watch(out, said io.Reader) {
	var pipes sync.WaitGroup
	for mark, from := range map[string]io.Reader{"\x01\x01\x01": out, "\x02\x02\x02": said} {
		pipes.Go(func() {
			lines := bufio.NewReader(from)
			for {
				text, err := lines.ReadBytes('\n')
				if len(text) > 0 {
					text = append(bytes.TrimSuffix(bytes.ReplaceAll(text, []byte{0}, nil), []byte("\n")), '\n')
					c.add(func() { c.log = append(append(c.log, mark...), text...) })
				}
				if err != nil {
					return
				}
			}
		})
	}
	pipes.Wait()
	_ = c.c.Wait()
	code := c.c.ProcessState.ExitCode()
	if status := c.c.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		code = 128 + int(status.Signal())
	}
	c.add(func() { c.code = &code })
}

// follow sends the log as it grows, in pieces that end in the middle of a mark.
func (c *command) follow(w http.ResponseWriter, r *http.Request) {
	cut := faults.CutAfter(r)
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ctx := ws.CloseRead(context.Background())
	for at := 0; ; {
		c.mu.Lock()
		text, over, grown := c.log[at:], c.code != nil, c.grown
		c.mu.Unlock()
		for len(text) > 0 {
			part := text[:min(len(text), 4001)]
			if cut > 0 && at+len(part) >= cut {
				_ = ws.Write(ctx, websocket.MessageBinary, part[:max(0, cut-at)])
				return
			}
			if ws.Write(ctx, websocket.MessageBinary, part) != nil {
				return
			}
			text, at = text[len(part):], at+len(part)
		}
		if over {
			_ = ws.Close(websocket.StatusNormalClosure, "")
			return
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}
