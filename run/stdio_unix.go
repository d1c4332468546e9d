//go:build unix

package run

import (
	"errors"
	"io"
	"os"

	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
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

// relay joins the user's terminal and the command's, asks at it, and gives it back where a signal ends us.
func (f *flow) relay(o terminal.Options) (*terminal.Relay, error) {
	f.overhear(&o)
	relay, err := terminal.Start(o)
	f.caught.relay.Store(relay)
	if err == nil && f.asker != nil {
		f.asker.At(relay)
	}
	return relay, err
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
