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
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
	*machine.Cloud[sessions]
	made sync.Map // by the name of a sandbox: how it was made
}

// making is how a sandbox was made.
type making struct {
	Snapshot string            `json:"snapshot"`
	Labels   map[string]string `json:"labels"`
	Target   string            `json:"target"`
	CPU      int               `json:"cpu"`
	Memory   int               `json:"memory"`
	Build    *struct {
		Dockerfile string `json:"dockerfileContent"`
	} `json:"buildInfo"`
}

// sessions are those of a sandbox, each with what it executes.
type sessions map[string]map[string]*command

// box is a sandbox.
type box = machine.Sandbox[sessions]

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
	s := &Server{}
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[sessions]{
		Name: "daytona", Port: ":2280", Machines: os.Getuid() == 0, Stopped: "stopped", Route: s.route, Kill: kill,
		Anyone: http.NotFoundHandler(), Daemon: func(*box) http.Handler { return http.NotFoundHandler() },
	})
	return s, err
}

// Environ are the variables by which Daytona's own client, and pccrun, find the server.
func (s *Server) Environ() []string {
	return []string{"DAYTONA_API_KEY=" + Key, "DAYTONA_API_URL=" + s.URL + "/api"}
}

func answer(w http.ResponseWriter, status int, v any) { machine.Answer(w, status, v) }

func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]any{"statusCode": status, "message": text, "error": http.StatusText(status)})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if rest, is := strings.CutPrefix(r.URL.Path, "/preview/"); is { // with a token of its own
		id, rest, _ := strings.Cut(rest, "/")
		port, path, _ := strings.Cut(rest, "/")
		b := s.Sandbox(id)
		if b == nil || r.Header.Get("X-Daytona-Preview-Token") != "preview-"+id {
			refuse(w, http.StatusUnauthorized, "preview token")
			return
		}
		r.URL.Path = "/" + path
		s.Preview(w, r, b, port)
		return
	}
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
	b := s.Sandbox(id)
	switch {
	case kind == "api" && first == "sandbox" && id == "" && r.Method == http.MethodPost:
		s.create(w, r)
	case kind == "api" && first == "sandbox" && id == "":
		s.list(w, r)
	case kind == "api" && first != "sandbox":
		answer(w, http.StatusOK, map[string]any{})
	case b == nil:
		refuse(w, http.StatusNotFound, "Sandbox with ID or name "+id+" not found")
	case kind == "toolbox" && b.State != "started":
		refuse(w, http.StatusBadRequest, "Sandbox is not running")
	case kind == "toolbox":
		s.toolbox(w, r, b, verb)
	default:
		s.control(w, r, b, verb)
	}
}

func (s *Server) control(w http.ResponseWriter, r *http.Request, b *box, verb string) {
	set := func(state string) {
		s.Set(func() { b.State = state })
		answer(w, http.StatusOK, s.told(b))
	}
	switch {
	case verb == "" && r.Method == http.MethodDelete:
		s.Remove(b.ID)
		answer(w, http.StatusOK, s.told(b))
	case verb == "" && b.State == "starting":
		set("started") // by the next time that anybody asks
	case verb == "", verb == "last-activity" && r.Method == http.MethodPost:
		answer(w, http.StatusOK, s.told(b))
	case (strings.HasPrefix(verb, "autostop/") || strings.HasPrefix(verb, "autodelete/")) && r.Method == http.MethodPost:
		answer(w, http.StatusOK, s.told(b)) // nobody waits here until a timer of minutes ends
	case verb == "resize" && r.Method == http.MethodPost:
		made, _ := s.made.Load(b.ID)
		how := made.(making)
		if json.NewDecoder(r.Body).Decode(&how) != nil || how.CPU < 1 || how.Memory < 1 {
			refuse(w, http.StatusBadRequest, "resize")
			return
		}
		s.made.Store(b.ID, how)
		set("started")
	case verb == "start" && r.Method == http.MethodPost:
		set("starting")
	case verb == "stop" && r.Method == http.MethodPost && b.State == "stopped":
		refuse(w, http.StatusBadRequest, "Sandbox is not started")
	case verb == "stop" && r.Method == http.MethodPost:
		set("stopped")
		s.End(b)
	case strings.HasPrefix(verb, "ports/") && strings.HasSuffix(verb, "/preview-url"):
		port := strings.Split(verb, "/")[1]
		answer(w, http.StatusOK, map[string]string{"url": s.URL + "/preview/" + b.ID + "/" + port, "token": "preview-" + b.ID})
	case verb == "toolbox-proxy-url":
		answer(w, http.StatusOK, map[string]string{"url": s.URL + "/toolbox"})
	default:
		refuse(w, http.StatusNotFound, "Cannot "+r.Method+" "+r.URL.Path)
	}
}

