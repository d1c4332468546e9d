//go:build unix

package run

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/terminal"
)

// stdio gives the command what pccrun itself reads and prints. Where both are a terminal the
// command gets one of its own; what it prints to the user's goes through the filter.
func (f *flow) stdio() (providers.Stdio, error) {
	s := providers.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Signals: f.signals}
	if f.isLocal() {
		return s, f.localStdio(&s)
	}
	var err error
	if !f.req.Quiet {
		s.Progress = ShowProgress()
	}
	if f.copies() {
		if s.Changes, err = f.session.Want(KeepUpper); err != nil {
			return s, err
		}
	}
	if _, err := os.Stdin.Stat(); err != nil {
		s.In = nil
	}
	if terminal.IsTerminal(int(os.Stdin.Fd())) && terminal.IsTerminal(int(os.Stdout.Fd())) { // /dev/null is a device too
		return s, f.takeTerminal(&s)
	}
	if f.asker != nil {
		return s, errors.New("flag --ask: there is no terminal to ask at")
	}
	for _, out := range [...]*io.Writer{&s.Out, &s.Err} {
		if file := (*out).(*os.File); terminal.IsTerminal(int(file.Fd())) {
			*out = &filtered{to: file}
		}
		if f.kept != nil {
			*out = io.MultiWriter(*out, f.kept)
		}
	}
	return s, nil
}

// ShowProgress shows on a terminal what goes up and comes down; it is nil where there is none.
func ShowProgress() func(what string, done, total int64) {
	if !messages.IsTerminal(os.Stderr) {
		return nil
	}
	var mu sync.Mutex
	p := &messages.Progress{}
	return func(what string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if what != p.What {
			p.End()
			p = messages.NewProgress(what)
		}
		if p.Bytes = total; what != "" {
			p.Show(0, done)
		}
	}
}

// filtered is a terminal of the user's to which a command prints that has none of its own.
type filtered struct {
	to     io.Writer
	filter terminal.Filter
}

// Write writes what passes, and says that it was all.
func (f *filtered) Write(b []byte) (int, error) {
	_, err := f.to.Write(f.filter.Filter(b))
	return len(b), err
}
