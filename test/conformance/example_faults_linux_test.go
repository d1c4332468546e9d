package conformance_test

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/test/internal/machine"
)

// A faulty is an example with the faults of a provider behind a network. Those of HTTP it does not have.
type faulty struct {
	*example
	mu    sync.Mutex
	kinds []string
	count map[string]int
}

// has counts the calls that a kind of fault strikes; 0 for none.
func (f *faulty) has(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.kinds, kind) {
		return 0
	}
	f.count[kind]++
	return f.count[kind]
}

func (f *faulty) Create(ctx context.Context, r *remote.Request) (*remote.Sandbox, error) {
	if f.has(neverCreate) > 0 {
		return nil, errors.New("example: quota of sandboxes exceeded")
	}
	if f.has(twiceCreate) > 0 {
		if _, err := f.example.Create(ctx, r); err != nil {
			return nil, err
		}
	}
	box, err := f.example.Create(ctx, r)
	if err == nil && f.has(lostCreate) == 1 {
		return nil, &remote.UnclearError{Err: io.ErrUnexpectedEOF}
	}
	return box, err
}

func (f *faulty) Destroy(ctx context.Context, id string) error {
	if f.has(noDestroy) > 0 {
		return errors.New("example: not yours")
	}
	return f.example.Destroy(ctx, id)
}

func (f *faulty) GetFile(ctx context.Context, s *remote.Sandbox, name string, begin func() (io.Writer, error)) error {
	if f.has(noDownload) > 0 {
		return errors.New("example: no such file")
	}
	wrong := f.has(wrongOnce) == 1
	return f.example.GetFile(ctx, s, name, func() (io.Writer, error) {
		to, err := begin()
		if wrong && err == nil {
			to = altering{to}
		}
		return to, err
	})
}

// altering changes what is written.
type altering struct{ io.Writer }

func (a altering) Write(b []byte) (int, error) {
	b[len(b)/2] ^= 1
	return a.Writer.Write(b)
}

func (f *faulty) Line(ctx context.Context, s *remote.Sandbox, argv []string) (io.ReadWriteCloser, error) {
	line, err := f.example.Line(ctx, s, argv)
	if n := f.has(cutOften); n > 0 && err == nil {
		return &cutting{line, 3000 * n}, nil
	}
	return line, err
}

// cutting is a line that breaks after some bytes.
type cutting struct {
	io.ReadWriteCloser
	left int
}

func (c *cutting) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, &remote.CutError{Err: io.ErrUnexpectedEOF}
	}
	n, err := c.ReadWriteCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

func startExample(t *testing.T) *served { return startExampleOf(t, math.MaxInt64, remote.Facts{}) }

// startExampleOf starts one whose files have so many bytes at most, and what it says of itself.
func startExampleOf(t *testing.T, most int64, facts remote.Facts) *served {
	dir, err := os.MkdirTemp("", "pccrun-example-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o711))
	f := &faulty{example: &example{dir: dir, most: most, boxes: map[string]exampleBox{}}, count: map[string]int{}}
	stand := func(state string) (list []string) {
		if state == "paused" {
			return nil
		}
		f.example.mu.Lock()
		defer f.example.mu.Unlock()
		for id := range f.boxes {
			list = append(list, id)
		}
		return list
	}
	t.Cleanup(func() {
		for _, id := range stand("") {
			require.NoError(t, f.example.Destroy(context.Background(), id))
		}
		require.NoError(t, os.RemoveAll(dir))
	})
	return &served{
		environ: []string{"EXAMPLE_KEY=right"}, stand: stand, calls: func() []string { return f.made },
		home: func(id string) string { return f.boxes[id].room.Path(f.boxes[id].room.Home) },
		open: func(environ []string, state, program string) providers.Provider {
			f.key = remote.Variable(environ, "EXAMPLE_KEY")
			facts.Keeps = map[profiles.Guarantee]string{profiles.ProcIsolated: "this machine"}
			return remote.New(f, facts, providers.Host{Environ: environ, Git: plainGit, LinuxProgram: opens(program), StateDir: state})
		},
		path:   func(dir string) { f.path = dir },
		made:   func() string { return strings.Join(f.made, "\n") },
		around: func(map[string]string, func(*machine.Machine)) {},
		fault: func(kinds ...string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.kinds = kinds
		},
	}
}
