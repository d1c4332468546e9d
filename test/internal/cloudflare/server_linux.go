// Package cloudflare is a small server that behaves as the bridge Worker of Cloudflare's sandboxes does, for tests. A client of
// it that others wrote passes its calls unchanged (the package's test). Where the test is root a sandbox is a machine of its own
// (package machine) whose user is root; else what it executes is executed on this machine, in a directory of its own.
// What is called /workspace is the sandbox's home.
//
// As the bridge, it starts a container for every name of which something is asked, gives a command no input, and passes on what
// is printed as text.
package cloudflare

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/pccrun/pccrun/test/internal/machine"
)

// Key is the key that the server takes.
const Key = "00112233445566778899aabbccddeeff"

// workspace is the directory in which the bridge has files.
const workspace = "/workspace"

// maxBody is the largest file that it takes.
const maxBody = 32 << 20

// Server is one.
type Server struct {
	*machine.Cloud[running]
	Open bool // it has no key, and takes every call

	starting sync.Mutex // over what starts and ends sandboxes
	mu       sync.Mutex
	made     []string // what was written into sandboxes as they were made
}

// running is what a sandbox has beside its name: what is executed in it.
type running struct{ runs map[*command]bool }

// box is a sandbox.
type box = machine.Sandbox[running]

// command is what is executed in one.
type command struct {
	c     *exec.Cmd
	there bool // in a machine of its own

	mu    sync.Mutex
	log   []event
	over  bool
	grown chan struct{} // closed when there is more of it
}

// event is one of those that tell of a command.
type event struct{ kind, data string }

// Start starts a server.
func Start() (*Server, error) {
	s := &Server{}
	daemon := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"message": "Hello from Bun server!"})
	})
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{
		Name: "cloudflare", Port: ":3000", Machines: os.Getuid() == 0, Stopped: "stopped", Route: s.route, Kill: kill,
		Daemon: func(*box) http.Handler { return daemon }, Anyone: daemon,
	})
	return s, err
}

// Environ are the variables by which pccrun finds the server.
func (s *Server) Environ() []string {
	return []string{"SANDBOX_API_KEY=" + Key, "CLOUDFLARE_SANDBOX_URL=" + s.URL}
}

// CreateTexts are what was written into sandboxes as they were made.
func (s *Server) CreateTexts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.made, "\n")
}

// Remove ends a sandbox, and waits until its files are gone: another of its name may be started at once.
func (s *Server) Remove(id string) {
	s.starting.Lock()
	defer s.starting.Unlock()
	s.Cloud.Remove(id)
	s.Wait()
}

// objectOf is a variable of all that is executed in a sandbox.
func objectOf(b *box) string { return "CLOUDFLARE_DURABLE_OBJECT_ID=" + b.Home }

// kill ends all that is executed in a sandbox, what is in sessions of its own too.
func kill(b *box) {
	if os.Getuid() != 0 {
		machine.EndBearing(objectOf(b))
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	for c := range b.Runs.runs {
		if c.there {
			machine.Signal(c.c, syscall.SIGKILL)
		} else {
			_ = syscall.Kill(-c.c.Process.Pid, syscall.SIGKILL)
		}
	}
}

func answer(w http.ResponseWriter, status int, v any) { machine.Answer(w, status, v) }

func refuse(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, map[string]string{"error": text, "code": code})
}

