package daytona

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/providers/remote"
)

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	c := &remote.Call{Method: http.MethodPost}
	if err := a.Form(c, "files[0].file", "files[0].path", name); err != nil {
		return err
	}
	return remote.Send(ctx, &s.Base, box, a, c, "/files/bulk-upload")
}

func path(name string) url.Values { return url.Values{"path": {name}} }

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	return s.Download(ctx, box, &remote.Call{Query: path(name)}, "/files/download", begin)
}

// Exec executes a program in a session of the toolbox's. The toolbox passes on lines, and
// knows no end of what is read: what is no lines goes by files.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (int, error) {
	code, err := s.execute(ctx, box, e)
	return remote.Ended(ctx, code, remote.Unclear(err))
}

func (s *Service) execute(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (code int, err error) {
	session := "pccrun-" + strings.ToLower(rand.Text())
	files := "/tmp/." + session
	made, command := []string(nil), "exec"
	for _, word := range e.Command() {
		command += " " + shell.Quote(word)
	}
	if e.In == nil {
		made = []string{files + ".out", files + ".err"}
		command += " </dev/null >" + made[0] + " 2>" + made[1]
	}
	if err := s.Daemon(ctx, box, &remote.Call{What: "make a session", Method: http.MethodPost, In: map[string]string{"sessionId": session}, Once: true}, "/process/session"); err != nil {
		return 0, err
	}
	defer func() { // which ends what runs in it
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		_ = s.Daemon(end, box, &remote.Call{What: "end a session", Method: http.MethodDelete}, "/process/session/"+session)
		for _, name := range made {
			_ = s.Daemon(end, box, &remote.Call{What: "remove a file", Method: http.MethodDelete, Query: path(name)}, "/files")
		}
	}()
	var begun struct {
		ID string `json:"cmdId"`
	}
	in := map[string]any{"command": "(" + command + ")", "runAsync": true, "suppressInputEcho": true}
	if err := s.Daemon(ctx, box, &remote.Call{What: "execute", Method: http.MethodPost, In: in, Out: &begun, Once: true}, "/process/session/"+session+"/exec"); err != nil {
		return 0, err
	}
	if err := remote.CheckID(Name, "command", begun.ID); err != nil {
		return 0, err
	}
	at := "/process/session/" + session + "/command/" + begun.ID
	if e.In != nil {
		return line(ctx, s, box, e, at)
	}
	if code, err = exit(ctx, s, box, at, time.Second); err != nil {
		return code, err
	}
	for name, to := range map[string]io.Writer{".out": e.Out, ".err": e.Err} {
		text := &remote.Printed{Most: remote.MaxPrinted + 1} // of which who reads it makes an error
		if name == ".err" && code == 0 {
			continue
		}
		if err := s.GetFile(ctx, box, files+name, func() (io.Writer, error) { text.Reset(); return text, nil }); err != nil {
			return code, err
		}
		remote.Print(to, text.Bytes())
	}
	return code, nil
}

// exit waits until a command has ended, and returns its exit status. The API tells it by no other way that can be
// relied on: the toolbox does not always end a log.
func exit(ctx context.Context, s *Service, box *remote.Sandbox, at string, most time.Duration) (int, error) {
	var state struct {
		Code *int `json:"exitCode"` // absent while it runs
	}
	err := remote.Poll(ctx, 20*time.Millisecond, most, func() (bool, error) {
		err := s.Daemon(ctx, box, &remote.Call{What: "ask for the exit status", Out: &state}, at)
		return state.Code != nil, err
	})
	if err != nil {
		return 0, err
	}
	return *state.Code, nil
}

// marks are in a log, each before what is of standard output, or of standard error. One may come in two parts.
var marks = regexp.MustCompile("\x01\x01\x01|\x02\x02\x02")

// silence is for how long a log may say nothing when its command has ended, before nobody waits for its end: the toolbox
// looks for that after a second without a word.
const silence = 5 * time.Second

// line carries what a command reads and prints, to the end of the command.
func line(ctx context.Context, s *Service, box *remote.Sandbox, e *remote.Exec, at string) (code int, failed error) {
	life, stop := context.WithCancel(ctx)
	defer stop()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		code, failed = exit(life, s, box, at, 10*time.Second)
	}()
	if err := follow(life, s, box, e, at, exited); err != nil {
		return 0, &remote.CutError{Err: err}
	}
	select {
	case <-exited:
		return code, failed
	case <-time.After(4 * silence):
		return 0, errors.New("the log is at its end, and the command goes on")
	}
}

// errSilent is the end of a log that says nothing more.
var errSilent = errors.New("the command has ended, and its log has not")

// read reads a log's next message, for which it does not wait long once the command has ended.
func read(ctx context.Context, ws *websocket.Conn, exited <-chan struct{}) ([]byte, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-exited:
			defer time.AfterFunc(silence, func() { stop(errSilent) }).Stop()
			<-ctx.Done()
		case <-ctx.Done():
		}
	}()
	_, text, err := ws.Read(ctx)
	if err != nil && context.Cause(ctx) == errSilent {
		err = errSilent
	}
	return text, err
}

// follow reads a command's log to its end.
func follow(ctx context.Context, s *Service, box *remote.Sandbox, e *remote.Exec, at string, exited <-chan struct{}) error {
	ws, err := s.API.Socket(ctx, box.At(&remote.Call{What: "follow the log", Query: url.Values{"follow": {"true"}}}, at+"/logs"))
	if err != nil {
		return err
	}
	defer ws.CloseNow()
	go e.Feed(ctx, func(text []byte) error {
		return s.Daemon(ctx, box, &remote.Call{What: "send input", Method: http.MethodPost, In: map[string]string{"data": string(text)}, Once: true}, at+"/input")
	})
	to := e.Out
	var rest []byte
	for {
		text, err := read(ctx, ws, exited)
		if err == errSilent || websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			remote.Print(to, rest)
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: follow the log: the connection broke", Name)
		}
		rest = append(rest, text...)
		for at := marks.FindIndex(rest); at != nil; at = marks.FindIndex(rest) {
			remote.Print(to, rest[:at[0]])
			if to = e.Out; rest[at[0]] == 2 {
				to = e.Err
			}
			rest = rest[at[1]:]
		}
		whole := rest // but for what may be the begin of a mark
		if n := len(rest); n > 0 && (rest[n-1] == 1 || rest[n-1] == 2) {
			whole = bytes.TrimRight(rest, string(rest[n-1:]))
		}
		remote.Print(to, whole)
		rest = append([]byte{}, rest[len(whole):]...)
	}
}
