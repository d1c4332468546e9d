// Package vercel is a small server that behaves as the API of Vercel's sandboxes does, for tests. Vercel's own client passes
// its calls unchanged (the package's test). Where the test is root a sandbox is a machine of its own (package machine) with
// a root and a user; else what it executes is executed on this machine, in a directory of its own.
//
// As Vercel's, it gives a command no input, and passes on what is printed as text: bytes that are none are lost.
package vercel

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/test/internal/machine"
)

// The team and project of the server, and the token that it takes: it names both.
const (
	Team    = "team_1"
	Project = "prj_1"
)

// Token is a token as Vercel gives projects: its second part names them.
var Token = "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"owner_id":"`+Team+`","project_id":"`+Project+`"}`)) + ".00112233445566778899aabbccddeeff"

// Server is one.
type Server struct {
	*machine.Cloud[running]
	Pages int // how many sandboxes a page of a list has at most; 0 for as many as the caller asks for
}

// running is what a sandbox has beside its name.
type running struct {
	session int // which of its sessions it is
	timeout time.Duration
	policy  json.RawMessage
	begun   time.Time
	next    int // command
}

// box is a sandbox.
type box = machine.Sandbox[running]

// Start starts a server. What it executes for the user runs as that identity, this process's own if it is nil.
func Start(credential *syscall.Credential) (*Server, error) {
	s := &Server{}
	var err error
	s.Cloud, err = machine.StartCloud(machine.CloudOptions[running]{
		Name: "vercel", Machines: credential != nil, Owner: credential, Stopped: "stopped", Route: s.route,
	})
	return s, err
}

// Environ are the variables by which pccrun finds the server.
func (s *Server) Environ() []string {
	return []string{"VERCEL_OIDC_TOKEN=" + Token, "VERCEL_API_URL=" + s.URL}
}

// Pause stops a sandbox as its time is up: its files are kept, and what runs in it ends.
func (s *Server) Pause(id string) {
	s.Cloud.Pause(id)
	s.End(s.Sandbox(id))
}

// Ends is when a sandbox stops by itself.
func (s *Server) Ends(id string) (at time.Time) {
	b := s.Sandbox(id)
	s.Set(func() { at = b.Runs.begun.Add(b.Runs.timeout) })
	return at
}

// Policy is the network policy of a sandbox.
func (s *Server) Policy(id string) (policy json.RawMessage) {
	b := s.Sandbox(id)
	s.Set(func() { policy = b.Runs.policy })
	return policy
}

func answer(w http.ResponseWriter, status int, v any) { machine.Answer(w, status, v) }

func refuse(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, map[string]any{"error": map[string]string{"code": code, "message": text}})
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(s.Clock).UTC().Format(http.TimeFormat))
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/v2"), "/v3")
	rest, is := strings.CutPrefix(path, "/sandboxes")
	rest = strings.TrimPrefix(rest, "/")
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Token:
		refuse(w, http.StatusUnauthorized, "unauthorized", "not authorized")
	case r.URL.Query().Get("teamId") != Team:
		refuse(w, http.StatusForbidden, "forbidden", "no such team")
	case !is:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	case rest == "" && r.Method == http.MethodPost:
		s.create(w, r)
	case rest == "":
		s.list(w, r)
	case strings.HasPrefix(rest, "sessions/"):
		s.session(w, r, strings.Split(rest, "/")[1:])
	default:
		s.control(w, r, rest)
	}
}

func (s *Server) control(w http.ResponseWriter, r *http.Request, name string) {
	b := s.Sandbox(name)
	switch {
	case b == nil || r.URL.Query().Get("projectId") != Project:
		refuse(w, http.StatusNotFound, "not_found", "sandbox not found")
	case r.Method == http.MethodDelete:
		told := s.told(b)
		s.Remove(name)
		answer(w, http.StatusOK, map[string]any{"sandbox": told["sandbox"]})
	default:
		s.Set(func() {
			if b.State == "stopped" && r.URL.Query().Get("resume") == "true" {
				b.State, b.Runs.session, b.Runs.begun = "pending", b.Runs.session+1, time.Now()
			} else if b.State == "pending" {
				b.State = "running" // by the next time that anybody asks
			}
		})
		answer(w, http.StatusOK, s.told(b))
	}
}

