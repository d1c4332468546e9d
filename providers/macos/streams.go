//go:build unix

package macos

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/terminal"
)

// input is what the command reads. A terminal of the user's is never handed in.
func (r *running) input() (*os.File, error) {
	if r.io.In == nil {
		return os.Open(os.DevNull)
	}
	if f, ok := r.io.In.(*os.File); ok && (r.master != nil || !isDevice(f)) {
		return f, nil
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	go func() { // until the command reads no more, or nobody types
		_, _ = io.Copy(to, r.io.In)
		to.Close()
	}()
	return from, nil
}

// output is where the command prints.
func (r *running) output(w io.Writer) (*os.File, error) {
	if f, ok := w.(*os.File); ok && (r.master != nil || !isDevice(f)) {
		return f, nil
	}
	if w == nil {
		w = io.Discard
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r.pipes = append(r.pipes, from)
	r.copying.Go(func() {
		defer from.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				if _, err := w.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
			if r.over.Load() {
				_ = from.SetReadDeadline(time.Now().Add(drainWithin))
			}
		}
	})
	return to, nil
}

// sameWriter reports whether both streams go to one writer, which two at once could not write to.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }() // of a type that cannot be compared
	return a == b
}

// isDevice reports whether a file is one other than /dev/null: a terminal, as a rule.
func isDevice(f *os.File) bool {
	info, err := f.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}

// relay joins the command's terminal and the caller's.
func (r *running) relay() (err error) {
	if join := r.io.Terminal.Relay; join != nil {
		r.joined, err = join(terminal.Options{Master: r.master})
		return err
	}
	if r.callerIn != nil {
		go func() { _, _ = io.Copy(r.master, r.callerIn) }()
	}
	r.copying.Go(func() { _, _ = io.Copy(r.callerOut, r.master) }) // until the last of the other side is closed
	return nil
}

// copied waits until all that was printed is passed on, to a reader who takes his time too. Where
// something lives on that nobody found, it may hold the other side and print no more.
func (r *running) copied() {
	r.over.Store(true)
	for _, from := range r.pipes {
		_ = from.SetReadDeadline(time.Now().Add(drainWithin))
	}
	switch {
	case r.joined != nil:
		r.joined.Wait(drainWithin)
		r.joined.Close(drainWithin)
		return
	case r.master == nil:
		r.copying.Wait()
		return
	}
	done := make(chan struct{})
	go func() {
		r.copying.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drainWithin):
	}
}

func (r *running) resize() {
	columns, rows := r.io.Terminal.Size()
	_ = unix.IoctlSetWinsize(int(r.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
}
