package sprites

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/coder/websocket"

	"github.com/pccrun/pccrun/providers/remote"
)

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	query := url.Values{"path": {name}, "workingDir": {"/"}, "mode": {fmt.Sprintf("%04o", cmp.Or(a.Mode, 0o644))}, "mkdirParents": {"true"}}
	return remote.Send(ctx, &s.Base, box, a, &remote.Call{Method: http.MethodPut, Query: query}, "/fs/write")
}

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	return s.Download(ctx, box, &remote.Call{Query: url.Values{"path": {name}, "workingDir": {"/"}}}, "/fs/read", begin)
}

// The first byte of a binary message says what it is of.
const (
	stdin = iota
	stdout
	stderr
	exit // a byte with the exit status follows
	stdinEnd
)

// What is sent at once, how often a connection is tried, and how long its answer may take.
const (
	maxSent = 16 << 10
	ping    = 15 * time.Second
	pong    = 45 * time.Second
)

// outlives is for how long what carries the line may go on without a connection: a program that is given no time for
// it is ended by the API after ten seconds, with what it started for all we know.
const outlives = "5m"

// Exec executes a program and follows what it prints. A connection that is lost is not made anew.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (int, error) {
	argv, code := e.Command(), 0
	query := url.Values{"cmd": argv, "path": argv[:1], "stdin": {strconv.FormatBool(e.In != nil)}}
	if e.In != nil {
		query.Set("max_run_after_disconnect", outlives)
	}
	ws, err := s.API.Socket(ctx, box.At(&remote.Call{What: "execute", Query: query}, "/exec"))
	if err == nil {
		defer ws.CloseNow()
		code, err = follow(ctx, ws, e)
	}
	return remote.Ended(ctx, code, err)
}

// follow sends what a program reads, and passes on what it prints, to its exit status.
func follow(ctx context.Context, ws *websocket.Conn, e *remote.Exec) (code int, err error) {
	ctx, over := context.WithCancel(ctx)
	defer over()
	go func() {
		if e.In != nil {
			e.Feed(ctx, func(text []byte) error { return send(ctx, ws, text) })
		}
		_ = ws.Write(ctx, websocket.MessageBinary, []byte{stdinEnd})
		if e.In == nil { // a line has a heartbeat of its own, and readers that take their time
			watch(ctx, ws)
		}
	}()
	for {
		kind, text, err := ws.Read(ctx)
		switch {
		case err != nil:
			return 0, fmt.Errorf("%s: execute: the connection broke: %w", Name, err)
		case kind == websocket.MessageText: // what else the API has to say
			var said struct {
				Type string `json:"type"`
				Code int    `json:"exit_code"`
			}
			if json.Unmarshal(text, &said) == nil && said.Type == "exit" {
				return said.Code, nil
			}
		case len(text) == 0:
		case text[0] == stdout:
			remote.Print(e.Out, text[1:])
		case text[0] == stderr:
			remote.Print(e.Err, text[1:])
		case text[0] == exit && len(text) > 1:
			return int(text[1]), nil
		case text[0] == exit:
			return 0, nil
		}
	}
}

// send sends what a program reads.
func send(ctx context.Context, ws *websocket.Conn, text []byte) error {
	for len(text) > 0 {
		n := min(len(text), maxSent)
		if err := ws.Write(ctx, websocket.MessageBinary, append([]byte{stdin}, text[:n]...)); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// watch closes a connection whose other side does not answer.
func watch(ctx context.Context, ws *websocket.Conn) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(ping):
		}
		answered, stop := context.WithTimeout(ctx, pong)
		err := ws.Ping(answered)
		stop()
		if err != nil {
			ws.CloseNow()
			return
		}
	}
}
