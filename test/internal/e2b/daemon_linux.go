package e2b

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/internal/machine"
)

// daemon answers as envd.
func (s *Server) daemon(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("E2b-Sandbox-Id")
	b, up := s.Sandbox(id), false
	if b != nil {
		s.Set(func() { up = b.State == "running" })
	}
	name, _, _ := r.BasicAuth()
	switch {
	case !up:
		refuse(w, http.StatusBadGateway, "The sandbox was not found")
		return
	case r.URL.Path == "/health":
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Header.Get("X-Access-Token") != b.Runs.token:
		refuse(w, http.StatusUnauthorized, "unauthenticated")
		return
	case r.Header.Get("X-API-KEY") != "" && r.Header.Get("User-Agent") == "pccrun":
		refuse(w, http.StatusInternalServerError, "the key of the account was sent to a sandbox")
		return
	case name != "" && name != "user" && name != "root":
		refuse(w, http.StatusUnauthorized, "no such user "+name)
		return
	}
	switch {
	case r.URL.Path == "/files" && r.Method == http.MethodPost:
		s.write(w, r, b)
	case r.URL.Path == "/files" && r.Method == http.MethodGet:
		s.read(w, r, b)
	case strings.HasSuffix(r.URL.Path, "/Start"):
		s.start(w, r, b)
	default:
		s.unary(w, r, b)
	}
}

// says is how a sandbox calls a path of this machine.
func (s *Server) says(b *box, name string) string {
	if rest, is := strings.CutPrefix(name, b.Home); is {
		return s.HomeThere(b) + rest
	}
	return name
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, b *box) {
	name, err := s.Place(b, "", r.URL.Query().Get("path"))
	body := io.Reader(r.Body)
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		parts, e := r.MultipartReader()
		if e == nil {
			body, e = parts.NextPart()
		}
		if e != nil {
			refuse(w, http.StatusBadRequest, e.Error())
			return
		}
	}
	if err == nil {
		err = s.MakeDirs(filepath.Dir(name))
	}
	if err == nil {
		err = s.WriteFile(name, body, 0o644)
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, []map[string]string{{"name": filepath.Base(name), "type": "file", "path": s.says(b, name)}})
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, b *box) {
	name, err := s.Place(b, "", r.URL.Query().Get("path"))
	if err != nil || machine.SendFile(w, name) != nil {
		refuse(w, http.StatusNotFound, "path '"+name+"' does not exist")
	}
}

// connectError answers a unary call that failed.
func connectError(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, map[string]string{"code": code, "message": text})
}

// frame writes a message of a stream.
func frame(w http.ResponseWriter, flag byte, v any) {
	text, _ := json.Marshal(v)
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(text))), text...))
	w.(http.Flusher).Flush()
}

func streamError(w http.ResponseWriter, code, text string) {
	frame(w, 2, map[string]any{"error": map[string]string{"code": code, "message": text}})
}

func (s *Server) start(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Process struct {
			Cmd  string            `json:"cmd"`
			Args []string          `json:"args"`
			Envs map[string]string `json:"envs"`
			Cwd  string            `json:"cwd"`
		} `json:"process"`
		Stdin *bool  `json:"stdin"`
		Tag   string `json:"tag"`
		Pty   *pty   `json:"pty"`
	}
	head := make([]byte, 5)
	if _, err := io.ReadFull(r.Body, head); err != nil || r.Header.Get("Content-Type") != "application/connect+json" || r.Header.Get("Connect-Protocol-Version") != "1" {
		refuse(w, http.StatusUnsupportedMediaType, "no Connect stream")
		return
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err := io.ReadFull(r.Body, body)
	if err == nil {
		err = json.Unmarshal(body, &in)
	}
	w.Header().Set("Content-Type", "application/connect+json")
	if err != nil {
		streamError(w, "invalid_argument", err.Error())
		return
	}
	user, _, _ := r.BasicAuth()
	o := machine.Program{
		Tag: in.Tag, Argv: append([]string{in.Process.Cmd}, in.Process.Args...), Dir: in.Process.Cwd, More: in.Process.Envs, Root: user == "root", Stdin: in.Stdin == nil || *in.Stdin,
	}
	if in.Pty != nil {
		o.Terminal = in.Pty.open
	}
	p, err := s.Execute(b, o)
	if err != nil {
		streamError(w, "invalid_argument", "error starting process '"+in.Process.Cmd+"': "+err.Error())
		return
	}
	ctx := r.Context()
	if ms, err := strconv.Atoi(r.Header.Get("Connect-Timeout-Ms")); err == nil && ms > 0 {
		limited, stop := context.WithTimeoutCause(ctx, time.Duration(ms)*time.Millisecond, errLate)
		defer stop()
		ctx = limited
	}
	tell(ctx, w, p, 0)
}

// pty is the size of a terminal.
type pty struct {
	Size struct {
		Columns uint16 `json:"cols"`
		Rows    uint16 `json:"rows"`
	} `json:"size"`
}

func (p *pty) set(f *os.File) error {
	return unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: p.Size.Columns, Row: p.Size.Rows})
}

// open opens a pseudo-terminal, as pts(4) says, and has a program begin a session with it.
func (p *pty) open(c *exec.Cmd) (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = p.set(master)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return master, slave, err
}

// errLate is the end of who asks, by the time that he gave.
var errLate = errors.New("context deadline exceeded")

