// Package sprites is a small server that behaves as the API of Fly's Sprites does, for tests. Sprites' own client passes its
// calls unchanged (the package's test). Where the test is root a sprite is a machine of its own (package machine) whose
// user is root; else what it executes is executed on this machine, in a directory of its own.
package sprites

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/pccrun/pccrun/test/internal/faults"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// Token is the token that the server takes.
const Token = "org/1234/00112233445566778899aabbccddeeff/secret"

// Server is one.
type Server struct {
	*machine.Cloud[running]
	Pages int // how many sprites a page of a list has at most; 0 for as many as the caller asks for

	dir     string // of what is no sprite's
	mu      sync.Mutex
	sockets []net.Listener
}

// running is what a sprite has beside its name.
type running struct {
	policy  json.RawMessage
	sockets map[*websocket.Conn]bool // to what is executed
}

// box is a sprite.
type box = machine.Sandbox[running]

// Start starts a server.
func Start() (*Server, error) {
	dir, err := os.MkdirTemp("", "pccrun-sprites-api-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{Name: "sprites", Machines: os.Getuid() == 0, Stopped: "cold", Route: s.route})
	if err == nil && os.Getuid() != 0 {
		err = s.manage(dir)
	}
	return s, err
}

// Stop ends all sprites and the server.
func (s *Server) Stop() error {
	err := s.Cloud.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.sockets {
		l.Close()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Environ are the variables by which pccrun finds the server.
func (s *Server) Environ() []string {
	return []string{"SPRITES_TOKEN=" + Token, "SPRITES_API_URL=" + s.URL}
}

// Socket is the path of the management socket in each sprite: it is elsewhere than in a real one, whose root nobody
// can make here.
func (s *Server) Socket() string {
	if os.Getuid() == 0 {
		return "/opt/api.sock"
	}
	return filepath.Join(s.dir, "api.sock")
}

// manage listens at a management socket in a directory, which answers as the runtime of a sprite.
func (s *Server) manage(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/api.sock", d.Fd())) // a path of any length
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	s.mu.Lock()
	s.sockets = append(s.sockets, l)
	s.mu.Unlock()
	go func() { _ = http.Serve(l, http.NotFoundHandler()) }()
	return os.Chmod(filepath.Join(dir, "api.sock"), 0o666)
}

// Policy is the network policy of a sprite, nil if none was set.
func (s *Server) Policy(name string) (policy json.RawMessage) {
	b := s.Sandbox(name)
	s.Set(func() { policy = b.Runs.policy })
	return policy
}

// Pause stops a sprite with its memory.
func (s *Server) Pause(name string) {
	s.Cloud.Pause(name)
	hangUp(s.Sandbox(name))
}

// Unplug breaks all connections, the WebSockets too.
func (s *Server) Unplug() {
	s.Cloud.Unplug()
	for _, name := range s.Sandboxes("") {
		hangUp(s.Sandbox(name))
	}
}

// hangUp breaks the connections to what is executed in a sprite.
func hangUp(b *box) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for ws := range b.Runs.sockets {
		_ = ws.CloseNow()
	}
}

func answer(w http.ResponseWriter, status int, v any) { machine.Answer(w, status, v) }

func refuse(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, map[string]any{"error": code, "message": text})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized, "unauthorized", "invalid token")
		return
	}
	rest, is := strings.CutPrefix(r.URL.Path, "/v1/sprites")
	name, verb, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	b := s.Sandbox(name)
	call := r.Method + " " + verb
	switch {
	case is && call == "POST " && name == "":
		s.create(w, r)
	case is && call == "GET " && name == "":
		s.list(w, r)
	case !is || b == nil:
		refuse(w, http.StatusNotFound, "not_found", "sprite not found")
	case call == "GET ":
		answer(w, http.StatusOK, s.told(b))
	case call == "DELETE ":
		s.Remove(name)
		w.WriteHeader(http.StatusNoContent)
	case call == "POST policy/network":
		text, _ := io.ReadAll(r.Body)
		s.Set(func() { b.Runs.policy = text })
		w.WriteHeader(http.StatusNoContent)
	case call == "GET policy/network":
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(s.Policy(name))
	case call == "GET exec" && r.Header.Get("Upgrade") != "":
		s.exec(w, r, b)
	case call == "GET exec":
		list := []map[string]any{}
		for _, p := range b.Processes(false) {
			list = append(list, map[string]any{"id": p.ID, "command": p.Program.Argv[0], "is_active": true, "tty": false})
		}
		answer(w, http.StatusOK, map[string]any{"sessions": list})
	case strings.HasPrefix(call, "POST exec/") && strings.HasSuffix(call, "/kill"):
		end(w, b, strings.TrimSuffix(strings.TrimPrefix(verb, "exec/"), "/kill"))
	case strings.Contains(call, " fs/"):
		s.files(w, r, b, call)
	default:
		refuse(w, http.StatusNotFound, "not_found", r.Method+" "+r.URL.Path)
	}
}

