package run

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// An echoing is a plan whose other commands print what they read, and then their arguments.
type echoing struct {
	providers.Plan
	signals chan int
	began   chan struct{} // closed by one that waits
}

func (e echoing) Exec(ctx context.Context, argv, _ []string, stdio providers.Stdio) (providers.Result, error) {
	defer func() {
		for _, f := range []any{stdio.In, stdio.Out, stdio.Err} {
			if f, is := f.(io.Closer); is {
				f.Close()
			}
		}
	}()
	switch argv[len(argv)-1] {
	case "fails":
		return providers.Result{}, errors.New("it fails")
	case "absent":
		return providers.Result{}, &providers.ExecError{Name: "absent", Err: os.ErrNotExist}
	case "waits":
		if e.began != nil {
			close(e.began)
		}
		select {
		case <-ctx.Done():
		case n := <-stdio.Signals:
			e.signals <- n
		}
		return providers.Result{Signal: 9}, nil
	}
	text, err := io.ReadAll(stdio.In)
	if err == nil {
		_, err = stdio.Out.Write(append(text, argv[len(argv)-1]...))
	}
	return providers.Result{Code: 7}, err
}

func (echoing) Usage(context.Context) (providers.Result, error) {
	return providers.Result{Memory: 42}, nil
}

// listening is a run that listens, and its session.
func listening(t *testing.T, plan providers.Plan) (*flow, sessions.Home, sessions.Entry) {
	t.Helper()
	home := sessions.In(t.TempDir())
	f := newFlow(plan, &profiles.Policy{WorkDir: t.TempDir()}, home)
	require.NoError(t, f.server.Listen(f.session.Dir, f.uid, reached{f}))
	t.Cleanup(func() {
		f.endAttached()
		require.NoError(t, f.session.End(0))
	})
	return f, home, sessions.Entry{Info: sessions.Info{ID: f.session.ID()}}
}

// execute runs another command as pccrun exec does, with text as its standard input.
func execute(t *testing.T, home sessions.Home, e sessions.Entry, text string, argv ...string) (code int, printed string) {
	t.Helper()
	dir := t.TempDir()
	in := filepath.Join(dir, "in")
	require.NoError(t, os.WriteFile(in, []byte(text), 0o600))
	stdin, err := os.Open(in)
	require.NoError(t, err)
	out, err := os.Create(filepath.Join(dir, "out"))
	require.NoError(t, err)
	before := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
	os.Stdin, os.Stdout, os.Stderr = stdin, out, out
	code, err = Exec(home, e, argv)
	os.Stdin, os.Stdout, os.Stderr = before[0], before[1], before[2]
	require.NoError(t, err)
	said, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	return code, string(said)
}

func TestExec(t *testing.T) {
	plan := echoing{signals: make(chan int, 1), began: make(chan struct{})}
	f, home, e := listening(t, plan)
	code, printed := execute(t, home, e, "read, ", "/bin/true", "argument")
	require.Equal(t, 7, code)
	require.Equal(t, "read, argument", printed)
	code, printed = execute(t, home, e, "", "/bin/true", "fails")
	require.Equal(t, 125, code)
	require.Contains(t, printed, "it fails")
	code, _ = execute(t, home, e, "", "/bin/true", "absent")
	require.Equal(t, notFound, code)
	code, _ = execute(t, home, e, "", "/nonesuch")
	require.Equal(t, notFound, code)

	used, err := Usage(home, e)
	require.NoError(t, err)
	require.Equal(t, int64(42), used.Memory)

	// The end of the run is the end of its commands.
	go func() {
		<-plan.began
		f.endAttached()
	}()
	code, _ = execute(t, home, e, "", "/bin/true", "waits")
	require.Equal(t, 137, code)
	_, err = Exec(home, e, []string{"/bin/true"})
	require.ErrorContains(t, err, "its launcher does not answer")
}

// What a provider cannot do is refused by its name.
func TestExecIsNotBuilt(t *testing.T) {
	_, home, e := listening(t, struct{ providers.Plan }{})
	code, printed := execute(t, home, e, "", "/bin/true")
	require.Equal(t, 125, code)
	require.Contains(t, printed, "provider test: exec is not built for it")
	_, err := Usage(home, e)
	require.ErrorContains(t, err, "provider test: stats")
}
