package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/providers/remote"
)

// envdPort is where envd listens in each sandbox.
const envdPort = 49983

// The users that a sandbox has: the second may become the first without a password.
const (
	root = "root"
	user = "user"
)

// header is what each call to envd bears. The key of the account is no part of it.
func header(at *access, as string) http.Header {
	h := http.Header{
		"E2b-Sandbox-Id":   {at.id},
		"E2b-Sandbox-Port": {strconv.Itoa(envdPort)},
		"Authorization":    {"Basic " + base64.StdEncoding.EncodeToString([]byte(as+":"))},
	}
	if at.token != "" {
		h.Set("X-Access-Token", at.token)
	}
	if at.traffic != "" {
		h.Set("e2b-traffic-access-token", at.traffic)
	}
	return h
}

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	at, err := remote.AccessOf[*access](Name, box)
	if err != nil {
		return err
	}
	h := header(at, user)
	h.Set("Content-Type", "application/octet-stream")
	_, err = s.api.Do(ctx, &remote.Call{
		What: "upload", Method: http.MethodPost, URL: at.file(name), Header: h, Body: a.Open, Size: a.Size, Limit: a.Within(),
	})
	return err
}

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	at, err := remote.AccessOf[*access](Name, box)
	if err != nil {
		return err
	}
	h := header(at, user)
	h.Set("Accept-Encoding", "identity")
	return s.api.Copy(ctx, &remote.Call{What: "download", Method: http.MethodGet, URL: at.file(name), Header: h, Limit: 20 * time.Minute}, begin)
}

func (a *access) file(name string) string {
	return a.base + "/files?" + url.Values{"path": {name}, "username": {user}}.Encode()
}

// What is said to envd's process.Process, as its .proto files have it.
type (
	startRequest struct {
		Process process `json:"process"`
		Stdin   bool    `json:"stdin"`
		Pty     *pty    `json:"pty,omitempty"`
		Tag     string  `json:"tag,omitempty"`
	}
	process struct {
		Cmd  string            `json:"cmd"`
		Args []string          `json:"args"`
		Envs map[string]string `json:"envs"`
	}
	pty struct {
		Size size `json:"size"`
	}
	size struct {
		Columns int `json:"cols"`
		Rows    int `json:"rows"`
	}
	selected struct {
		Process selector `json:"process"`
		Input   *input   `json:"input,omitempty"`
		Pty     *pty     `json:"pty,omitempty"`
	}
	selector struct {
		Pid uint32 `json:"pid,omitempty"`
	}
	input struct {
		Stdin []byte `json:"stdin,omitempty"`
		Pty   []byte `json:"pty,omitempty"`
	}
	message struct {
		Event struct {
			Start *struct {
				Pid uint32 `json:"pid"`
			} `json:"start"`
			Data *struct {
				Stdout []byte `json:"stdout"`
				Stderr []byte `json:"stderr"`
				Pty    []byte `json:"pty"`
			} `json:"data"`
			End *struct {
				Code   int    `json:"exitCode"` // 0 is left out
				Exited bool   `json:"exited"`
				Status string `json:"status"`
				Error  string `json:"error"`
			} `json:"end"`
		} `json:"event"`
		Error *connectError `json:"error"` // at the end of a stream
	}
	connectError struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
)

func (e *connectError) Error() string { return e.Code + ": " + e.Message }

// ping is how often envd says that it is there, and silence how long it may not.
const (
	ping    = 50 * time.Second
	silence = 150 * time.Second
)

// maxMessage bounds one message of a stream: envd reads 32 KiB at a time.
const maxMessage = 8 << 20

// Exec executes a program and follows what it prints. A connection that is lost is not made
// anew: envd keeps nothing of what was printed in between.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (int, error) {
	at, err := remote.AccessOf[*access](Name, box)
	if err != nil {
		return 0, err
	}
	as := user
	if e.Root {
		as = root
	}
	start := startRequest{Process: process{Cmd: e.Argv[0], Args: e.Argv[1:], Envs: map[string]string{}}, Stdin: e.In != nil, Tag: e.Tag}
	for _, v := range e.Env {
		name, value, _ := strings.Cut(v, "=")
		start.Process.Envs[name] = value
	}
	if e.Terminal != nil {
		start.Stdin, start.Pty = false, sizeOf(e)
	}
	f := &following{service: s, at: at, as: as, exec: e}
	defer f.stop()
	code, ended, err := f.stream(ctx, start, !e.Again)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case ended:
		return code, nil
	case err != nil && (f.pid != 0 || lost(err)):
		return 0, &remote.CutError{Err: err}
	}
	return 0, err
}

// sizeOf is the size of the user's terminal now.
func sizeOf(e *remote.Exec) *pty {
	columns, rows := e.Terminal.Size()
	return &pty{size{columns, rows}}
}

// lost reports whether an error says that a connection ended before the program did.
func lost(err error) bool {
	var refused *remote.APIError
	var said *connectError
	return !errors.As(err, &refused) && (!errors.As(err, &said) || said.Code == "unavailable")
}

// following is a program that is followed.
type following struct {
	service *Service
	at      *access
	as      string
	exec    *remote.Exec
	pid     uint32
	cancel  context.CancelFunc
}

func (f *following) stop() {
	if f.cancel != nil {
		f.cancel() // a read of the user's input may still wait: nobody waits for that
	}
}

