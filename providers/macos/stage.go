//go:build unix

package macos

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Verb is the hidden verb of a run's own processes: it is followed by the part that one plays.
const Verb = "__macos"

// The parts. Each has two descriptors beside the standard ones.
const (
	supervisorPart = "supervisor" // starts sandbox-exec, follows the run, ends what the command leaves: the stream to the launcher, and what log(1) prints
	insidePart     = "inside"     // makes the trial, becomes the command: an [order], and what takes a [report] and closes when the command begins
)

// An order is what the launcher has decided.
type order struct {
	Label      string   // of the run
	Log        []string // log(1), which prints its denials
	Terminal   bool     // the standard streams are the command's own terminal
	Foreground bool     // which it has from the start
	Exec       []string // sandbox-exec, its parameters, and this program's part inside
	Limits     limits
	Trial      trial
	Paths      []string // files of the command's name, the first that starts wins
	Argv       []string
	Env        []string
	Dir        string
}

// A report says how far the part inside has come: it is ready where there is nothing else.
type report struct {
	Fail  string `json:"fail,omitempty"`
	Errno int    `json:"errno,omitempty"` // why no file of the command's could be executed
}

// A trial is what the profile forbids, and could be done without it.
type trial struct {
	Dir  string // hidden, with a file canary
	Door string // a unix socket, by a short name: sun_path has 104 bytes
	Port int    // of the loopback, on which the supervisor listens
}

// An attempt is what is tried, and how the guarantee calls it.
type attempt struct {
	what string
	try  func() error
}

func (t *trial) attempts() []attempt {
	canary := filepath.Join(t.Dir, "canary")
	closed := func(c io.Closer, err error) error {
		if err == nil {
			c.Close()
		}
		return err
	}
	return []attempt{
		{"read a hidden file", func() error { return closed(os.Open(canary)) }},
		{"make a file in a hidden directory", func() error { return closed(os.Create(filepath.Join(t.Dir, "made"))) }},
		{"give a hidden file another name", func() error { return os.Link(canary, filepath.Join(t.Dir, "linked")) }},
		{"rename a hidden file", func() error {
			if err := os.Rename(canary, canary+"2"); err != nil {
				return err
			}
			return os.Rename(canary+"2", canary)
		}},
		{"connect to a unix socket", func() error { return closed(net.DialTimeout("unix", t.Door, dialWithin)) }},
		{"connect to a port of the loopback", func() error {
			return closed(net.DialTimeout("tcp4", "127.0.0.1:"+strconv.Itoa(t.Port), dialWithin))
		}},
	}
}

const dialWithin = 5 * time.Second

// controls makes what is tried, and says which attempt failed outside, where each has to succeed. end
// takes it away.
func (t *trial) controls() (end func(), err error) {
	trap, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	short, err := os.MkdirTemp("/tmp", "pccrun-")
	if err != nil {
		return nil, err
	}
	t.Port, t.Door = int(portOf(trap)), filepath.Join(short, "door")
	door, err := net.Listen("unix", t.Door)
	end = func() {
		trap.Close()
		if door != nil {
			door.Close() // and so removed
		}
		os.Remove(short)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(t.Dir, "canary"), []byte(rand.Text()), 0o600)
	}
	for _, a := range t.attempts() {
		if err == nil {
			if err = a.try(); err != nil {
				err = fmt.Errorf("control: %s outside of the sandbox: %w", a.what, err)
			}
		}
	}
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(t.Dir, "linked")), os.Remove(filepath.Join(t.Dir, "made")))
	}
	if err != nil {
		end()
	}
	return end, err
}

// holds says which attempt was not refused.
func (t *trial) holds() error {
	for _, a := range t.attempts() {
		switch err := a.try(); {
		case err == nil:
			return errors.New("trial: the command could " + a.what)
		case !errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("trial: %s: not refused by the sandbox: %w", a.what, err)
		}
	}
	return nil
}

// Main plays a part, and returns only where that has failed, or is over.
func Main(args []string) int {
	const refused = 125
	first, second := os.NewFile(3, "control"), os.NewFile(4, "out")
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
	switch {
	case len(args) == 1 && args[0] == supervisorPart:
		if err := supervise(thisSystem(), first, second); err != nil {
			_ = json.NewEncoder(first).Encode(event{Ended: &ending{Failed: &report{Fail: err.Error()}}})
			return refused
		}
		return 0
	case len(args) == 1 && args[0] == insidePart:
		say := json.NewEncoder(second)
		o := new(order)
		err := json.NewDecoder(first).Decode(o)
		if err == nil {
			err = o.prepare()
		}
		if err != nil {
			_ = say.Encode(report{Fail: err.Error()})
			return refused
		}
		_ = say.Encode(report{}) // ready
		_ = say.Encode(report{Errno: int(o.become())})
	}
	return refused
}

// prepare makes the trial, and sets what the command starts with.
func (o *order) prepare() error {
	if err := o.Trial.holds(); err != nil {
		return err
	}
	if err := os.Chdir(o.Dir); err != nil {
		return fmt.Errorf("the directory in which the command starts: %w", err)
	}
	// Through syscall: package os raises the number of files for itself, and would restore it.
	for _, l := range [...]struct {
		which int
		value uint64
		set   bool
		name  string
	}{
		{syscall.RLIMIT_NOFILE, o.Limits.Files, o.Limits.Files > 0, "RLIMIT_NOFILE"},
		{syscall.RLIMIT_FSIZE, o.Limits.FileSize, o.Limits.FileSize > 0, "RLIMIT_FSIZE"}, {syscall.RLIMIT_CORE, 0, true, "RLIMIT_CORE"},
	} {
		if !l.set {
			continue
		}
		if err := syscall.Setrlimit(l.which, &syscall.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("set %s to %d: %w", l.name, l.value, err)
		}
	}
	return nil
}

// become becomes the command, and returns why it could not.
func (o *order) become() syscall.Errno {
	last := syscall.ENOENT
	for _, path := range o.Paths {
		err := syscall.Exec(path, o.Argv, o.Env)
		if err == syscall.ENOEXEC { // a script without a first line that says whose
			err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", path}, o.Argv[1:]...), o.Env)
		}
		errors.As(err, &last)
		if last != syscall.ENOENT && last != syscall.EACCES && last != syscall.EPERM {
			break
		}
	}
	return last
}
