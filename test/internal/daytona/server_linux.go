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
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
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

// sessions are those of a sandbox: whether each goes on. What one executes has its name, and one of its own.
type sessions map[string]bool

// box is a sandbox.
type box = machine.Sandbox[sessions]

// Start starts a server.
func Start() (*Server, error) {
	s := &Server{}
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[sessions]{
		Name: "daytona", Port: ":2280", Machines: os.Getuid() == 0, Stopped: "stopped", Route: s.route, Ended: removeLeft,
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
	for _, b := range s.Bearing(want) {
		items = append(items, s.told(b))
	}
	at, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	size, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	items, after := machine.Page(items, at, cmp.Or(size, 100))
	var next any
	if after > 0 {
		next = strconv.Itoa(after)
	}
	answer(w, http.StatusOK, map[string]any{"items": items, "nextCursor": next})
}

// removeLeft removes what sessions left: where there are no machines the /tmp of a sandbox is ours, and whoever made it may have
// been killed.
func removeLeft(b *box) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for id := range b.Runs {
		left, _ := filepath.Glob("/tmp/." + id + ".*")
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
	b.Runs = sessions{}
}

// place is where a path of a sandbox is on this machine, "" if nowhere.
func (s *Server) place(b *box, name string) string {
	name, err := s.Place(b, "", name)
	if err != nil {
		return ""
	}
	return name
}

func (s *Server) toolbox(w http.ResponseWriter, r *http.Request, b *box, path string) {
	parts := strings.Split(path, "/")
	switch {
	case path == "files/bulk-upload":
		s.upload(w, r, b)
	case path == "files/download":
		if name := s.place(b, r.URL.Query().Get("path")); machine.SendFile(w, name) != nil {
			refuse(w, http.StatusNotFound, "file not found: "+name)
		}
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
		var out []byte
		c, err := s.Execute(b, shell("", in.Command))
		if err == nil {
			err = c.Follow(r.Context(), 0, func(pieces []machine.Piece) error {
				for _, p := range pieces {
					out = append(out, p.Text...)
				}
				return nil
			})
		}
		if err != nil {
			refuse(w, http.StatusInternalServerError, err.Error())
			return
		}
		answer(w, http.StatusOK, map[string]any{"exitCode": *c.End(), "result": string(out)})
	case path == "process/session" && r.Method == http.MethodPost:
		var in struct {
			ID string `json:"sessionId"`
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		b.Mu.Lock()
		b.Runs[in.ID] = true
		b.Mu.Unlock()
		w.WriteHeader(http.StatusCreated)
	case len(parts) >= 3 && parts[0] == "process" && parts[1] == "session":
		s.session(w, r, b, parts[2], parts[3:])
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
			err = s.MakeDirs(filepath.Dir(name))
			continue
		}
		err = s.WriteFile(name, part, 0o644)
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

// shell is what executes a line of a shell's in a sandbox.
func shell(name, line string) machine.Program {
	line = "trap '' HUP INT QUIT TSTP TTIN TTOU\n" + line // what the toolbox executes may ignore signals: its shell starts it in the background
	return machine.Program{Name: name, Argv: []string{"/bin/sh", "-c", line}, Stdin: name != "", Lines: true}
}

func (s *Server) session(w http.ResponseWriter, r *http.Request, b *box, id string, rest []string) {
	b.Mu.Lock()
	goesOn := b.Runs[id]
	b.Mu.Unlock()
	var c *machine.Process
	if len(rest) > 1 {
		c = b.Process(id + "/" + rest[1])
	}
	switch {
	case !goesOn:
		refuse(w, http.StatusNotFound, "session not found")
	case len(rest) == 0 && r.Method == http.MethodDelete:
		for _, c := range b.Processes(false) {
			if strings.HasPrefix(c.ID, id+"/") {
				_ = c.In.Close()
				c.Signal(syscall.SIGKILL)
			}
		}
		b.Mu.Lock()
		b.Runs[id] = false // its files may be there still
		b.Mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case len(rest) == 1 && rest[0] == "exec":
		s.execute(w, r, b, id)
	case c == nil:
		refuse(w, http.StatusNotFound, "command not found")
	case len(rest) == 2:
		answer(w, http.StatusOK, struct {
			ID      string `json:"id"`
			Command string `json:"command"`
			Code    *int   `json:"exitCode,omitempty"`
		}{rest[1], "", c.End()})
	case rest[2] == "input":
		var in struct{ Data string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		if !strings.HasSuffix(in.Data, "\n") {
			in.Data += "\n"
		}
		if _, err := io.WriteString(c.In, in.Data); err != nil {
			refuse(w, http.StatusGone, "command has already completed")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case rest[2] == "logs":
		follow(w, r, c)
	default:
		refuse(w, http.StatusNotFound, "404 page not found")
	}
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request, b *box, session string) {
	var in struct {
		Command string `json:"command"`
		Async   bool   `json:"runAsync"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || !in.Async {
		refuse(w, http.StatusBadRequest, "want a command that runs by itself")
		return
	}
	id := strings.ToLower(rand.Text())
	if _, err := s.Execute(b, shell(session+"/"+id, in.Command)); err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusAccepted, map[string]string{"cmdId": id})
}

// errCut is the end of a log that a fault ends.
var errCut = errors.New("cut")

// follow sends what is printed, line by line, each with the mark of its stream, in parts that end in the middle of a mark.
func follow(w http.ResponseWriter, r *http.Request, c *machine.Process) {
	cut, at := faults.CutAfter(r), 0
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ctx := ws.CloseRead(context.Background())
	err = c.Follow(ctx, 0, func(pieces []machine.Piece) error {
		var log []byte
		for _, p := range pieces {
			line := append(bytes.TrimSuffix(bytes.ReplaceAll(p.Text, []byte{0}, nil), []byte("\n")), '\n')
			log = append(append(log, bytes.Repeat([]byte{byte(p.Stream)}, 3)...), line...)
		}
		for len(log) > 0 {
			part := log[:min(len(log), 4001)]
			if cut > 0 && at+len(part) >= cut {
				_ = ws.Write(ctx, websocket.MessageBinary, part[:max(0, cut-at)])
				return errCut
			}
			if err := ws.Write(ctx, websocket.MessageBinary, part); err != nil {
				return err
			}
			log, at = log[len(part):], at+len(part)
		}
		return nil
	})
	if err == nil && at == 0 { // as the toolbox, in which one of two who read the command's output may miss its end
		<-ctx.Done()
	} else if err == nil {
		_ = ws.Close(websocket.StatusNormalClosure, "")
	}
}