func (s *Server) told(b *box) (m map[string]any) {
	s.Set(func() {
		at := b.Started.UTC().Format(time.RFC3339)
		m = map[string]any{
			"id": "sprite-" + b.ID, "name": b.ID, "organization": "org", "status": b.State, "url": "https://" + b.ID + ".sprites.app", "labels": []string{},
			"url_settings": map[string]string{"auth": "sprite"}, "created_at": at, "updated_at": at, "primary_region": "fra",
		}
	})
	return m
}

var nameShape = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Name string `json:"name"`
	}
	b, err := s.Create(r, &body, func(int) string { return filepath.Base(body.Name) })
	switch {
	case err != nil || !nameShape.MatchString(body.Name):
		refuse(w, http.StatusBadRequest, "invalid_name", fmt.Sprint("name: ", body.Name, err))
		return
	case s.Sandbox(b.ID) != nil:
		refuse(w, http.StatusConflict, "already_exists", "a sprite of that name exists")
		return
	}
	b.State, b.Runs.sockets = "cold", map[*websocket.Conn]bool{}
	if os.Getuid() == 0 { // its /opt
		dir := filepath.Join(filepath.Dir(b.Home), "opt")
		if err = os.Mkdir(dir, 0o755); err == nil {
			err = s.manage(dir)
		}
		if err != nil {
			refuse(w, http.StatusInternalServerError, "internal", err.Error())
			return
		}
	}
	b.State = "running"
	s.Show(b)
	answer(w, http.StatusCreated, s.told(b))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	size, _ := strconv.Atoi(query.Get("max_results"))
	if size = cmp.Or(min(size, 50), 50); s.Pages > 0 {
		size = min(size, s.Pages)
	}
	boxes, next := s.Named(query.Get("prefix"), query.Get("continuation_token"), size)
	list := []map[string]any{}
	for _, b := range boxes {
		list = append(list, s.told(b))
	}
	told := map[string]any{"sprites": list, "has_more": next != "", "running": 0, "warm": 0, "cold": 0, "name": "org"}
	if next != "" {
		told["next_continuation_token"] = next
	}
	answer(w, http.StatusOK, told)
}

func (s *Server) files(w http.ResponseWriter, r *http.Request, b *box, call string) {
	query := r.URL.Query()
	name, err := s.Place(b, cmp.Or(query.Get("workingDir"), "/"), query.Get("path"))
	var info os.FileInfo
	if err == nil && call != "PUT fs/write" {
		info, err = os.Stat(name)
	}
	if err == nil {
		switch call {
		case "PUT fs/write":
			if err = s.write(r, name, query.Get("mode")); err == nil {
				answer(w, http.StatusOK, map[string]any{"path": query.Get("path")})
			}
		case "GET fs/read":
			err = machine.SendFile(w, name)
		case "GET fs/list":
			list := []map[string]any{}
			entries, _ := os.ReadDir(name)
			for _, e := range entries {
				list = append(list, map[string]any{"name": e.Name(), "isDir": e.IsDir(), "type": "file", "size": info.Size(), "mode": "0644", "modTime": info.ModTime()})
			}
			answer(w, http.StatusOK, map[string]any{"entries": list})
		case "DELETE fs/delete":
			if err = os.RemoveAll(name); err == nil {
				answer(w, http.StatusOK, map[string]any{})
			}
		default:
			refuse(w, http.StatusNotFound, "not_found", call)
		}
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		answer(w, http.StatusNotFound, map[string]string{"error": "no such file or directory", "code": "ENOENT", "path": query.Get("path")})
	case err != nil:
		answer(w, http.StatusInternalServerError, map[string]string{"error": err.Error(), "code": "EIO", "path": query.Get("path")})
	}
}

