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
	"os/exec"
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
	policy    json.RawMessage
	processes map[string]*process
}

// box is a sprite.
type box = machine.Sandbox[running]

// process is what is executed in one.
type process struct {
	c     *exec.Cmd
	there bool // in a machine of its own
	ws    *websocket.Conn
	over  chan struct{} // closed when it has ended, and is forgotten
}

func (p *process) kill(sig syscall.Signal) {
	if p.there {
		machine.Signal(p.c, sig)
	} else {
		_ = syscall.Kill(-p.c.Process.Pid, sig)
	}
}

// Start starts a server.
func Start() (*Server, error) {
	dir, err := os.MkdirTemp("", "pccrun-sprites-api-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{Name: "sprites", Machines: os.Getuid() == 0, Stopped: "cold", Route: s.route, Kill: kill})
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
	for _, p := range b.Runs.processes {
		_ = p.ws.CloseNow()
	}
}

// kill ends all that is executed in a sprite.
func kill(b *box) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for _, p := range b.Runs.processes {
		p.kill(syscall.SIGKILL)
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
		b.Mu.Lock()
		for id, p := range b.Runs.processes {
			list = append(list, map[string]any{"id": id, "command": p.c.Args[0], "is_active": true, "tty": false})
		}
		b.Mu.Unlock()
		answer(w, http.StatusOK, map[string]any{"sessions": list})
	case strings.HasPrefix(call, "POST exec/") && strings.HasSuffix(call, "/kill"):
		s.end(w, b, strings.TrimSuffix(strings.TrimPrefix(verb, "exec/"), "/kill"))
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
	b.State, b.Runs.processes = "cold", map[string]*process{}
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
	list, next := []map[string]any{}, ""
	size, _ := strconv.Atoi(query.Get("max_results"))
	if size = cmp.Or(min(size, 50), 50); s.Pages > 0 {
		size = min(size, s.Pages)
	}
	for _, name := range s.Sandboxes("") {
		b := s.Sandbox(name)
		switch {
		case b == nil || !strings.HasPrefix(name, query.Get("prefix")) || name <= query.Get("continuation_token"):
		case len(list) == size:
			next = list[size-1]["name"].(string)
		default:
			list = append(list, s.told(b))
		}
	}
	told := map[string]any{"sprites": list, "has_more": next != "", "running": 0, "warm": 0, "cold": 0, "name": "org"}
	if next != "" {
		told["next_continuation_token"] = next
	}
	answer(w, http.StatusOK, told)
}

// place is where a path of a sprite is on this machine.
func (s *Server) place(b *box, dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(cmp.Or(dir, "/"), name)
	}
	m, err := s.Boot(b)
	switch rest, is := strings.CutPrefix(name, machine.Home); {
	case err != nil:
		return "", err
	case m == nil:
		return name, nil
	case is:
		return b.Home + rest, nil
	}
	return m.Path(name), nil
}

func (s *Server) files(w http.ResponseWriter, r *http.Request, b *box, call string) {
	query := r.URL.Query()
	name, err := s.place(b, query.Get("workingDir"), query.Get("path"))
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
			w.Header().Set("Content-Type", "application/octet-stream")
			http.ServeFile(w, r, name)
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
		if err := s.MakeDirs(filepath.Dir(name), s.User); err != nil {
			return err
		}
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = io.Copy(f, r.Body); err == nil && s.User != nil {
		err = f.Chown(int(s.User.Uid), int(s.User.Gid))
	}
	if bits, e := strconv.ParseUint(mode, 8, 12); err == nil && e == nil {
		err = f.Chmod(os.FileMode(bits))
	}
	return err
}

// end ends what is executed, and says so as it comes.
func (s *Server) end(w http.ResponseWriter, b *box, id string) {
	b.Mu.Lock()
	p := b.Runs.processes[id]
	b.Mu.Unlock()
	if p == nil {
		refuse(w, http.StatusGone, "gone", "the session has ended")
		return
	}
	p.kill(syscall.SIGKILL)
	<-p.over
	w.Header().Set("Content-Type", "application/x-ndjson")
	_, _ = io.WriteString(w, `{"type":"complete","exit_code":137}`+"\n")
}

