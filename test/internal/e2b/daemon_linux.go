package e2b

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/internal/machine"
)

// A process that the daemon of a sandbox started.
type process struct {
	command *exec.Cmd
	config  map[string]any
	tag     string
	there   bool // in a machine of its own

	mu     sync.Mutex
	cond   *sync.Cond
	events []map[string]any
	over   bool
	stdin  io.WriteCloser
	master *os.File      // of its terminal, nil if it has none
	quit   chan struct{} // output is read no more
	once   sync.Once
}

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

// place is where a path of a sandbox is on this machine: never outside of it.
func (s *Server) place(b *box, name string) (string, bool) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(b.Home, name)
	}
	name = filepath.Clean(name)
	if rest, is := strings.CutPrefix(name, machine.Home+"/"); is && s.credential != nil {
		name = filepath.Join(b.Home, rest)
	} else if strings.HasPrefix(name, "/tmp/.pccrun-") && s.credential == nil { // the sandbox has no /tmp of its own
		return name, true
	} else if strings.HasPrefix(name, "/tmp/") && !strings.HasPrefix(name, filepath.Dir(b.Home)+"/") {
		m, err := s.Boot(b)
		if err != nil {
			return "", false
		}
		return m.Path(name), true
	}
	return name, strings.HasPrefix(name, filepath.Dir(b.Home)+"/")
}

// says is how a sandbox calls a path of this machine.
func (s *Server) says(b *box, name string) string {
	if rest, is := strings.CutPrefix(name, b.Home); is && s.credential != nil {
		return machine.Home + rest
	}
	return name
}

func (s *Server) write(w http.ResponseWriter, r *http.Request, b *box) {
	name, inside := s.place(b, r.URL.Query().Get("path"))
	if !inside {
		refuse(w, http.StatusForbidden, "outside of the sandbox")
		return
	}
	body := io.Reader(r.Body)
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		parts, err := r.MultipartReader()
		if err == nil {
			body, err = parts.NextPart()
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	err := s.MakeDirs(filepath.Dir(name), s.credential)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	}
	if err == nil {
		_, err = io.Copy(f, body)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err == nil && s.credential != nil {
		err = os.Lchown(name, int(s.credential.Uid), int(s.credential.Gid))
	}
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, []map[string]string{{"name": filepath.Base(name), "type": "file", "path": s.says(b, name)}})
}

