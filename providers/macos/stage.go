//go:build unix

package macos

import (
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

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers"
)

// Verb is the hidden verb of a run's own processes: it is followed by the part that one plays.
const Verb = "__macos"

// The parts.
const (
	supervisorPart = "supervisor" // starts the part outside, follows the run, ends what the command leaves
	outsidePart    = "outside"    // sets limits, makes the controls, becomes sandbox-exec
	insidePart     = "inside"     // makes the trial, becomes the command
)

// The descriptors of each beside the command's own.
const (
	orderFD  = 3 // an [order]
	reportFD = 4 // of the supervisor the stream to the launcher; else it takes a [report] of each, and closes when the command begins
	logFD    = 5 // of the supervisor alone: what log(1) prints
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

// A report says how far a part has come.
type report struct {
	Part  string `json:"part"`
	Fail  string `json:"fail,omitempty"`
	Errno int    `json:"errno,omitempty"` // why no file of the command's could be executed
}

// A trial is what the profile forbids, and could be done without it.
type trial struct {
	Dir  string // hidden, with a file canary and a socket door
	Port int    // of the loopback, on which the launcher listens
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
		{"connect to a unix socket", func() error { return closed(net.DialTimeout("unix", filepath.Join(t.Dir, "door"), dialWithin)) }},
		{"connect to a port of the loopback", func() error {
			return closed(net.DialTimeout("tcp4", "127.0.0.1:"+strconv.Itoa(t.Port), dialWithin))
		}},
	}
}

const dialWithin = 5 * time.Second

// controls says which attempt failed outside, where each has to succeed.
func (t *trial) controls() error {
	for _, a := range t.attempts() {
		if err := a.try(); err != nil {
			return fmt.Errorf("control: %s outside of the sandbox: %w", a.what, err)
		}
	}
	return errors.Join(os.Remove(filepath.Join(t.Dir, "linked")), os.Remove(filepath.Join(t.Dir, "made")))
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
	if len(args) != 1 {
		return refused
	}
	for fd := orderFD; fd <= logFD; fd++ {
		syscall.CloseOnExec(fd)
	}
	given, out := os.NewFile(orderFD, "order"), os.NewFile(reportFD, "report")
	defer given.Close() // and not before: parts that are started get it
	part, o := args[0], new(order)
	say := func(r report) int {
		r.Part = part
		var what any = r
		if part == supervisorPart {
			what = event{Ended: &ending{Failed: &r}}
		}
		_ = json.NewEncoder(out).Encode(what)
		return refused
	}
	err := json.NewDecoder(io.NewSectionReader(given, 0, 16<<20)).Decode(o)
	switch {
	case err != nil:
	case part == supervisorPart:
		if err = o.supervise(thisSystem(providers.Host{}), given, out); err == nil {
			return 0
		}
	case part == outsidePart:
		err = o.outside(given, out)
	case part == insidePart:
		var errno syscall.Errno
		if errno, err = o.inside(func() { say(report{}) }); err == nil {
			return say(report{Errno: int(errno)})
		}
	default:
		err = fmt.Errorf("part %q: there is none", part)
	}
	return say(report{Fail: err.Error()})
}

// outside becomes sandbox-exec.
func (o *order) outside(given, out *os.File) error {
	if err := o.Trial.controls(); err != nil {
		return err
	}
	// Through syscall: package os raises the number of files for itself, and would restore it.
	for _, l := range [...]struct {
		which int
		value uint64
		name  string
	}{{syscall.RLIMIT_NOFILE, o.Limits.Files, "RLIMIT_NOFILE"}, {syscall.RLIMIT_FSIZE, o.Limits.FileSize, "RLIMIT_FSIZE"}} {
		if l.value == 0 {
			continue
		}
		if err := syscall.Setrlimit(l.which, &syscall.Rlimit{Cur: l.value, Max: l.value}); err != nil {
			return fmt.Errorf("set %s to %d: %w", l.name, l.value, err)
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}); err != nil {
		return fmt.Errorf("set RLIMIT_CORE to 0: %w", err)
	}
	for _, f := range [...]*os.File{given, out} { // they are for the part inside too
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("fcntl: %w", err)
		}
	}
	err := syscall.Exec(o.Exec[0], o.Exec, []string{"PATH=/usr/bin:/bin"})
	return fmt.Errorf("execute %s: %s", o.Exec[0], err)
}

// inside becomes the command. It returns why it could not be executed, or what else went wrong before.
func (o *order) inside(ready func()) (syscall.Errno, error) {
	if err := o.Trial.holds(); err != nil {
		return 0, err
	}
	if err := os.Chdir(o.Dir); err != nil {
		return 0, fmt.Errorf("the directory in which the command starts: %w", err)
	}
	ready()
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
	return last, nil
}
