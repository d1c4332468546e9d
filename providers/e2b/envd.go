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
	"slices"
	"strconv"
	"time"

	"github.com/pccrun/pccrun/providers/remote"
)

// envdPort is where envd listens in each sandbox.
const envdPort = 49983

// Versions of envd: the first that takes a file as it is and not as a part of a form, and the first that can be told that
// there is nothing more to be read.
var (
	takesBytes = []int{0, 5, 7}
	closes     = []int{0, 5, 2}
)

// older reports whether a version is known, and older than another.
func older(version string, than []int) bool {
	v := make([]int, 3)
	n, err := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	return err == nil && n == 3 && slices.Compare(v, than) < 0
}

// The users that a sandbox has: the second may become the first without a password.
const (
	root = "root"
	user = "user"
)

// as is a header that names who executes, reads or writes.
func as(name string) []string {
	return []string{"Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"))}
}

func file(name string) string {
	return "/files?" + url.Values{"path": {name}, "username": {user}}.Encode()
}

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	c := &remote.Call{What: "upload", Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/octet-stream"}}, Body: a.Open, Size: a.Size, Limit: a.Within()}
	if older(box.Version, takesBytes) {
		if err := a.Form(c, "file"); err != nil {
			return err
		}
	}
	return s.Daemon(ctx, box, c, file(name))
}

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	return s.Download(ctx, box, &remote.Call{}, file(name), begin)
}

// What envd's process.Process says, as its .proto files have it.
type (
	selector struct {
		Pid uint32 `json:"pid"`
	}
	message struct {
		Event struct {
			Start *selector `json:"start"`
			Data  struct {
				Stdout []byte `json:"stdout"`
				Stderr []byte `json:"stderr"`
			} `json:"data"`
			End *struct {
				Code   int  `json:"exitCode"` // 0 is left out
				Exited bool `json:"exited"`   // else a signal ended it
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
	f := &following{service: s, box: box, exec: e, user: as(user)}
	if e.Root {
		f.user = as(root)
	}
	feed, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop() // a read of the user's input may still wait: nobody waits for that
	code, ended, err := f.stream(ctx, feed)
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case ended:
		return code, nil
	case f.pid != 0 || lost(err):
		return 0, &remote.CutError{Err: err}
	}
	return 0, err
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
	box     *remote.Sandbox
	exec    *remote.Exec
	user    []string // see [as]
	pid     uint32
}

// stream starts the program and reads its messages to the end, and sends its input while feed lasts.
func (f *following) stream(ctx, feed context.Context) (code int, ended bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	text, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": f.exec.Argv[0], "args": f.exec.Argv[1:]}, "stdin": f.exec.In != nil})
	if err != nil {
		return 0, false, err
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	frame = append(frame, text...)
	response, err := f.service.API.Open(ctx, f.box.At(&remote.Call{
		What: "execute", Method: http.MethodPost, Size: int64(len(frame)),
		Body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(frame)), nil },
		Header: http.Header{
			"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"},
			"Keepalive-Ping-Interval": {strconv.Itoa(int(ping / time.Second))}, "Authorization": f.user,
		},
	}, "/process.Process/Start"))
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
		ev := &m.Event
		if ev.Start != nil && f.pid == 0 {
			if f.pid = ev.Start.Pid; f.exec.In != nil {
				go f.input(feed)
			}
		}
		remote.Print(f.exec.Out, ev.Data.Stdout)
		remote.Print(f.exec.Err, ev.Data.Stderr)
		if ev.End != nil {
			if !ev.End.Exited {
				return remote.Killed, true, nil
			}
			return ev.End.Code, true, nil
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

// call makes a call about the program that is followed.
func (f *following) call(ctx context.Context, method string, in map[string]any) error {
	in["process"] = selector{f.pid}
	return f.service.Daemon(ctx, f.box, &remote.Call{
		What: "send input", Method: http.MethodPost, In: in, Once: in["input"] != nil, Header: http.Header{"Content-Type": {"application/json"}, "Authorization": f.user},
	}, "/process.Process/"+method)
}

// input sends what the program reads, to its end.
func (f *following) input(ctx context.Context) {
	f.exec.Feed(ctx, func(text []byte) error {
		err := f.call(ctx, "SendInput", map[string]any{"input": map[string][]byte{"stdin": text}})
		var refused *remote.APIError
		if errors.As(err, &refused) && (refused.Status/100 != 5 || refused.Code == "internal" || refused.Code == "unknown") {
			return io.EOF // the program is gone, or reads no more, which envd calls internal
		}
		return err
	})
	_ = f.call(ctx, "CloseStdin", map[string]any{})
}