var idShape = regexp.MustCompile(`^[a-z2-7]{1,128}$`)

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	rest, is := strings.CutPrefix(r.URL.EscapedPath(), "/v1/sandbox/")
	id, call, _ := strings.Cut(rest, "/")
	switch path := r.Method + " " + r.URL.Path; {
	case path == "GET /health":
		answer(w, http.StatusOK, map[string]bool{"ok": true})
	case is && !idShape.MatchString(id):
		refuse(w, http.StatusBadRequest, "invalid_request", "Invalid sandbox ID format")
	case !s.Open && r.Header.Get("Authorization") != "Bearer "+Key:
		refuse(w, http.StatusUnauthorized, "unauthorized", "Unauthorized")
	case path == "GET /v1/pool/stats":
		n := len(s.Sandboxes(""))
		answer(w, http.StatusOK, map[string]any{"warm": 0, "assigned": n, "total": n, "config": map[string]any{"warmTarget": 0}, "maxInstances": nil})
	case path == "POST /v1/sandbox":
		answer(w, http.StatusOK, map[string]string{"id": "mfrggzdfmy2tqnrzgezdgnbv"})
	case is && r.Method == http.MethodDelete && call == "":
		s.Remove(id)
		w.WriteHeader(http.StatusNoContent)
	case is && call != "":
		b, err := s.container(id)
		if err != nil {
			refuse(w, http.StatusBadGateway, "pool_error", "pool error: "+err.Error())
			return
		}
		s.sandbox(w, r, b, call)
	default:
		http.NotFound(w, r)
	}
}

// container is that of a name, which is started where there is none.
func (s *Server) container(id string) (*box, error) {
	s.starting.Lock()
	defer s.starting.Unlock()
	if b := s.Sandbox(id); b != nil {
		return b, nil
	}
	b, err := s.Create(&http.Request{Body: io.NopCloser(strings.NewReader("{}"))}, &struct{}{}, func(int) string { return id })
	if err == nil {
		b.State, b.Runs = "running", running{map[*command]bool{}}
		s.Show(b)
	}
	return b, err
}

func (s *Server) sandbox(w http.ResponseWriter, r *http.Request, b *box, call string) {
	name, file := strings.CutPrefix(call, "file/")
	switch call := r.Method + " " + call; {
	case call == "GET running":
		answer(w, http.StatusOK, map[string]bool{"running": true})
	case call == "POST exec":
		s.exec(w, r, b)
	case file && (r.Method == http.MethodGet || r.Method == http.MethodPut):
		name = filepath.Clean("/" + decoded(name))
		if !below(name, workspace) && !below(name, s.home(b)) {
			refuse(w, http.StatusForbidden, "invalid_request", "path must resolve to a location within /workspace")
			return
		}
		path, err := s.place(b, name)
		if err != nil {
			refuse(w, http.StatusBadGateway, "pool_error", err.Error())
		} else if r.Method == http.MethodGet {
			read(w, name, path)
		} else {
			s.write(w, r, name, path)
		}
	default:
		http.NotFound(w, r)
	}
}

// reserved are escapes that the bridge does not decode.
var reserved = regexp.MustCompile(`(?i)%(3b|2f|3f|3a|40|26|3d|2b|24|2c|23|25)`)

// decoded is a path as the bridge understands one.
func decoded(path string) string {
	name, err := url.PathUnescape(reserved.ReplaceAllString(path, "%25$1"))
	if err != nil {
		return path
	}
	return name
}

