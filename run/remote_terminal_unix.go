//go:build unix

package run

import (
	"fmt"
	"io"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/providers"
)

// A relayedTerminal is the user's terminal for a command that runs elsewhere: a pseudo-terminal of this
// machine without a line discipline, of which one side is relayed to the user's and the other
// is the stream to the provider. So what the command prints is filtered, and what the relay
// does for the keys and modes of the user's holds there too.
type relayedTerminal struct {
	slave    *os.File
	relay    *terminal.Relay
	terminal *providers.Terminal // its description for a provider
	stop     func()
}

// openRelayed begins to relay, for a terminal of that name. What the command prints goes to log too, if
// that is not nil.
func openRelayed(name string, log *transcript) (*relayedTerminal, error) {
	master, slave, err := terminal.OpenPair()
	if err != nil {
		return nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	o := terminal.Options{Terminal: int(os.Stdout.Fd()), Master: master}
	if log != nil {
		o.Log = io.Writer(log)
	}
	s := &relayedTerminal{slave: slave}
	if s.relay, err = terminal.Start(o); err == nil {
		err = terminal.MakeRaw(slave)
	}
	if err != nil {
		slave.Close()
		return nil, err
	}
	s.terminal, s.stop = userTerminal(name)
	return s, nil
}

// close gives the user's terminal back, when it shows all that was printed, or takes nothing any more. Who still reads what
// is typed, for the provider, gets an error.
func (s *relayedTerminal) close() {
	if s == nil || s.relay == nil { // that of the provider's own
		return
	}
	s.stop()
	s.slave.Close()
	s.relay.Wait(stuck)
	s.relay.Close(stuck)
}

// relayTerminal gives the command a terminal of its own.
func (o *output) relayTerminal(s *providers.Stdio) error {
	relayed, err := openRelayed(o.req.Host.Getenv("TERM"), o.kept)
	if err != nil {
		return err
	}
	o.terminal = relayed
	if o.asker != nil {
		o.asker.At(relayed.relay)
	}
	s.In, s.Out, s.Err, s.Terminal = relayed.slave, relayed.slave, relayed.slave, relayed.terminal
	return nil
}

// UserTerminal relays the user's terminal for what runs elsewhere. f is what it types and shows; stop gives it back.
func UserTerminal() (f *os.File, t *providers.Terminal, stop func(), err error) {
	relayed, err := openRelayed("", nil)
	if err != nil {
		return nil, nil, nil, err
	}
	return relayed.slave, relayed.terminal, relayed.close, nil
}

// userTerminal describes the user's terminal to a provider; stop ends that.
func userTerminal(name string) (t *providers.Terminal, stop func()) {
	resized, winch := make(chan struct{}, 1), make(chan os.Signal, 1)
	signal.Notify(winch, unix.SIGWINCH)
	go func() {
		for range winch {
			select {
			case resized <- struct{}{}:
			default:
			}
		}
	}()
	return &providers.Terminal{Name: name, Resized: resized, Size: func() (columns, rows int) {
		size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 80, 24
		}
		return int(size.Col), int(size.Row)
	}}, func() { signal.Stop(winch) }
}