func (s *Server) write(r *http.Request, name, mode string) error {
	if r.URL.Query().Get("mkdirParents") == "true" {
		if err := s.MakeDirs(filepath.Dir(name)); err != nil {
			return err
		}
	}
	bits, err := strconv.ParseUint(mode, 8, 12)
	if err != nil {
		bits = 0o644
	}
	return s.WriteFile(name, r.Body, os.FileMode(bits))
}

// end ends what is executed, and says so as it comes.
func end(w http.ResponseWriter, b *box, id string) {
	p := b.Process(id)
	if p == nil || p.End() != nil {
		refuse(w, http.StatusGone, "gone", "the session has ended")
		return
	}
	p.Signal(syscall.SIGKILL)
	<-p.Over()
	w.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = io.WriteString(w, `{"type":"complete","exit_code":137}`+"\n")
}

// exec executes a program and carries what it reads and prints.
func (s *Server) exec(w http.ResponseWriter, r *http.Request, b *box) {
	query, ctx, cut := r.URL.Query(), r.Context(), faults.CutAfter(r)
	if len(query["cmd"]) == 0 {
		refuse(w, http.StatusBadRequest, "invalid", "no command")
		return
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(32 << 10)
	b.Mu.Lock()
	b.Runs.sockets[ws] = true
	b.Mu.Unlock()
	sent := 0
	send := func(stream byte, text []byte) {
		if cut > 0 && sent+len(text) >= cut {
			_ = ws.Write(ctx, websocket.MessageBinary, append([]byte{stream}, text[:max(0, cut-sent)]...))
			_ = ws.CloseNow()
		}
		sent += len(text)
		_ = ws.Write(ctx, websocket.MessageBinary, append([]byte{stream}, text...))
	}
	// Environment that is given takes the place of all.
	p, err := s.Execute(b, machine.Program{Argv: query["cmd"], Dir: query.Get("dir"), Env: query["env"], Stdin: query.Get("stdin") == "true"})
	if err != nil {
		send(2, []byte(err.Error()+"\n"))
		send(3, []byte{127})
		return
	}
	s.Set(func() { b.State = "running" })
	_ = ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"session_info","session_id":%q,"tty":false}`, p.ID))
	go listen(ws, p, query.Get("max_run_after_disconnect"))
	_ = p.Follow(context.Background(), 0, func(pieces []machine.Piece) error {
		for _, piece := range pieces {
			send(byte(piece.Stream), piece.Text)
		}
		return nil
	})
	b.Mu.Lock()
	delete(b.Runs.sockets, ws)
	b.Mu.Unlock()
	if len(b.Processes(false)) == 0 { // at once, where a real one waits for half a minute
		s.Set(func() { b.State = "cold" })
	}
	send(3, []byte{byte(*p.End())})
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

// listen takes what the caller says. A program whose caller is gone is ended after a time.
func listen(ws *websocket.Conn, p *machine.Process, outlives string) {
	for {
		kind, text, err := ws.Read(context.Background())
		var said struct{ Type, Signal string }
		switch {
		case err != nil:
			limit, e := time.ParseDuration(outlives)
			if e != nil {
				limit = 10 * time.Second
			}
			select {
			case <-p.Over():
			case <-time.After(limit):
				p.Signal(syscall.SIGKILL)
			}
			return
		case kind == websocket.MessageText && json.Unmarshal(text, &said) == nil && said.Type == "signal":
			p.Signal(map[string]syscall.Signal{"TERM": syscall.SIGTERM, "SIGTERM": syscall.SIGTERM, "INT": syscall.SIGINT}[said.Signal])
		case kind == websocket.MessageText || len(text) == 0 || p.In == nil:
		case text[0] == 0:
			_, _ = p.In.Write(text[1:])
		case text[0] == 4:
			_ = p.In.Close()
		}
	}
}