func sessionOf(b *box) string { return "sbx_" + strconv.Itoa(b.Runs.session) + "-" + b.ID }

// told is a sandbox and its session as the API tells of them.
func (s *Server) told(b *box) (m map[string]any) {
	s.Set(func() {
		at := func(t time.Time) int64 { return t.Add(s.Clock).UnixMilli() }
		m = map[string]any{
			"sandbox": map[string]any{
				"name": b.ID, "persistent": true, "region": "iad1", "vcpus": 2, "memory": 4096, "timeout": b.Runs.timeout.Milliseconds(), "createdAt": b.Started.UnixMilli(),
				"updatedAt": b.Started.UnixMilli(), "currentSessionId": sessionOf(b), "status": b.State,
			},
			"session": map[string]any{
				"id": sessionOf(b), "memory": 4096, "vcpus": 2, "region": "iad1", "timeout": b.Runs.timeout.Milliseconds(), "status": b.State, "requestedAt": b.Started.UnixMilli(),
				"startedAt": at(b.Runs.begun), "createdAt": at(b.Runs.begun), "updatedAt": at(b.Runs.begun), "cwd": s.HomeThere(b),
			},
			"routes": []any{},
		}
	})
	return m
}

func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Project string          `json:"projectId"`
		Name    string          `json:"name"`
		Timeout int64           `json:"timeout"`
		Network json.RawMessage `json:"networkPolicy"`
	}
	b, err := s.Create(r, &body, func(n int) string { return filepath.Base(cmp.Or(body.Name, "sandbox-"+strconv.Itoa(n))) })
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	case body.Project != Project:
		refuse(w, http.StatusNotFound, "not_found", "project not found")
		return
	case s.Sandbox(b.ID) != nil:
		refuse(w, http.StatusConflict, "conflict", "a sandbox of that name exists")
		return
	}
	b.State = "pending"
	b.Runs = running{timeout: time.Duration(cmp.Or(body.Timeout, 300_000)) * time.Millisecond, policy: body.Network, begun: time.Now()}
	s.Show(b)
	answer(w, http.StatusOK, s.told(b))
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("project") != Project || query.Get("namePrefix") != "" && query.Get("sortBy") != "name" {
		refuse(w, http.StatusBadRequest, "bad_request", "a project, and names in their order where there is a prefix")
		return
	}
	size, _ := strconv.Atoi(query.Get("limit"))
	if size = cmp.Or(min(size, 50), 20); s.Pages > 0 {
		size = min(size, s.Pages)
	}
	boxes, last := s.Named(query.Get("namePrefix"), query.Get("cursor"), size)
	list, next := []any{}, any(nil)
	for _, b := range boxes {
		list = append(list, s.told(b)["sandbox"])
	}
	if last != "" {
		next = last
	}
	answer(w, http.StatusOK, map[string]any{"sandboxes": list, "pagination": map[string]any{"count": len(list), "next": next}})
}