// exec executes a program and carries what it reads and prints.
func (s *Server) exec(w http.ResponseWriter, r *http.Request, b *box) {
	query := r.URL.Query()
	argv, cut := query["cmd"], faults.CutAfter(r)
	m, err := s.Boot(b)
	if err != nil || len(argv) == 0 {
		refuse(w, http.StatusBadRequest, "invalid", fmt.Sprint("no command, or no sprite: ", err))
		return
	}
	home := b.Home
	p := &process{c: exec.Command(argv[0], argv[1:]...), there: m != nil, over: make(chan struct{})}
	if p.there {
		home = machine.Home
		user := cmp.Or(s.User, &syscall.Credential{})
		p.c = m.Command(user.Uid, user.Gid, cmp.Or(query.Get("dir"), home), argv...)
	} else {
		p.c.Dir = cmp.Or(query.Get("dir"), home)
	}
	if p.c.Env = query["env"]; p.c.Env == nil { // which takes the place of all
		p.c.Env = s.Env(home)
	}
	p.c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var in io.WriteCloser
	if query.Get("stdin") == "true" {
		in, err = p.c.StdinPipe()
	}
	out, e1 := p.c.StdoutPipe()
	said, e2 := p.c.StderrPipe()
	if err = errors.Join(err, e1, e2); err != nil {
		refuse(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	if p.ws, err = websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}); err != nil {
		return
	}
	defer p.ws.CloseNow()
	p.ws.SetReadLimit(32 << 10)
	ctx := r.Context()
	var mu sync.Mutex
	sent := 0
	send := func(stream byte, text []byte) {
		mu.Lock()
		defer mu.Unlock()
		if cut > 0 && sent+len(text) >= cut {
			_ = p.ws.Write(ctx, websocket.MessageBinary, append([]byte{stream}, text[:max(0, cut-sent)]...))
			_ = p.ws.CloseNow()
		}
		sent += len(text)
		_ = p.ws.Write(ctx, websocket.MessageBinary, append([]byte{stream}, text...))
	}
	if err := p.c.Start(); err != nil {
		send(2, []byte(err.Error()+"\n"))
		send(3, []byte{127})
		return
	}
	id := strconv.Itoa(p.c.Process.Pid)
	s.Set(func() { b.State = "running" })
	b.Mu.Lock()
	b.Runs.processes[id] = p
	b.Mu.Unlock()
	_ = p.ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"session_info","session_id":%q,"tty":false}`, id))
	go p.listen(in, query.Get("max_run_after_disconnect"))
	var pipes sync.WaitGroup
	for stream, from := range map[byte]io.Reader{1: out, 2: said} {
		pipes.Go(func() {
			buf := make([]byte, 32<<10)
			for {
				n, err := from.Read(buf)
				if n > 0 {
					send(stream, buf[:n])
				}
				if err != nil {
					return
				}
			}
		})
	}
	pipes.Wait()
	_ = p.c.Wait()
	b.Mu.Lock()
	delete(b.Runs.processes, id)
	idle := len(b.Runs.processes) == 0
	b.Mu.Unlock()
	if idle { // at once, where a real one waits for half a minute
		s.Set(func() { b.State = "cold" })
	}
	close(p.over)
	code := p.c.ProcessState.ExitCode()
	if status := p.c.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		code = 128 + int(status.Signal())
	}
	send(3, []byte{byte(code)})
	_ = p.ws.Close(websocket.StatusNormalClosure, "")
}

// listen takes what the caller says. A program whose caller is gone is ended after a time.
func (p *process) listen(in io.WriteCloser, outlives string) {
	for {
		kind, text, err := p.ws.Read(context.Background())
		var said struct{ Type, Signal string }
		switch {
		case err != nil:
			limit, e := time.ParseDuration(outlives)
			if e != nil {
				limit = 10 * time.Second
			}
			select {
			case <-p.over:
			case <-time.After(limit):
				p.kill(syscall.SIGKILL)
			}
			return
		case kind == websocket.MessageText && json.Unmarshal(text, &said) == nil && said.Type == "signal":
			p.kill(map[string]syscall.Signal{"TERM": syscall.SIGTERM, "SIGTERM": syscall.SIGTERM, "INT": syscall.SIGINT}[said.Signal])
		case kind == websocket.MessageText || len(text) == 0 || in == nil:
		case text[0] == 0:
			_, _ = in.Write(text[1:])
		case text[0] == 4:
			_ = in.Close()
		}
	}
}