// stream makes a call and reads its messages to the end.
func (f *following) stream(ctx context.Context, in any, once bool) (code int, ended bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text, err := json.Marshal(in)
	if err != nil {
		return 0, false, err
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	frame = append(frame, text...)
	h := header(f.at, f.as)
	h.Set("Content-Type", "application/connect+json")
	h.Set("Connect-Protocol-Version", "1")
	h.Set("Keepalive-Ping-Interval", strconv.Itoa(int(ping/time.Second)))
	call := &remote.Call{What: "execute", Method: http.MethodPost, URL: f.at.base + "/process.Process/Start", Header: h, Raw: true, Once: once, Size: int64(len(frame)), Body: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(frame)), nil
	}}
	response, err := f.service.api.Open(ctx, call)
	if err != nil {
		return 0, false, err
	}
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); kind != "application/connect+json" {
		return 0, false, fmt.Errorf("%s: execute: the answer is %q and not a stream: is a proxy in between?", Name, kind)
	}
	quiet := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing came for %s", silence)) })
	defer quiet.Stop()
	for {
		var head [5]byte
		if _, err := io.ReadFull(response.Body, head[:]); err != nil {
			return 0, false, broken(ctx, err)
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > maxMessage || head[0]&^2 != 0 {
			return 0, false, fmt.Errorf("%s: execute: a message that is none of envd's", Name)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(response.Body, body); err != nil {
			return 0, false, broken(ctx, err)
		}
		quiet.Stop() // who takes what is printed may take his time
		var m message
		if err := json.Unmarshal(body, &m); err != nil {
			return 0, false, fmt.Errorf("%s: execute: a message that is none of envd's: %w", Name, err)
		}
		if head[0]&2 != 0 {
			if m.Error != nil {
				return 0, false, fmt.Errorf("%s: execute: %w", Name, m.Error)
			}
			return 0, false, broken(ctx, io.ErrUnexpectedEOF)
		}
		if code, ended, err := f.take(ctx, &m); ended || err != nil {
			return code, ended, err
		}
		quiet.Reset(silence)
	}
}

// broken says why a stream ended too soon.
func broken(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// take takes one message in.
func (f *following) take(ctx context.Context, m *message) (code int, ended bool, err error) {
	ev := &m.Event
	if ev.Start != nil && f.pid == 0 {
		f.pid = ev.Start.Pid
		if f.exec.Started != nil {
			f.exec.Started()
		}
		feed, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f.cancel = cancel
		if f.exec.In != nil {
			go f.input(feed)
		}
		if f.exec.Terminal != nil {
			go f.resize(feed)
		}
	}
	if d := ev.Data; d != nil {
		for _, part := range [...]struct {
			to   io.Writer
			text []byte
		}{{f.exec.Out, d.Stdout}, {f.exec.Out, d.Pty}, {f.exec.Err, d.Stderr}} {
			if part.to != nil && len(part.text) > 0 {
				// A reader that is gone is no reason to end the command: it finds out by itself.
				_, _ = part.to.Write(part.text)
			}
		}
	}
	if end := ev.End; end != nil {
		if !end.Exited {
			return 128 + number(end.Status), true, nil
		}
		return end.Code, true, nil
	}
	return 0, false, nil
}

// number reads the signal in what Go says of a process.
func number(status string) int {
	for name, n := range map[string]int{"hangup": 1, "interrupt": 2, "quit": 3, "aborted": 6, "killed": 9, "segmentation fault": 11, "broken pipe": 13, "terminated": 15} {
		if strings.HasPrefix(status, "signal: "+name) {
			return n
		}
	}
	return 9
}

// call makes a call about the program that is followed.
func (f *following) call(ctx context.Context, method string, in selected) error {
	h := header(f.at, f.as)
	h.Set("Content-Type", "application/json")
	in.Process = selector{f.pid}
	_, err := f.service.api.Do(ctx, &remote.Call{What: "send input", Method: http.MethodPost, URL: f.at.base + "/process.Process/" + method, Header: h, In: in, Once: in.Input != nil})
	return err
}

// input sends what the user types, to its end.
func (f *following) input(ctx context.Context) {
	buf := make([]byte, 64<<10)
	for ctx.Err() == nil {
		n, err := f.exec.In.Read(buf)
		if n > 0 {
			in := &input{Stdin: buf[:n]}
			if f.exec.Terminal != nil {
				in = &input{Pty: buf[:n]}
			}
			if e := f.call(ctx, "SendInput", selected{Input: in}); e != nil {
				if unsent(e) && ctx.Err() == nil && f.exec.Lost != nil {
					f.exec.Lost(e)
				}
				err = e // else the program is gone, or reads no more
			}
		}
		if err != nil {
			if f.exec.Terminal == nil {
				_ = f.call(ctx, "CloseStdin", selected{})
			}
			return
		}
	}
}

// unsent reports whether input did not arrive for another reason than that the program is
// gone, or reads no more, which envd calls internal.
func unsent(err error) bool {
	var refused *remote.APIError
	return !errors.As(err, &refused) || refused.Status/100 == 5 && refused.Code != "internal" && refused.Code != "unknown"
}

// resize passes the size of the user's terminal on.
func (f *following) resize(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.exec.Terminal.Resized:
			_ = f.call(ctx, "Update", selected{Pty: sizeOf(f.exec)})
		}
	}
}
