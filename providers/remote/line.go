package remote

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/pccrun/pccrun/providers/inside"
)

// line executes a program that carries lines, in the provider's own way if it has one.
func (p *Provider) line(ctx context.Context, box *Sandbox, argv []string) (io.ReadWriteCloser, error) {
	if l, is := p.service.(Liner); is {
		return l.Line(ctx, box, argv)
	}
	in, w := io.Pipe()
	l := follow(ctx, p.service, box, argv, in)
	l.write, l.close = w.Write, w.Close
	return l, nil
}

// lines is a line by Exec: what the program prints is read, and write gives it what it reads.
type lines struct {
	*io.PipeReader
	write func([]byte) (int, error)
	close func() error
	stop  context.CancelFunc
}

// Write gives lines to the program.
func (l *lines) Write(b []byte) (int, error) { return l.write(b) }

// Close ends the program.
func (l *lines) Close() error {
	l.stop()
	return errors.Join(l.PipeReader.Close(), l.close())
}

// follow executes a program and returns what reads its output, to the error that says how it ended. in is nil for none.
func follow(ctx context.Context, s Service, box *Sandbox, argv []string, in *io.PipeReader) *lines {
	ctx, stop := context.WithCancel(ctx)
	r, out := io.Pipe()
	said := &Printed{Most: 4 << 10}
	e := &Exec{Argv: argv, Root: true, Out: out, Err: said, Lost: func(error) { stop() }}
	if in != nil {
		e.In = in
	}
	go func() {
		code, err := s.Exec(ctx, box, e)
		switch {
		case err == nil && code != 0:
			err = said.status(code)
		case err == nil:
			err = io.ErrUnexpectedEOF
		}
		out.CloseWithError(err)
		if in != nil {
			in.CloseWithError(io.ErrClosedPipe)
		}
	}()
	return &lines{PipeReader: r, stop: stop}
}

// FileLine is the [Liner.Line] of a provider that gives a program no input, and passes on what it prints as it comes:
// what the program reads is put into files of a directory of its own in home, a directory that it, as root, and PutFile
// can write to. The program takes each away.
func FileLine(ctx context.Context, s Service, box *Sandbox, home string, argv []string) (io.ReadWriteCloser, error) {
	dir := path.Join(home, ".pccrun-line-"+strings.ToLower(rand.Text()))
	l := follow(ctx, s, box, append(argv, dir), nil)
	n := 0
	l.write = func(b []byte) (int, error) { // whole records, as [inside.Conn] writes them
		text := append(append([]byte{}, b...), inside.FileEnd...)
		err := s.PutFile(ctx, box, path.Join(dir, inside.FileName(n)), &Archive{
			Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		})
		if err != nil {
			return 0, err
		}
		n++
		return len(b), nil
	}
	l.close = func() error { return nil }
	return l, nil
}
