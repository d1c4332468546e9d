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

func file(name string) url.Values { return url.Values{"path": {name}, "username": {user}} }

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	c := &remote.Call{Method: http.MethodPost, Query: file(name)}
	if older(box.Version, takesBytes) {
		if err := a.Form(c, "file"); err != nil {
			return err
		}
	}
	return remote.Send(ctx, &s.Base, box, a, c, "/files")
}

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	return s.Download(ctx, box, &remote.Call{Query: file(name)}, "/files", begin)
}

// What envd's process.Process says, as its .proto files have it.
type (
	message struct {
		Event struct {
			Start struct {
				Pid uint32 `json:"pid"`
			} `json:"start"`
			Data struct {
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
	text, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": e.Argv[0], "args": e.Argv[1:]}, "stdin": e.In != nil})
	if err != nil {
		return 0, err
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)))
	frame = append(frame, text...)
	return remote.Stream(ctx, &s.Base, box, &remote.Call{
		Size: int64(len(frame)), Silence: silence, Body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(frame)), nil },
		Header: http.Header{
			"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"},
			"Keepalive-Ping-Interval": {strconv.Itoa(int(ping / time.Second))}, "Authorization": f.user,
		},
	}, "/process.Process/Start", "application/connect+json", func(from io.Reader) (int, error) { return f.follow(feed, from) })
}

// following is a program that is followed.
type following struct {
	service *Service
	box     *remote.Sandbox
	exec    *remote.Exec
	user    []string // see [as]
	pid     uint32
}

// errForeign says that a message is none of envd's.
var errForeign = errors.New("a message that is none of envd's")

// follow reads the program's messages to the end, and sends its input while feed lasts.
func (f *following) follow(feed context.Context, from io.Reader) (int, error) {
	for {
		var head [5]byte
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return 0, err
		}
		size := binary.BigEndian.Uint32(head[1:])
		if size > maxMessage || head[0]&^2 != 0 {
			return 0, errForeign
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(from, body); err != nil {
			return 0, err
		}
		var m message
		ev := &m.Event
		switch err := json.Unmarshal(body, &m); {
		case err != nil:
			return 0, fmt.Errorf("%w: %w", errForeign, err)
		case head[0]&2 != 0 && m.Error == nil:
			return 0, io.ErrUnexpectedEOF
		case head[0]&2 != 0 && f.pid == 0 && m.Error.Code != "unavailable": // it did not begin
			return 0, remote.Permanent(m.Error)
		case head[0]&2 != 0:
			return 0, m.Error
		case ev.Start.Pid != 0 && f.pid == 0:
			if f.pid = ev.Start.Pid; f.exec.In != nil {
				go f.input(feed)
			}
		}
		remote.Print(f.exec.Out, ev.Data.Stdout)
		remote.Print(f.exec.Err, ev.Data.Stderr)
		switch {
		case ev.End == nil:
		case !ev.End.Exited:
			return remote.Killed, nil
		default:
			return ev.End.Code, nil
		}
	}
}

// call makes a call about the program that is followed.
func (f *following) call(ctx context.Context, method string, in map[string]any) error {
	in["process"] = map[string]uint32{"pid": f.pid}
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