func below(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// home is the home in a sandbox, as it is called there.
func (s *Server) home(b *box) string {
	if os.Getuid() == 0 {
		return machine.Home
	}
	return b.Home
}

// called are the places of a text that name the bridge's directory.
var called = regexp.MustCompile(`(^|[\s'"=])` + workspace + `($|[/\s'"])`)

// there is a text that names it by what it is called in the sandbox.
func (s *Server) there(b *box, text string) string {
	return called.ReplaceAllString(text, "${1}"+s.home(b)+"${2}")
}

// place is where a path of a sandbox is on this machine.
func (s *Server) place(b *box, name string) (string, error) {
	m, err := s.Boot(b)
	name = s.there(b, name)
	if rest, is := strings.CutPrefix(name, machine.Home); m != nil && is {
		return b.Home + rest, nil
	}
	return name, err
}

func read(w http.ResponseWriter, name, path string) {
	f, err := os.Open(path)
	if err != nil {
		refuse(w, http.StatusNotFound, "workspace_read_not_found", "File not found: "+name)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.Copy(w, f)
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, name, path string) {
	text, err := io.ReadAll(r.Body)
	if len(text) > maxBody {
		refuse(w, http.StatusRequestEntityTooLarge, "payload_too_large", "payload too large")
		return
	}
	if err == nil {
		err = os.WriteFile(path, text, 0o644)
	}
	if err == nil && s.User != nil {
		err = os.Chown(path, int(s.User.Uid), int(s.User.Gid))
	}
	if err != nil {
		refuse(w, http.StatusBadGateway, "workspace_archive_write_error", "write failed: "+err.Error())
		return
	}
	if strings.HasSuffix(name, "/.pccrun-made") {
		s.mu.Lock()
		s.made = append(s.made, string(text))
		s.mu.Unlock()
	}
	answer(w, http.StatusOK, map[string]bool{"ok": true})
}

// exec executes a program and tells of it to its end. Nobody's going away ends it.
func (s *Server) exec(w http.ResponseWriter, r *http.Request, b *box) {
	var body struct {
		Argv []string `json:"argv"`
		Dir  string   `json:"cwd"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Argv) == 0 {
		refuse(w, http.StatusBadRequest, "invalid_request", "argv must be a non-empty array")
		return
	}
	if dir := filepath.Clean(cmp.Or(body.Dir, workspace)); !below(dir, workspace) {
		refuse(w, http.StatusForbidden, "invalid_request", "cwd must resolve to a location within /workspace")
		return
	}
	for i, word := range body.Argv {
		body.Argv[i] = s.there(b, word)
	}
	c, err := s.start(b, body.Argv, s.there(b, filepath.Clean(cmp.Or(body.Dir, workspace))))
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(kind, data string) {
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
		w.(http.Flusher).Flush()
	}
	if err != nil {
		say("error", fmt.Sprintf(`{"error":%q,"code":"exec_transport_error"}`, err))
		return
	}
	for at := 0; ; {
		c.mu.Lock()
		log, over, grown := c.log[at:], c.over, c.grown
		c.mu.Unlock()
		for _, e := range log {
			say(e.kind, e.data)
		}
		if at += len(log); over {
			return
		}
		select {
		case <-grown:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) start(b *box, argv []string, dir string) (*command, error) {
	m, err := s.Boot(b)
	if err != nil {
		return nil, err
	}
	c := &command{c: exec.Command(argv[0], argv[1:]...), there: m != nil, grown: make(chan struct{})}
	if c.there {
		user := cmp.Or(s.User, &syscall.Credential{})
		c.c = m.Command(user.Uid, user.Gid, dir, argv...)
	} else {
		c.c.Dir = dir
	}
	c.c.Env = append(s.Env(s.home(b)), objectOf(b))
	c.c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, e1 := c.c.StdoutPipe()
	said, e2 := c.c.StderrPipe()
	if err := errors.Join(e1, e2); err != nil {
		return nil, err
	}
	if err := c.c.Start(); err != nil {
		c.add(true, event{"stderr", base64.StdEncoding.EncodeToString([]byte(err.Error() + "\n"))}, event{"exit", `{"exit_code":127}`})
		return c, nil
	}
	b.Mu.Lock()
	b.Runs.runs[c] = true
	b.Mu.Unlock()
	go s.watch(b, c, out, said)
	return c, nil
}

func (c *command) add(over bool, events ...event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log, c.over = append(c.log, events...), over
	close(c.grown)
	c.grown = make(chan struct{})
}

// watch takes what a program prints, to its end.
func (s *Server) watch(b *box, c *command, out, said io.Reader) {
	var pipes sync.WaitGroup
	for stream, from := range map[string]io.Reader{"stdout": out, "stderr": said} {
		pipes.Go(func() {
			for buf := make([]byte, 4001); ; {
				n, err := from.Read(buf)
				if n > 0 {
					c.add(false, event{stream, base64.StdEncoding.EncodeToString(buf[:n])})
				}
				if err != nil {
					return
				}
			}
		})
	}
	pipes.Wait()
	_ = c.c.Wait()
	b.Mu.Lock()
	delete(b.Runs.runs, c)
	b.Mu.Unlock()
	code := c.c.ProcessState.ExitCode()
	if status := c.c.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if s.Sandbox(b.ID) != b {
		c.add(true, event{"error", `{"error":"the container is not running","code":"exec_error"}`})
		return
	}
	c.add(true, event{"exit", fmt.Sprintf(`{"exit_code":%d}`, code)})
}
