package modal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modal-labs/modal-client/go"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/providers/remote"
)

// Exec executes a program and follows what it prints. A connection that is lost the client makes anew, for some ten seconds:
// Modal keeps what was printed in between. Who is executed is the image's user, root as a rule.
func (s *Service) Exec(ctx context.Context, box *remote.Sandbox, e *remote.Exec) (int, error) {
	return s.execute(ctx, box, e, func(ctx context.Context, to io.Writer) error {
		if e.In != nil {
			e.Feed(ctx, func(text []byte) error { _, err := to.Write(text); return ended(err) })
		}
		return nil
	})
}

// ended makes an end of the error of a write to a program that is gone, or reads no more.
func ended(err error) error {
	if code := statusOf(err); code >= 400 && code < 500 {
		return io.EOF
	}
	return err
}

// execute executes a program; input writes what it reads, to its end.
func (s *Service) execute(ctx context.Context, box *remote.Sandbox, e *remote.Exec, input func(context.Context, io.Writer) error) (code int, err error) {
	var p *modal.ContainerProcess
	err = s.about(ctx, box.ID, &remote.Call{What: "execute in", Once: true}, func(ctx context.Context, m *modal.Sandbox) (err error) {
		p, err = m.Exec(ctx, e.Argv, nil)
		return err
	})
	if err != nil {
		return 0, err
	}
	streams, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	context.AfterFunc(streams, func() { p.Stdout.Close(); p.Stderr.Close() })
	go func() {
		err := input(streams, p.Stdin)
		if err == nil {
			err = p.Stdin.Close()
		}
		if err = ended(err); err != nil && err != io.EOF {
			stop(err) // and no end: what it read is not all
		}
	}()
	pass := func(to io.Writer, from io.Reader) {
		b := make([]byte, 64<<10)
		for n, err := 0, error(nil); err != io.EOF && streams.Err() == nil; {
			n, err = from.Read(b)
			if remote.Print(to, b[:n]); err != nil && err != io.EOF {
				stop(err)
			}
		}
	}
	var outputs sync.WaitGroup
	outputs.Go(func() { pass(e.Out, p.Stdout) })
	outputs.Go(func() { pass(e.Err, p.Stderr) })
	outputs.Wait()
	if err = context.Cause(streams); err == nil {
		end, cancel := context.WithTimeout(ctx, time.Minute) // the client itself would ask for ever
		defer cancel()
		code, err = p.Wait(end, nil)
	}
	return remote.Ended(ctx, code, err)
}

// fileProgram is what Modal has in each sandbox, by which its client writes and reads files.
const fileProgram = "/__modal/.bin/modal-sandbox-fs-tools"

// file has that write or read a file, and does so again where the connection was lost.
func (s *Service) file(ctx context.Context, box *remote.Sandbox, word, name string, begin func() (io.Writer, error), input func(context.Context, io.Writer) error) error {
	what, err := json.Marshal(map[string]any{word: map[string]string{"path": name}})
	for n := 1; err == nil; n++ {
		var said bytes.Buffer
		e, code := &remote.Exec{Argv: []string{fileProgram, string(what)}, Err: &said}, 0
		if e.Out, err = begin(); err == nil {
			code, err = s.execute(ctx, box, e, input)
		}
		if is[*remote.CutError](err) && n < 4 {
			err = nil
			continue
		}
		if code != 0 {
			err = fmt.Errorf("%s: %s %s: %s", Name, word, name, events.Cut(events.Clean(said.String())))
		}
		return err
	}
	return err
}

// PutFile writes a file.
func (s *Service) PutFile(ctx context.Context, box *remote.Sandbox, name string, a *remote.Archive) error {
	ctx, cancel := context.WithTimeout(ctx, a.Within())
	defer cancel()
	return s.file(ctx, box, "WriteFile", name, func() (io.Writer, error) { return io.Discard, nil }, func(_ context.Context, to io.Writer) error {
		from, err := a.Open()
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 1<<20)) // in one message
		return err
	})
}

// GetFile reads a file.
func (s *Service) GetFile(ctx context.Context, box *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	return s.file(ctx, box, "ReadFile", name, begin, func(context.Context, io.Writer) error { return nil })
}