// tell sends what a process does from a piece on. Who goes away does not end it, but whose time is up does.
func tell(ctx context.Context, w http.ResponseWriter, p *machine.Process, at int) {
	pid, _ := strconv.Atoi(p.ID)
	frame(w, 0, map[string]any{"event": map[string]any{"start": map[string]any{"pid": pid}}})
	err := p.Follow(ctx, at, func(pieces []machine.Piece) error {
		for _, piece := range pieces {
			name := []string{1: "stdout", 2: "stderr"}[piece.Stream]
			if p.Master != nil {
				name = "pty"
			}
			frame(w, 0, map[string]any{"event": map[string]any{"data": map[string]any{name: base64.StdEncoding.EncodeToString(piece.Text)}}})
		}
		return nil
	})
	if err == errLate {
		end(p, syscall.SIGKILL)
		streamError(w, "deadline_exceeded", err.Error())
	}
	if err != nil {
		return
	}
	state := p.State()
	over := map[string]any{"exited": state.Exited(), "status": state.String()}
	if code := state.ExitCode(); code != 0 {
		over["exitCode"], over["error"] = code, state.String()
	}
	frame(w, 0, map[string]any{"event": map[string]any{"end": over}})
	frame(w, 2, map[string]any{})
}

// end signals the process, as envd does: those two end the reading of its output.
func end(p *machine.Process, sig syscall.Signal) {
	p.Signal(sig)
	p.Quit()
}

// unary answers the calls that are no streams, and Connect.
func (s *Server) unary(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Process struct {
			Pid int    `json:"pid"`
			Tag string `json:"tag"`
		} `json:"process"`
		Input struct {
			Stdin []byte `json:"stdin"`
			Pty   []byte `json:"pty"`
		} `json:"input"`
		Pty    *pty   `json:"pty"`
		Signal any    `json:"signal"`
		Path   string `json:"path"`
		Depth  int    `json:"depth"`
	}
	text, err := io.ReadAll(r.Body)
	stream := strings.HasSuffix(r.URL.Path, "/Connect")
	if stream && len(text) > 5 {
		text = text[5:]
	}
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		connectError(w, http.StatusBadRequest, "invalid_argument", err.Error())
		return
	}
	switch r.URL.Path {
	case "/process.Process/List":
		list := []map[string]any{}
		for _, p := range b.Processes(false) {
			pid, _ := strconv.Atoi(p.ID)
			list = append(list, map[string]any{"pid": pid, "config": map[string]any{"cmd": p.Program.Argv[0], "args": p.Program.Argv[1:], "envs": p.Program.More}, "tag": p.Program.Tag})
		}
		answer(w, http.StatusOK, map[string]any{"processes": list})
		return
	case "/filesystem.Filesystem/ListDir":
		dir, err := s.Place(b, "", in.Path)
		var entries []os.DirEntry
		if err == nil {
			entries, err = os.ReadDir(dir)
		}
		if err != nil {
			connectError(w, http.StatusNotFound, "not_found", "path not found")
			return
		}
		list := []map[string]any{}
		for _, e := range entries {
			kind := "FILE_TYPE_FILE"
			if e.IsDir() {
				kind = "FILE_TYPE_DIRECTORY"
			}
			list = append(list, map[string]any{"name": e.Name(), "type": kind, "path": s.says(b, filepath.Join(dir, e.Name()))})
		}
		answer(w, http.StatusOK, map[string]any{"entries": list})
		return
	}
	var p *machine.Process
	for _, other := range b.Processes(false) {
		if other.ID == strconv.Itoa(in.Process.Pid) || in.Process.Tag != "" && other.Program.Tag == in.Process.Tag {
			p = other
		}
	}
	if stream {
		w.Header().Set("Content-Type", "application/connect+json")
		if p == nil {
			streamError(w, "not_found", "process not found")
			return
		}
		tell(r.Context(), w, p, p.Pieces())
		return
	}
	if p == nil {
		connectError(w, http.StatusNotFound, "not_found", "process not found")
		return
	}
	switch r.URL.Path {
	case "/process.Process/SendInput":
		if p.Master != nil {
			_, _ = p.Master.Write(in.Input.Pty)
			break
		}
		err := os.ErrClosed
		if p.In != nil {
			_, err = p.In.Write(in.Input.Stdin)
		}
		if errors.Is(err, os.ErrClosed) {
			connectError(w, http.StatusBadRequest, "failed_precondition", "stdin not enabled or closed")
			return
		}
		if err != nil {
			connectError(w, http.StatusInternalServerError, "internal", err.Error())
			return
		}
	case "/process.Process/CloseStdin":
		if p.In != nil {
			_ = p.In.Close()
		}
	case "/process.Process/Update":
		if p.Master == nil || in.Pty == nil {
			connectError(w, http.StatusBadRequest, "invalid_argument", "tty not assigned to process")
			return
		}
		_ = in.Pty.set(p.Master)
	case "/process.Process/SendSignal":
		switch in.Signal {
		case "SIGNAL_SIGTERM", float64(15):
			end(p, syscall.SIGTERM)
		case "SIGNAL_SIGKILL", float64(9):
			end(p, syscall.SIGKILL)
		default:
			connectError(w, http.StatusBadRequest, "unimplemented", "invalid signal")
			return
		}
	default:
		connectError(w, http.StatusNotFound, "unimplemented", r.URL.Path)
		return
	}
	answer(w, http.StatusOK, map[string]any{})
}
