//go:build unix

package macos

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
)

// streams are what the command reads and prints, and its terminal. A terminal of the user's is never
// handed in: the command has its own, or pipes.
type streams struct {
	caller        providers.Stdio
	master, slave *os.File        // of the command's terminal; nil for none
	relay         *terminal.Relay // between it and the user's
}

// openTerminal makes the command's terminal, and joins it to the user's.
func (s *streams) openTerminal() (err error) {
	if s.master, s.slave, err = terminal.OpenPair(); err != nil {
		return fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	s.resize()
	s.relay, err = s.caller.Terminal.Relay(terminal.Options{Master: s.master})
	return err
}

// give gives a process that is about to start the command's end of each.
func (s *streams) give(cmd *exec.Cmd) error {
	cmd.WaitDelay = drainWithin
	if s.slave != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = s.slave, s.slave, s.slave
		return nil
	}
	cmd.Stdout, cmd.Stderr = copied(s.caller.Out), copied(s.caller.Err)
	if in, is := s.caller.In.(*os.File); s.caller.In == nil || is && !isDevice(in) {
		cmd.Stdin = s.caller.In
		return nil
	}
	to, err := cmd.StdinPipe()
	if err == nil {
		go func() { // until the command reads no more, or nobody types
			_, _ = io.Copy(to, s.caller.In)
			to.Close()
		}()
	}
	return err
}

// copied returns a writer to which the command prints by a pipe, where it is not to have the file.
func copied(w io.Writer) io.Writer {
	if f, is := w.(*os.File); is && isDevice(f) {
		return struct{ io.Writer }{f}
	}
	return w
}

// isDevice reports whether a file is one other than /dev/null: a terminal, as a rule.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}

// drain waits until all that was printed is passed on. Something that nobody found may hold the other
// side and print no more, and a reader may take no more: then it says that something may be missing.
func (r *running) drain(of *exec.Cmd) {
	if errors.Is(of.Wait(), exec.ErrWaitDelay) {
		r.observer.Warning(events.Warning{Text: "the last of what the command printed may be missing: it was not taken within " + drainWithin.String()})
	}
	if r.streams.relay != nil {
		r.streams.relay.Wait(drainWithin)
		r.streams.relay.Close(drainWithin)
	}
}

// close gives the user's terminal back.
func (s *streams) close() {
	if s.relay != nil {
		s.relay.Close(drainWithin)
	}
	for _, f := range []*os.File{s.slave, s.master} {
		if f != nil {
			f.Close()
		}
	}
}

// resized is told when the user's terminal has another size: nil, and never, without one.
func (s *streams) resized() <-chan struct{} {
	if s.caller.Terminal == nil {
		return nil
	}
	return s.caller.Terminal.Resized
}

func (s *streams) resize() {
	columns, rows := s.caller.Terminal.Size()
	_ = unix.IoctlSetWinsize(int(s.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
}

// suspend stops this process with the command, which a key has stopped, or that it wants the keys of a
// terminal in whose background we are. It returns when this process goes on, after it has said how the
// command does.
func (s *streams) suspend(sig syscall.Signal, of *supervisor) {
	halt := s.relay.Suspend
	if sig == syscall.SIGTTIN || sig == syscall.SIGTTOU {
		halt = s.relay.Foreground
	}
	if halt() != nil { // the terminal is gone: what the kernel gives to a stopped group then
		of.signal(int(syscall.SIGHUP))
	}
	if s.relay.Active() {
		of.tell("foreground")
	} else {
		of.tell("background")
	}
}
