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
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/pccrun/pccrun/providers/remote"
)

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	c := &remote.Call{What: "upload", Method: http.MethodPost, Limit: a.Within()}
	if err := a.Form(c, "files[0].file", "files[0].path", name); err != nil {
		return err
	}
	return s.Daemon(ctx, box, c, "/files/bulk-upload")
}

func path(name string) string { return url.Values{"path": {name}}.Encode() }

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	return s.Download(ctx, box, &remote.Call{}, "/files/download?"+path(name), begin)
}

// quoted is an argument list as a shell takes it.
func quoted(argv []string) string {
	list := make([]string, len(argv))
	for i, arg := range argv {
		list[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(list, " ")
}

// Exec executes a program in a session of the toolbox's. The toolbox passes on lines, and
// knows no end of what is read: what is no lines goes by files.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (code int, err error) {
	session := "pccrun-" + strings.ToLower(rand.Text())
	files := "/tmp/." + session
	argv := e.Argv
	if e.Root {
		argv = remote.AsRoot(argv)
	}
	made, command := []string(nil), "(exec "+quoted(argv)+")"
	if e.In == nil {
		made = []string{files + ".out", files + ".err"}
		command = "(exec " + quoted(argv) + " </dev/null >" + made[0] + " 2>" + made[1] + ")"
	}
	if err := s.Daemon(ctx, box, &remote.Call{What: "make a session", Method: http.MethodPost, In: map[string]string{"sessionId": session}, Once: true}, "/process/session"); err != nil {
		return 0, cut(err)
	}
	defer func() { // which ends what runs in it
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		_ = s.Daemon(end, box, &remote.Call{What: "end a session", Method: http.MethodDelete}, "/process/session/"+session)
		for _, name := range made {
			_ = s.Daemon(end, box, &remote.Call{What: "remove a file", Method: http.MethodDelete}, "/files?"+path(name))
		}
	}()
	var begun struct {
		ID string `json:"cmdId"`
	}
	in := map[string]any{"command": command, "runAsync": true, "suppressInputEcho": true}
	if err := s.Daemon(ctx, box, &remote.Call{What: "execute", Method: http.MethodPost, In: in, Out: &begun, Once: true}, "/process/session/"+session+"/exec"); err != nil {
		return 0, cut(err)
	}
	if err := remote.CheckID(Name, "command", begun.ID); err != nil {
		return 0, err
	}
	at := "/process/session/" + session + "/command/" + begun.ID
	if e.In != nil {
		return s.line(ctx, box, e, at)
	}
	if code, err = s.exit(ctx, box, at, time.Second); err != nil {
		return code, err
	}
	for name, to := range map[string]io.Writer{".out": e.Out, ".err": e.Err} {
		var text printed
		if name == ".err" && code == 0 {
			continue
		}
		if err := s.GetFile(ctx, box, files+name, func() (io.Writer, error) { text.Reset(); return &text, nil }); err != nil {
			return code, cut(err)
		}
		remote.Print(to, text.Bytes())
	}
	return code, nil
}

// printed is what a program printed into a file, bounded: the place may be hostile.
type printed struct{ bytes.Buffer }

func (p *printed) Write(b []byte) (int, error) {
	if p.Len()+len(b) > remote.MaxPrinted {
		return 0, errors.New("the output of the sandbox is too long")
	}
	return p.Buffer.Write(b)
}

// cut marks an error that may have come when the work was done.
func cut(err error) error {
	var refused *remote.APIError
	if errors.As(err, &refused) && refused.Status/100 != 5 {
		return err
	}
	return &remote.CutError{Err: err}
}

// exit waits until a command has ended, and returns its exit status. The API tells it by no other way that can be
// relied on: the toolbox does not always end a log.
func (s *Service) exit(ctx context.Context, box *remote.Sandbox, at string, most time.Duration) (int, error) {
	var state struct {
		Code *int `json:"exitCode"` // absent while it runs
	}
	err := remote.Poll(ctx, 20*time.Millisecond, most, func() (bool, error) {
		if err := s.Daemon(ctx, box, &remote.Call{What: "ask for the exit status", Out: &state}, at); err != nil {
			return false, cut(err)
		}
		return state.Code != nil, nil
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
func (s *Service) line(ctx context.Context, box *remote.Sandbox, e *remote.Exec, at string) (int, error) {
	life, stop := context.WithCancel(ctx)
	defer stop()
	type exit struct {
		code int
		err  error
	}
	exited := make(chan exit, 1)
	go func() {
		code, err := s.exit(life, box, at, 10*time.Second)
		exited <- exit{code, err}
	}()
	var waits atomic.Int64 // since when for the log's next message, in Unix nanoseconds; 0: it has one
	log := make(chan error, 1)
	go func() {
		err := s.follow(life, box, e, at, &waits)
		if err != nil {
			err = &remote.CutError{Err: err}
		}
		log <- err
	}()
	end := exit{}
	select {
	case end.err = <-log:
		if end.err != nil {
			break
		}
		select {
		case end = <-exited:
		case <-time.After(4 * silence):
			end.err = &remote.CutError{Err: errors.New("the log is at its end, and the command goes on")}
		}
	case end = <-exited:
		for over := end.err != nil; !over; {
			select {
			case end.err = <-log:
				over = true
			case <-time.After(silence / 5):
				since := waits.Load()
				over = since != 0 && time.Since(time.Unix(0, since)) > silence
			}
		}
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return end.code, end.err
}

// follow reads a command's log to its end. waits is when it began to wait for the next message.
func (s *Service) follow(ctx context.Context, box *remote.Sandbox, e *remote.Exec, at string, waits *atomic.Int64) error {
	ws, err := s.API.Socket(ctx, box.At(&remote.Call{What: "follow the log"}, at+"/logs?follow=true"))
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
		waits.Store(time.Now().UnixNano())
		_, text, err := ws.Read(ctx)
		waits.Store(0)
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
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
