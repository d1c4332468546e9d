package run

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/terminal"
)

// A seat is the user's terminal for a command that runs elsewhere: a pseudo-terminal of this
// machine without a line discipline, of which one side is relayed to the user's and the other
// is the stream to the provider. So what the command prints is filtered, and what the relay
// does for the keys and modes of the user's holds there too.
type seat struct {
	slave    *os.File
	relay    *terminal.Relay
	terminal *providers.Terminal // what a provider is told of it
	stop     func()
}

// takeSeat begins to relay, for a terminal of that name. What the command prints goes to log too, if
// that is not nil.
func takeSeat(name string, log *transcript) (*seat, error) {
	master, slave, err := openTerminalPair()
	if err != nil {
		return nil, fmt.Errorf("open a pseudo-terminal: %w", err)
	}
	o := terminal.Options{Terminal: int(os.Stdout.Fd()), Master: master}
	if log != nil {
		o.Log = io.Writer(log)
	}
	s := &seat{slave: slave}
	if s.relay, err = terminal.Start(o); err == nil {
		err = makeRaw(slave)
	}
	if err != nil {
		slave.Close()
		return nil, err
	}
	s.terminal, s.stop = userTerminal(name)
	return s, nil
}

// close gives the user's terminal back.
func (s *seat) close() {
	if s == nil {
		return
	}
	s.stop()
	s.slave.Close()
	s.relay.Wait(lastWord)
	s.relay.Close(lastWord)
}

// openTerminalPair opens a pseudo-terminal, as pts(4) says.
func openTerminalPair() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// makeRaw takes the line discipline away: the command's own terminal has one.
func makeRaw(f *os.File) error {
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	raw := terminal.RawModes(*t)
	raw.Cc[unix.VMIN] = 1
	return unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &raw)
}

// takeTerminal gives the command a terminal of its own.
func (f *flow) takeTerminal(s *providers.Stdio) error {
	seat, err := takeSeat(f.req.Host.Getenv("TERM"), f.kept)
	if err != nil {
		return err
	}
	f.seat = seat
	if f.asker != nil {
		f.asker.relay = seat.relay
		close(f.asker.ready)
	}
	s.In, s.Out, s.Err, s.Terminal = seat.slave, seat.slave, seat.slave, seat.terminal
	return nil
}