// session answers what is asked of one.
func (s *Server) session(w http.ResponseWriter, r *http.Request, path []string) {
	_, name, _ := strings.Cut(path[0], "-")
	b := s.Sandbox(name)
	up := false
	if b != nil {
		s.Set(func() { up = b.State != "stopped" && sessionOf(b) == path[0] })
	}
	call := r.Method + " " + strings.Join(path[1:], "/")
	var body struct {
		Command  string            `json:"command"`
		Args     []string          `json:"args"`
		Cwd      string            `json:"cwd"`
		Env      map[string]string `json:"env"`
		Sudo     bool              `json:"sudo"`
		Wait     bool              `json:"wait"`
		Logs     bool              `json:"logs"`
		Path     string            `json:"path"`
		Duration int64             `json:"duration"`
		Signal   int               `json:"signal"`
	}
	if r.Method == http.MethodPost && call != "POST fs/write" {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	switch {
	case b == nil:
		refuse(w, http.StatusNotFound, "not_found", "session not found")
	case call == "GET ":
		answer(w, http.StatusOK, s.told(b))
	case !up:
		refuse(w, http.StatusGone, "sandbox_stopped", "the session has stopped")
	case call == "POST stop":
		s.Set(func() { b.State = "stopped" })
		s.End(b)
		answer(w, http.StatusOK, s.told(b))
	case call == "POST extend-timeout":
		s.Set(func() { b.Runs.timeout += time.Duration(body.Duration) * time.Millisecond })
		answer(w, http.StatusOK, s.told(b))
	case call == "POST fs/write":
		s.write(w, r, b)
	case call == "POST fs/read":
		name, err := s.Place(b, body.Cwd, body.Path)
		if err = errors.Join(err, machine.SendFile(w, name)); err != nil {
			refuse(w, http.StatusNotFound, "not_found", "no such file")
		}
	case call == "POST cmd":
		name := ""
		s.Set(func() { b.Runs.next++; name = "cmd_" + strconv.Itoa(b.Runs.next) })
		c, err := s.Execute(b, machine.Program{
			Name: name, Argv: append([]string{body.Command}, body.Args...), Dir: body.Cwd, More: body.Env, Root: body.Sudo, Piece: 4001,
		})
		switch {
		case err != nil:
			refuse(w, http.StatusInternalServerError, "internal", err.Error())
		case body.Wait:
			follow(w, r, b, c, body.Logs)
		default:
			answer(w, http.StatusOK, ran(b, c))
		}
	case len(path) > 2 && path[1] == "cmd":
		c := b.Process(path[2])
		switch {
		case c == nil:
			refuse(w, http.StatusNotFound, "not_found", "command not found")
		case strings.HasSuffix(call, "/kill"):
			c.Signal(syscall.Signal(body.Signal))
			answer(w, http.StatusOK, ran(b, c))
		case strings.HasSuffix(call, "/logs"):
			follow(w, r, b, c, true)
		default:
			if r.URL.Query().Get("wait") == "true" {
				<-c.Over()
			}
			answer(w, http.StatusOK, ran(b, c))
		}
	default:
		refuse(w, http.StatusNotFound, "not_found", call)
	}
}

// write extracts a compressed tar, as the user.
func (s *Server) write(w http.ResponseWriter, r *http.Request, b *box) {
	small, err := gzip.NewReader(r.Body)
	if err != nil || r.Header.Get("Content-Type") != "application/gzip" || r.ContentLength < 0 {
		refuse(w, http.StatusBadRequest, "bad_request", fmt.Sprint("no compressed tar of a known size: ", err))
		return
	}
	for archive := tar.NewReader(small); err == nil; {
		var head *tar.Header
		if head, err = archive.Next(); err != nil {
			break
		}
		var name string
		if name, err = s.Place(b, r.Header.Get("X-Cwd"), head.Name); err == nil {
			err = s.MakeDirs(filepath.Dir(name))
		}
		if err == nil {
			err = s.WriteFile(name, archive, os.FileMode(head.Mode)&0o777)
		}
	}
	if err != io.EOF {
		refuse(w, http.StatusInternalServerError, "internal", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]any{})
}

// ran is a command as the API tells of it.
func ran(b *box, c *machine.Process) map[string]any {
	return map[string]any{"command": map[string]any{
		"id": c.ID, "name": c.Program.Argv[0], "args": c.Program.Argv[1:], "cwd": "/", "sessionId": sessionOf(b), "exitCode": c.End(), "startedAt": time.Now().UnixMilli(),
	}}
}

// follow tells of a program to its end: a line each.
func follow(w http.ResponseWriter, r *http.Request, b *box, c *machine.Process, logs bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := json.NewEncoder(w)
	say := func(v any) {
		_ = lines.Encode(v)
		w.(http.Flusher).Flush()
	}
	asked := strings.HasSuffix(r.URL.Path, "/cmd")
	if asked {
		first := ran(b, c)
		first["command"].(map[string]any)["exitCode"] = nil
		say(first)
	}
	err := c.Follow(r.Context(), 0, func(pieces []machine.Piece) error {
		for _, p := range pieces {
			if logs {
				say(map[string]string{"stream": []string{1: "stdout", 2: "stderr"}[p.Stream], "data": string(p.Text)})
			}
		}
		return nil
	})
	if err == nil && asked {
		say(ran(b, c))
	}
}
