package vercel

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/pccrun/pccrun/providers/remote"
)

// PutFile writes a file: the API takes a compressed tar, which it extracts.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	text, err := a.Bytes()
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	small, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(small)
	err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(name, "/"), Size: int64(len(text)), Mode: int64(cmp.Or(a.Mode, 0o644))})
	if err == nil {
		_, err = archive.Write(text)
	}
	if err = errors.Join(err, archive.Close(), small.Close()); err != nil {
		return err
	}
	return remote.Send(ctx, &s.Base, box, a, &remote.Call{
		Method: http.MethodPost, Header: http.Header{"Content-Type": {"application/gzip"}, "X-Cwd": {"/"}}, Size: int64(packed.Len()),
		Body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
	}, "/fs/write")
}

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	return s.Download(ctx, box, &remote.Call{Method: http.MethodPost, In: map[string]string{"path": name}}, "/fs/read", begin)
}

// Line carries lines over files: a command gets no input.
func (s *Service) Line(ctx context.Context, box *remote.Sandbox, argv []string) (io.ReadWriteCloser, error) {
	return remote.FileLine(ctx, s, box, "/tmp", argv)
}

// message is one of those that tell of a command: at first that it began, then what it prints, at last how it ended.
type message struct {
	Command *struct {
		Code *int `json:"exitCode"` // nil while it runs
	} `json:"command"`
	Stream string          `json:"stream"` // "stdout", "stderr" or "error"
	Data   json.RawMessage `json:"data"`   // a text, or of an error an object
}

// maxMessage bounds a message.
const maxMessage = 8 << 20

// Exec executes a program and follows what it prints. A connection that is lost is not made anew.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (int, error) {
	in := map[string]any{"command": e.Argv[0], "args": e.Argv[1:], "sudo": e.Root, "wait": true, "logs": true}
	return remote.Stream(ctx, &s.Base, box, &remote.Call{In: in}, "/cmd", "application/x-ndjson", func(from io.Reader) (int, error) { return follow(from, e) })
}

// follow passes on what a program prints, to its exit status.
func follow(from io.Reader, e *remote.Exec) (int, error) {
	bounded := &io.LimitedReader{R: from}
	for in := json.NewDecoder(bounded); ; {
		var m message
		bounded.N = maxMessage
		if err := in.Decode(&m); err != nil {
			return 0, err
		}
		var text string
		switch to := map[string]io.Writer{"stdout": e.Out, "stderr": e.Err}[m.Stream]; {
		case m.Command != nil && m.Command.Code != nil:
			if *m.Command.Code < 0 {
				return remote.Killed, nil
			}
			return *m.Command.Code, nil
		case m.Stream == "error":
			return 0, fmt.Errorf("%s", m.Data)
		case to != nil:
			if err := json.Unmarshal(m.Data, &text); err != nil {
				return 0, err
			}
			remote.Print(to, []byte(text))
		}
	}
}
