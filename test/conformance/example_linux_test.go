package conformance_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// An example is the least that a provider may be: no pause, no end that can be moved, no labels, no standard input.
type example struct {
	dir, path string // of all sandboxes; what stands first in PATH there
	key       string // the user's
	most      int64  // bytes of a file

	mu    sync.Mutex
	boxes map[string]exampleBox
	made  []string // names
}

type exampleBox struct {
	remote.Sandbox
	room *machine.Room
}

func (e *example) Name() string                   { return "example" }
func (e *example) Describe(r *remote.Request) any { return remote.NameOf(r.Labels) }

func (e *example) Ready() error {
	if e.key == "" {
		return &providers.UnusableError{Provider: e.Name(), Cause: "EXAMPLE_KEY is not set", Advice: "export EXAMPLE_KEY=…"}
	}
	return nil
}

func (e *example) Create(_ context.Context, r *remote.Request) (*remote.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name, now := remote.NameOf(r.Labels), time.Now()
	e.made = append(e.made, name)
	id := strconv.Itoa(len(e.made))
	room, err := machine.NewRoom(filepath.Join(e.dir, id), credential, e.path)
	b := exampleBox{remote.Sandbox{ID: id, Labels: remote.LabelsOf(name), Running: true, Created: now, Ends: now.Add(r.Lifetime)}, room}
	e.boxes[id] = b
	return &b.Sandbox, err
}

func (e *example) Find(context.Context, map[string]string) (list []remote.Sandbox, err error) {
	if e.key != "right" {
		return nil, &providers.UnusableError{Provider: e.Name(), Cause: "the key is another", Advice: "EXAMPLE_KEY is not accepted"}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		list = append(list, b.Sandbox)
	}
	return list, nil
}

func (e *example) box(id string) (exampleBox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, is := e.boxes[id]; is {
		return b, nil
	}
	return exampleBox{}, remote.ErrGone
}

func (e *example) Status(_ context.Context, id string) (*remote.Sandbox, error) {
	b, err := e.box(id)
	if err != nil {
		return nil, err
	}
	return &b.Sandbox, nil
}

func (e *example) Destroy(_ context.Context, id string) error {
	b, err := e.box(id)
	if err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.boxes, id)
	e.mu.Unlock()
	return b.room.End()
}

func (e *example) Exec(ctx context.Context, s *remote.Sandbox, x *remote.Exec) (int, error) {
	b, err := e.box(s.ID)
	if err != nil {
		return 0, err
	}
	c := b.room.Command(ctx, x.Root, x.Argv...)
	c.Stdout, c.Stderr = x.Out, x.Err
	_ = c.Run()
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case c.ProcessState == nil: // there is no such program
		return 127, nil
	case c.ProcessState.ExitCode() < 0:
		return remote.Killed, nil
	}
	return c.ProcessState.ExitCode(), nil
}

func (e *example) Line(ctx context.Context, s *remote.Sandbox, argv []string) (io.ReadWriteCloser, error) {
	b, err := e.box(s.ID)
	if err != nil {
		return nil, err
	}
	return remote.FileLine(ctx, e, s, b.room.Home, argv)
}

func (e *example) PutFile(_ context.Context, s *remote.Sandbox, name string, a *remote.Archive) error {
	b, err := e.box(s.ID)
	if err != nil {
		return err
	}
	text, err := a.Bytes()
	if err == nil {
		err = e.fits(text)
	}
	if err != nil {
		return err
	}
	name = b.room.Path(name)
	return errors.Join(b.room.MakeDirs(filepath.Dir(name)), os.WriteFile(name, text, 0o644))
}

func (e *example) GetFile(_ context.Context, s *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	b, err := e.box(s.ID)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(b.room.Path(name))
	if err == nil {
		err = e.fits(text)
	}
	if err != nil {
		return err
	}
	to, err := begin()
	if err == nil {
		_, err = to.Write(text)
	}
	return err
}

func (e *example) fits(text []byte) error {
	if int64(len(text)) > e.most {
		return errors.New("example: 413 payload too large")
	}
	return nil
}