func (s *Server) told(b *box) (m map[string]any) {
	made, _ := s.made.Load(b.ID)
	how := made.(making)
	s.Set(func() {
		m = map[string]any{
			"id": b.ID, "name": b.ID, "organizationId": "o", "state": b.State, "labels": b.Labels, "target": how.Target, "cpu": how.CPU, "memory": how.Memory, "disk": 3, "gpu": 0,
			"env": map[string]string{}, "user": "root", "public": false, "networkBlockAll": false, "toolboxProxyUrl": s.URL + "/toolbox",
			"createdAt": b.Started.UTC().Format(time.RFC3339),
		}
	})
	return m
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var body making
	b, err := s.Create(r, &body, func(n int) string { return fmt.Sprintf("%08d-sandbox", n) })
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return
	case body.Snapshot == "absent":
		refuse(w, http.StatusBadRequest, "Snapshot absent not found")
		return
	}
	if body.Build == nil && body.CPU+body.Memory > 0 {
		refuse(w, http.StatusBadRequest, "Cannot specify Sandbox resources when using a snapshot")
		return
	}
	body.CPU, body.Memory, body.Target = max(1, body.CPU), max(1, body.Memory), cmp.Or(body.Target, "us")
	s.made.Store(b.ID, body)
	b.State, b.Labels, b.Runs = "starting", body.Labels, sessions{}
	s.Show(b)
	answer(w, http.StatusOK, s.told(b))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	want := map[string]string{}
	if text := r.URL.Query().Get("labels"); text != "" && json.Unmarshal([]byte(text), &want) != nil {
		refuse(w, http.StatusBadRequest, "labels")
		return
	}
	items := []map[string]any{}
	for _, b := range s.Bearing(func(labels map[string]string) bool {
		for key, value := range want {
			if labels[key] != value {
				return false
			}
		}
		return true
	}) {
		items = append(items, s.told(b))
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

// kill ends all that the sessions of a sandbox execute.
func kill(b *box) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for id, commands := range b.Runs {
		for _, c := range commands {
			_ = syscall.Kill(-c.c.Process.Pid, syscall.SIGKILL)
		}
		// Where there are no machines its /tmp is ours, and whoever made them may have been killed.
		left, _ := filepath.Glob("/tmp/." + id + ".*")
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
	b.Runs = sessions{}
}

// place is where a path of a sandbox is on this machine.
func (s *Server) place(b *box, name string) string {
	switch {
	case !filepath.IsAbs(name):
		return filepath.Join(b.Home, name)
	case os.Getuid() != 0:
		return name
	case strings.HasPrefix(name, machine.Home+"/"):
		return filepath.Join(b.Home, strings.TrimPrefix(name, machine.Home))
	}
	m, err := s.Boot(b)
	if err != nil {
		return ""
	}
	return m.Path(name)
}

func (s *Server) toolbox(w http.ResponseWriter, r *http.Request, b *box, path string) {
	m, err := s.Boot(b)
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
		b.Mu.Lock()
		b.Runs[in.ID] = map[string]*command{}
		b.Mu.Unlock()
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
			err = s.MakeDirs(filepath.Dir(name), s.User)
			continue
		}
		var f *os.File
		if f, err = os.Create(name); err == nil {
			_, err = io.Copy(f, part)
			if s.User != nil {
				_ = f.Chown(int(s.User.Uid), int(s.User.Gid))
			}
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
	line = "trap '' HUP INT QUIT TSTP TTIN TTOU\n" + line // what the toolbox executes may ignore signals: its shell starts it in the background
	c := exec.Command("/bin/sh", "-c", line)
	home := b.Home
	if m != nil {
		home = machine.Home
		user := cmp.Or(s.User, &syscall.Credential{})
		c = m.Command(user.Uid, user.Gid, home, "/bin/sh", "-c", line)
	} else {
		c.Dir = home
	}
	c.Env = s.Env(home)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (s *Server) session(w http.ResponseWriter, r *http.Request, b *box, m *machine.Machine, id string, rest []string) {
	b.Mu.Lock()
	commands := b.Runs[id]
	var c *command
	if len(rest) > 1 {
		c = commands[rest[1]]
	}
	b.Mu.Unlock()
	switch {
	case commands == nil:
		refuse(w, http.StatusNotFound, "session not found")
	case len(rest) == 0 && r.Method == http.MethodDelete:
		b.Mu.Lock()
		for _, c := range commands {
			_ = c.stdin.Close()
			if m != nil {
				machine.Signal(c.c, syscall.SIGKILL)
			} else {
				_ = syscall.Kill(-c.c.Process.Pid, syscall.SIGKILL)
			}
		}
		b.Runs[id] = nil // its files may be there still
		b.Mu.Unlock()
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
	b.Mu.Lock()
	commands[id] = c
	b.Mu.Unlock()
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
		if over && at == 0 { // as the toolbox, in which one of two who read the command's output may miss its end
			<-ctx.Done()
			return
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
