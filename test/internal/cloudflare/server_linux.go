// Package cloudflare is a small server that behaves as the bridge Worker of Cloudflare's sandboxes does, for tests. A client of
// it that others wrote passes its calls unchanged (the package's test). Where the test is root a sandbox is a machine of its own
// (package machine) whose user is root; else what it executes is executed on this machine, in a directory of its own.
// What is called /workspace is the sandbox's home.
//
// As the bridge, it starts a container for every name of which something is asked, gives a command no input, and passes on what
// is printed as text.
package cloudflare

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

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
	*machine.Cloud[struct{}]
	Open bool // it has no key, and takes every call

	starting sync.Mutex // over what starts and ends sandboxes
	mu       sync.Mutex
	made     []string // what was written into sandboxes as they were made
}

// box is a sandbox.
type box = machine.Sandbox[struct{}]

// Start starts a server.
func Start() (*Server, error) {
	s := &Server{}
	daemon := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"message": "Hello from Bun server!"})
	})
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[struct{}]{
		Name: "cloudflare", Port: ":3000", Machines: os.Getuid() == 0, Stopped: "stopped", Route: s.route,
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
		b.State = "running"
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
		if !below(name, workspace) && !below(name, s.HomeThere(b)) {
			refuse(w, http.StatusForbidden, "invalid_request", "path must resolve to a location within /workspace")
			return
		}
		path, err := s.Place(b, "", s.there(b, name))
		if err != nil {
			refuse(w, http.StatusBadGateway, "pool_error", err.Error())
		} else if r.Method == http.MethodGet {
			if machine.SendFile(w, path) != nil {
				refuse(w, http.StatusNotFound, "workspace_read_not_found", "File not found: "+name)
			}
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

// called are the places of a text that name the bridge's directory.
var called = regexp.MustCompile(`(^|[\s'"=])` + workspace + `($|[/\s'"])`)

// there is a text that names it by what it is called in the sandbox.
func (s *Server) there(b *box, text string) string {
	return called.ReplaceAllString(text, "${1}"+s.HomeThere(b)+"${2}")
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, name, path string) {
	text, err := io.ReadAll(r.Body)
	if len(text) > maxBody {
		refuse(w, http.StatusRequestEntityTooLarge, "payload_too_large", "payload too large")
		return
	}
	if err == nil {
		err = s.WriteFile(path, bytes.NewReader(text), 0o644)
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
	c, err := s.Execute(b, machine.Program{Argv: body.Argv, Dir: s.there(b, filepath.Clean(cmp.Or(body.Dir, workspace))), Piece: 4001})
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(kind, data string) {
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
		w.(http.Flusher).Flush()
	}
	if err != nil {
		say("error", fmt.Sprintf(`{"error":%q,"code":"exec_transport_error"}`, err))
		return
	}
	switch err := c.Follow(r.Context(), 0, func(pieces []machine.Piece) error {
		for _, p := range pieces {
			say([]string{1: "stdout", 2: "stderr"}[p.Stream], base64.StdEncoding.EncodeToString(p.Text))
		}
		return nil
	}); {
	case err != nil:
	case s.Sandbox(b.ID) != b:
		say("error", `{"error":"the container is not running","code":"exec_error"}`)
	default:
		say("exit", fmt.Sprintf(`{"exit_code":%d}`, *c.End()))
	}
}
