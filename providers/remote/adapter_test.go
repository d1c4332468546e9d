package remote

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFeed: a program gets all that it is to read, lines whole, and who gives it hears what was lost.
func TestFeed(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		in    io.Reader
		fails error // of the second time
		sent  []string
		lost  error
	}{
		"lines":              {in: iotest.OneByteReader(strings.NewReader("ab\nc\nd")), sent: []string{"ab\n", "c\n", "d"}},
		"lines, together":    {in: strings.NewReader("ab\nc\nd"), sent: []string{"ab\nc\n", "d"}},
		"the program ended":  {in: iotest.OneByteReader(strings.NewReader("a\nb\nc\n")), fails: io.EOF, sent: []string{"a\n", "b\n"}},
		"it did not arrive":  {in: iotest.OneByteReader(strings.NewReader("a\nb\nc\n")), fails: broken, sent: []string{"a\n", "b\n"}, lost: broken},
		"who gives it fails": {in: iotest.ErrReader(broken), lost: broken},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			var lost error
			e := &Exec{In: c.in, Lost: func(err error) { lost = err }}
			e.Feed(t.Context(), func(text []byte) error {
				if sent = append(sent, string(text)); len(sent) == 2 {
					return c.fails
				}
				return nil
			})
			require.Equal(t, c.sent, sent)
			require.Equal(t, c.lost, lost)
		})
	}
}

func TestPoll(t *testing.T) {
	n := 0
	require.NoError(t, Poll(t.Context(), time.Nanosecond, time.Nanosecond, func() (bool, error) { n++; return n == 3, nil }))
	require.Equal(t, 3, n)
	require.ErrorIs(t, Poll(t.Context(), 0, 0, func() (bool, error) { return false, io.ErrNoProgress }), io.ErrNoProgress)
	ctx, stop := context.WithCancelCause(t.Context())
	stop(io.ErrClosedPipe)
	require.ErrorIs(t, Poll(ctx, time.Hour, time.Hour, func() (bool, error) { return false, nil }), io.ErrClosedPipe)
}

// stubborn refuses to stop or to end a sandbox.
type stubborn struct {
	Service
	running bool
	err     error
}

func (s *stubborn) Resume(context.Context, string) (*Sandbox, error) { return nil, s.err }

func (s *stubborn) Park(context.Context, *Sandbox) error { return s.err }
func (s *stubborn) Status(context.Context, string) (*Sandbox, error) {
	return &Sandbox{Running: s.running}, nil
}
func (s *stubborn) Destroy(context.Context, string) error { return s.err }

// What is stopped already can be stopped, and what is gone can be ended.
func TestNothingToDo(t *testing.T) {
	refused := errors.New("409")
	for _, c := range []struct{ service, park, destroy error }{{nil, nil, nil}, {refused, nil, refused}, {ErrGone, ErrGone, nil}} {
		p := &Provider{service: &stubborn{err: c.service}}
		require.ErrorIs(t, p.park(t.Context(), &Sandbox{}), c.park)
		require.ErrorIs(t, p.destroy(t.Context(), "x"), c.destroy)
	}
	require.ErrorIs(t, (&Provider{service: &stubborn{err: refused, running: true}}).park(t.Context(), &Sandbox{}), refused)
}