func (s *Server) read(w http.ResponseWriter, r *http.Request, b *box) {
	name, inside := s.place(b, r.URL.Query().Get("path"))
	f, err := os.Open(name)
	if !inside || err != nil {
		refuse(w, http.StatusNotFound, "path '"+name+"' does not exist")
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	if info, err := f.Stat(); err == nil {
		w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	}
	_, _ = io.Copy(w, f)
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
	p := &process{tag: in.Tag, quit: make(chan struct{}), config: map[string]any{"cmd": in.Process.Cmd, "args": in.Process.Args, "envs": in.Process.Envs}}
	p.cond = sync.NewCond(&p.mu)
	m, err := s.Boot(b)
	if err != nil {
		streamError(w, "internal", err.Error())
		return
	}
	dir := b.Home
	if in.Process.Cwd != "" {
		dir, _ = s.place(b, in.Process.Cwd)
	}
	c := exec.Command(in.Process.Cmd, in.Process.Args...)
	c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Credential: s.credential}
	if p.there = m != nil; p.there {
		uid, gid := s.credential.Uid, s.credential.Gid
		if name, _, _ := r.BasicAuth(); name == "root" {
			uid, gid = 0, 0
		}
		c = m.Command(uid, gid, s.says(b, dir), append([]string{in.Process.Cmd}, in.Process.Args...)...)
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.command = c
	c.Env = s.Env(s.says(b, b.Home))
	for name, value := range in.Process.Envs {
		c.Env = append(c.Env, name+"="+value)
	}
	c.Env = append(c.Env, "E2B_SANDBOX_ID="+b.ID+"-"+b.Runs.token)
	var out, said io.ReadCloser
	var slave *os.File
	if in.Pty != nil {
		p.master, slave, err = openTerminal(in.Pty)
		out, said = p.master, io.NopCloser(strings.NewReader(""))
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr.Setsid, c.SysProcAttr.Setctty = true, true
	} else {
		if out, err = c.StdoutPipe(); err == nil {
			said, err = c.StderrPipe()
		}
	}
	if err == nil && in.Pty == nil && (in.Stdin == nil || *in.Stdin) {
		p.stdin, err = c.StdinPipe()
	}
	if err == nil {
		err = c.Start()
	}
	if slave != nil {
		slave.Close()
	}
	if err != nil {
		streamError(w, "invalid_argument", "error starting process '"+in.Process.Cmd+"': "+err.Error())
		return
	}
	pid := uint32(c.Process.Pid)
	b.Mu.Lock()
	b.Runs.processes[pid] = p
	b.Mu.Unlock()
	p.say(map[string]any{"start": map[string]any{"pid": pid}})
	go p.follow(out, said, func() {
		b.Mu.Lock()
		delete(b.Runs.processes, pid)
		b.Mu.Unlock()
	})
	var limit <-chan time.Time
	if ms, err := strconv.Atoi(r.Header.Get("Connect-Timeout-Ms")); err == nil && ms > 0 {
		limit = time.After(time.Duration(ms) * time.Millisecond)
	}
	p.tell(w, r, 0, limit)
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

// openTerminal opens a pseudo-terminal, as pts(4) says.
func openTerminal(p *pty) (master, slave *os.File, err error) {
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
	return master, slave, err
}

// follow reads what a process prints, to its end.
func (p *process) follow(out, said io.Reader, gone func()) {
	var pipes sync.WaitGroup
	read := func(from io.Reader, name string) {
		for {
			b := make([]byte, 32<<10)
			n, err := from.Read(b)
			if n > 0 {
				p.say(map[string]any{"data": map[string]any{name: base64.StdEncoding.EncodeToString(b[:n])}})
			}
			if err != nil {
				return
			}
		}
	}
	name := "stdout"
	if p.master != nil {
		name = "pty"
		defer p.master.Close()
	}
	pipes.Go(func() { read(out, name) })
	pipes.Go(func() { read(said, "stderr") })
	done := make(chan struct{})
	go func() { pipes.Wait(); close(done) }()
	select {
	case <-done:
	case <-p.quit:
	}
	err := p.command.Wait()
	state := p.command.ProcessState
	end := map[string]any{"exited": state.Exited(), "status": state.String()}
	if code := state.ExitCode(); code != 0 {
		end["exitCode"] = code
	}
	if err != nil {
		end["error"] = err.Error()
	}
	p.mu.Lock()
	p.events = append(p.events, map[string]any{"end": end})
	p.over = true
	p.cond.Broadcast()
	p.mu.Unlock()
	gone()
}

func (p *process) say(event map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.events = append(p.events, event)
	}
	p.cond.Broadcast()
}

// tell sends what a process does from an event on. Who goes away does not end it.
func (p *process) tell(w http.ResponseWriter, r *http.Request, at int, limit <-chan time.Time) {
	gone := r.Context().Done()
	late := make(chan struct{})
	go func() {
		select {
		case <-gone:
		case <-limit:
			close(late)
			p.end(syscall.SIGKILL)
		}
		p.cond.Broadcast()
	}()
	isLate := func() bool {
		select {
		case <-late:
			return true
		default:
			return false
		}
	}
	for {
		p.mu.Lock()
		for at == len(p.events) && !p.over && r.Context().Err() == nil && !isLate() {
			p.cond.Wait()
		}
		events := p.events[at:]
		over := p.over
		p.mu.Unlock()
		if r.Context().Err() != nil {
			return
		}
		if isLate() {
			streamError(w, "deadline_exceeded", "context deadline exceeded")
			return
		}
		for _, e := range events {
			frame(w, 0, map[string]any{"event": e})
		}
		if at += len(events); over {
			frame(w, 2, map[string]any{})
			return
		}
	}
}

// end signals the process, as envd does: those two end the reading of its output.
func (p *process) end(sig syscall.Signal) {
	if p.there {
		machine.Signal(p.command, sig)
	} else {
		_ = p.command.Process.Signal(sig)
	}
	p.once.Do(func() { close(p.quit) })
}

// unary answers the calls that are no streams, and Connect.
func (s *Server) unary(w http.ResponseWriter, r *http.Request, b *box) {
	var in struct {
		Process struct {
			Pid uint32 `json:"pid"`
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
		b.Mu.Lock()
		for pid, p := range b.Runs.processes {
			list = append(list, map[string]any{"pid": pid, "config": p.config, "tag": p.tag})
		}
		b.Mu.Unlock()
		answer(w, http.StatusOK, map[string]any{"processes": list})
		return
	case "/filesystem.Filesystem/ListDir":
		dir, inside := s.place(b, in.Path)
		entries, err := os.ReadDir(dir)
		if !inside || err != nil {
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
	b.Mu.Lock()
	p := b.Runs.processes[in.Process.Pid]
	for _, other := range b.Runs.processes {
		if in.Process.Tag != "" && other.tag == in.Process.Tag {
			p = other
		}
	}
	b.Mu.Unlock()
	if stream {
		w.Header().Set("Content-Type", "application/connect+json")
		if p == nil {
			streamError(w, "not_found", "process not found")
			return
		}
		p.mu.Lock()
		at := len(p.events)
		p.mu.Unlock()
		frame(w, 0, map[string]any{"event": map[string]any{"start": map[string]any{"pid": p.command.Process.Pid}}})
		p.tell(w, r, at, nil)
		return
	}
	if p == nil {
		connectError(w, http.StatusNotFound, "not_found", "process not found")
		return
	}
	switch r.URL.Path {
	case "/process.Process/SendInput":
		p.mu.Lock()
		to := p.stdin
		p.mu.Unlock()
		if p.master != nil {
			_, _ = p.master.Write(in.Input.Pty)
			break
		}
		if to == nil {
			connectError(w, http.StatusBadRequest, "failed_precondition", "stdin not enabled or closed")
			return
		}
		if _, err := to.Write(in.Input.Stdin); err != nil {
			connectError(w, http.StatusInternalServerError, "internal", err.Error())
			return
		}
	case "/process.Process/CloseStdin":
		p.mu.Lock()
		if p.stdin != nil {
			p.stdin.Close()
			p.stdin = nil
		}
		p.mu.Unlock()
	case "/process.Process/Update":
		if p.master == nil || in.Pty == nil {
			connectError(w, http.StatusBadRequest, "invalid_argument", "tty not assigned to process")
			return
		}
		_ = in.Pty.set(p.master)
	case "/process.Process/SendSignal":
		switch in.Signal {
		case "SIGNAL_SIGTERM", float64(15):
			p.end(syscall.SIGTERM)
		case "SIGNAL_SIGKILL", float64(9):
			p.end(syscall.SIGKILL)
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
