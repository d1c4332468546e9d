package native

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

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
		master, slave, err := s.box.OpenTerminal()
		if err != nil {
			return result, err
		}
		raw, err := master.SyscallConn()
		if err != nil {
			return result, err
		}
		size = func() {
			columns, rows := t.Size()
			_ = raw.Control(func(fd uintptr) { // Fd would have reading wait without a deadline
				_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
			})
		}
		size()
		resized, theirs = t.Resized, [3]*os.File{slave, slave, slave}
		var ended atomic.Bool
		printed := make(chan struct{})
		go func() { _, _ = io.Copy(master, in) }()
		go func() {
			show(out, master, &ended)
			close(printed)
		}()
		defer func() {
			slave.Close()
			ended.Store(true)
			_ = master.SetReadDeadline(time.Now()) // whoever reads looks again
			<-printed
			master.Close()
		}()
	}
	var fds [3]int
	for i, f := range theirs {
		fds[i] = int(f.Fd())
		_ = unix.SetNonblock(fds[i], false) // a pipe that another process made does not block, for this one's poller
	}
	e, err := s.box.Exec(files, argv, fds, stdio.Terminal != nil)
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

// What is read of a terminal when the command has ended: more than the kernel holds of what was printed before, and how
// long that may be waited for in all.
const (
	maxLeft = 256 << 10
	quiet   = 100 * time.Millisecond
)

// show copies what a command prints to its terminal, until nobody has that open any more, or the command has ended:
// others may have it open, and print on.
func show(out io.Writer, master *os.File, ended *atomic.Bool) {
	buffer := make([]byte, 64<<10)
	for left, patience := maxLeft, quiet; left > 0 && patience > 0; {
		last, begun := ended.Load(), time.Now()
		if last {
			_ = master.SetReadDeadline(begun.Add(patience))
		}
		n, err := master.Read(buffer)
		if last {
			left, patience = left-n, patience-time.Since(begun)
		}
		if _, bad := out.Write(buffer[:n]); bad != nil || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

var _ providers.Executor = (*plan)(nil)
