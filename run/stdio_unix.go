//go:build unix

package run

import (
	"errors"
	"io"
	"os"

	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/ask"
)

// output is what becomes of what the command prints.
type output struct {
	*opened
	asker    *ask.Asker
	caught   *catcher
	resumes  bool             // what the command says of its conversation holds for the next run
	kept     *transcript      // of what the command prints, if that is wanted
	tail     *tail            // see overhear
	terminal *relayedTerminal // nil: the command has no terminal, or the provider has taken the user's
}

// close ends what is relayed, and the transcript where the provider is not this machine, which ends it before its check.
func (o *output) close(local bool) {
	o.terminal.close()
	if !local {
		o.kept.tell()
	}
}

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
		return s, f.output.takeTerminal(&s)
	}
	if f.output.asker != nil {
		return s, errors.New("flag --ask: there is no terminal to ask at")
	}
	for _, out := range [...]*io.Writer{&s.Out, &s.Err} {
		*out = screened((*out).(*os.File))
		if f.output.kept != nil {
			*out = io.MultiWriter(*out, f.output.kept)
		}
	}
	return s, nil
}

// relay joins the user's terminal and the command's, asks at it, and gives it back where a signal ends us.
func (o *output) relay(options terminal.Options) (*terminal.Relay, error) {
	o.overhear(&options)
	relay, err := terminal.Start(options)
	o.caught.relay.Store(relay)
	if err == nil && o.asker != nil {
		o.asker.At(relay)
	}
	return relay, err
}

// screened is what the command prints to, without what acts on a terminal.
func screened(file *os.File) io.Writer {
	if terminal.IsTerminal(int(file.Fd())) {
		return &filtered{to: file}
	}
	return file
}

// Replayed is the same for what is shown again, or to one more: without what asks the terminal too, whose answers nobody waits
// for. end puts its modes back.
func Replayed(file *os.File) (w io.Writer, end func()) {
	if !terminal.IsTerminal(int(file.Fd())) {
		return file, func() {}
	}
	f := &filtered{to: file, filter: terminal.Filter{Answered: true}}
	return f, func() { _, _ = file.Write(f.filter.Reset()) }
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
