package inside

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/providers"
)

// newExecutions joins both sides of other commands, which are children of this process.
func newExecutions(t *testing.T) *Executions {
	here, there := net.Pipe()
	outside, err := yamux.Client(here, Config())
	require.NoError(t, err)
	within, err := yamux.Server(there, Config())
	require.NoError(t, err)
	t.Cleanup(func() { outside.Close(); within.Close() })
	p := &place{session: within, plan: &Plan{}}
	var starts sync.Mutex // held while one starts: the end of the place, here the test's, ends those that have, and no other begins
	var over bool
	var begun []*os.Process
	var running sync.WaitGroup
	t.Cleanup(func() {
		starts.Lock()
		over = true
		for _, child := range begun {
			_ = child.Kill()
		}
		starts.Unlock()
		running.Wait()
	})
	begin := func(plan *Plan, s *streams) (int, func() unix.WaitStatus, string, error) {
		defer s.closeTheirs()
		c := &exec.Cmd{Path: string(plan.Paths[0]), SysProcAttr: s.attributes(nil), Stdin: s.theirs[0], Stdout: s.theirs[1], Stderr: s.theirs[2]}
		for _, arg := range plan.Argv {
			c.Args = append(c.Args, string(arg))
		}
		starts.Lock()
		defer starts.Unlock()
		if over {
			return 0, nil, "execute", net.ErrClosed
		}
		if err := c.Start(); err != nil {
			return 0, nil, "execute", &execError{err}
		}
		begun = append(begun, c.Process)
		running.Add(1)
		return c.Process.Pid, func() unix.WaitStatus {
			defer running.Done()
			_ = c.Wait()
			return unix.WaitStatus(c.ProcessState.Sys().(syscall.WaitStatus))
		}, "", nil
	}
	opened := make(chan struct{})
	go func() {
		control, err := p.open(Control)
		require.NoError(t, err)
		p.out = json.NewEncoder(control)
		close(opened)
		in := json.NewDecoder(control)
		for {
			var m Message
			if in.Decode(&m) != nil {
				return
			}
			p.handleExec(m.Exec, begin)
		}
	}()
	control, kind, err := Accept(outside)
	require.NoError(t, err)
	require.Equal(t, Control, kind)
	<-opened
	out := json.NewEncoder(control)
	var mu sync.Mutex
	x := &Executions{Say: func(m Message) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(m)
	}}
	go func() {
		in := json.NewDecoder(control)
		for {
			var m Message
			if in.Decode(&m) != nil {
				x.End()
				return
			}
			x.Hear(m.Exec)
		}
	}()
	go func() {
		for {
			s, kind, err := Accept(outside)
			if err != nil {
				return
			}
			require.Equal(t, Executed, kind)
			x.Stream(s)
		}
	}()
	return x
}

func TestExecutions(t *testing.T) {
	x := newExecutions(t)
	sh := func(ctx context.Context, script, in string, signals <-chan int) (out, errs string, r providers.Result) {
		var o, e bytes.Buffer
		r, failed, err := x.Exec(ctx, []string{"sh", "-c", script}, []string{"/bin/sh"}, providers.Stdio{In: strings.NewReader(in), Out: &o, Err: &e, Signals: signals})
		require.NoError(t, err)
		require.Nil(t, failed)
		return o.String(), e.String(), r
	}
	for range 260 { // more than there are numbers
		out, errs, r := sh(t.Context(), "cat; echo mistake >&2; exit 7", "given", nil)
		require.Equal(t, []any{"given", "mistake\n", 7}, []any{out, errs, r.Code})
	}
	signals := make(chan int, 1)
	signals <- int(unix.SIGTERM)
	_, _, r := sh(t.Context(), "exec sleep 600", "", signals)
	require.Equal(t, int(unix.SIGTERM), r.Signal, "also before it has begun")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, r = sh(ctx, "exec sleep 600", "", nil)
	require.Equal(t, int(unix.SIGKILL), r.Signal)
	out, _, _ := sh(t.Context(), "sleep 2 & echo left", "", nil)
	require.Equal(t, "left\n", out)
	_, failed, err := x.Exec(t.Context(), []string{"none"}, []string{"/none"}, providers.Stdio{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	require.NoError(t, err)
	require.Equal(t, &Failed{Step: "execute", Errno: int(unix.ENOENT), Text: "fork/exec /none: no such file or directory", Exec: true}, failed)

	// Many at a time, and the end of the place is that of all.
	var all sync.WaitGroup
	for range maxExecutions {
		all.Go(func() {
			_, _, r := sh(t.Context(), "exec sleep 600", "", nil)
			require.Equal(t, int(unix.SIGKILL), r.Signal)
		})
	}
	await.Until(t, "there are as many as may be", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.list) == maxExecutions
	})
	_, _, err = x.Exec(t.Context(), []string{"true"}, []string{"/bin/true"}, providers.Stdio{})
	require.EqualError(t, err, "16 other commands run already")
	x.End()
	all.Wait()
	_, _, err = x.Exec(t.Context(), []string{"true"}, []string{"/bin/true"}, providers.Stdio{})
	require.EqualError(t, err, "the session has ended")
}

func TestExecutionsTerminal(t *testing.T) {
	x := newExecutions(t)
	in, keys, err := os.Pipe()
	require.NoError(t, err)
	screen, out, err := os.Pipe()
	require.NoError(t, err)
	resized, size := make(chan struct{}, 1), [2]int{81, 25}
	go func() {
		r, _, err := x.Exec(t.Context(), []string{"sh", "-c", `trap "echo trapped; exit 5" INT; stty size; until stty size | grep "30 100"; do sleep .01; done; while :; do sleep .01; done`}, []string{"/bin/sh"},
			providers.Stdio{In: in, Out: out, Terminal: &providers.Terminal{Size: func() (int, int) { return size[0], size[1] }, Resized: resized}})
		require.NoError(t, err)
		require.Equal(t, 5, r.Code)
	}()
	seen := ""
	awaits := func(text string) {
		buffer := make([]byte, 1024)
		for !strings.Contains(seen, text) {
			n, err := screen.Read(buffer)
			require.NoError(t, err, seen)
			seen += string(buffer[:n])
		}
	}
	awaits("25 81\r\n")
	size = [2]int{100, 30}
	resized <- struct{}{}
	awaits("30 100\r\n")
	_, err = keys.Write([]byte{3})
	require.NoError(t, err)
	awaits("trapped\r\n")
	_, err = io.ReadAll(screen)
	require.NoError(t, err)
}
