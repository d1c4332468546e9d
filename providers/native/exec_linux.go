package native

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers"
)

// Exec starts another command in the sandbox: pid 1 does, as it has started the first.
func (p *plan) Exec(ctx context.Context, argv, files []string, stdio providers.Stdio) (result providers.Result, err error) {
	in, out := stdio.In.(*os.File), stdio.Out.(*os.File)
	theirs := [3]*os.File{in, out, out}
	if file, is := stdio.Err.(*os.File); is {
		theirs[2] = file
		defer file.Close()
	}
	defer in.Close()
	defer out.Close()
	s := p.started.Load()
	if s == nil {
		return result, errors.New("BUG: native: exec before the command runs")
	}
	var resized <-chan struct{}
	size, over := func() {}, make(chan struct{})
	defer close(over)
	if t := stdio.Terminal; t != nil {
		master, slave, err := s.OpenTerminal()
		if err != nil {
			return result, err
		}
		size = func() {
			columns, rows := t.Size()
			_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
		}
		size()
		resized, theirs = t.Resized, [3]*os.File{slave, slave, slave}
		printed := make(chan struct{})
		go func() { _, _ = io.Copy(master, in) }()
		go func() {
			_, _ = io.Copy(out, master) // EIO, when nobody has it open any more
			close(printed)
		}()
		defer func() {
			slave.Close()
			<-printed
			master.Close()
		}()
	}
	var fds [3]int
	for i, f := range theirs {
		fds[i] = int(f.Fd())
	}
	e, err := s.Exec(files, argv, fds, stdio.Terminal != nil)
	for _, f := range theirs {
		_ = f.Close() // a terminal's is one for all
	}
	if err != nil {
		return result, unfit(err)
	}
	go func() {
		signals := stdio.Signals
		for {
			select {
			case n, is := <-signals:
				if !is {
					signals = nil
					continue
				}
				e.Signal(unix.Signal(n))
			case <-resized:
				size()
			case <-ctx.Done():
				e.Signal(unix.SIGKILL)
				return
			case <-over:
				return
			}
		}
	}()
	status, err := e.Wait()
	if err != nil {
		return result, unfit(err)
	}
	if status.Signaled() {
		result.Signal = int(status.Signal())
	} else {
		result.Code = status.ExitStatus()
	}
	return result, nil
}

var _ providers.Executor = (*plan)(nil)
