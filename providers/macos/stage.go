//go:build unix

package macos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers"
)

// Verb is the hidden verb of a run's own processes: it is followed by the part that one plays.
const Verb = "__macos"

// The parts.
const (
	outsidePart = "outside" // sets limits, makes the controls, becomes sandbox-exec
	insidePart  = "inside"  // makes the trial, becomes the command
	wardenPart  = "warden"  // ends what the command leaves
	leadPart    = "lead"    // leads the session of the command's terminal
)

// The descriptors of the first two beside the command's own.
const (
	orderFD  = 3 // an [order]
	reportFD = 4 // a [report] of each, and then nothing: it closes when the command begins
	leadFD   = 5 // of the part that leads alone: see [lead]
)

// An order is what the launcher has decided.
type order struct {
	Exec   []string // sandbox-exec, its parameters, and this program's part inside
	Limits limits
	Trial  trial
	Paths  []string // files of the command's name, the first that starts wins
	Argv   []string
	Env    []string
	Dir    string
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

// attempts are what is tried, by what the guarantee says of it.
func (t *trial) attempts() []struct {
	what string
	try  func() error
} {
	type attempt = struct {
		what string
		try  func() error
	}
	canary := filepath.Join(t.Dir, "canary")
	dial := func(network, address string) error {
		c, err := net.DialTimeout(network, address, 5*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	}
	return []attempt{
		{"read a hidden file", func() error {
			f, err := os.Open(canary)
			if err == nil {
				f.Close()
			}
			return err
		}},
		{"make a file in a hidden directory", func() error {
			f, err := os.Create(filepath.Join(t.Dir, "made"))
			if err == nil {
				f.Close()
			}
			return err
		}},
		{"give a hidden file another name", func() error {
			return os.Link(canary, filepath.Join(t.Dir, "linked"))
		}},
		{"rename a hidden file", func() error {
			if err := os.Rename(canary, canary+"2"); err != nil {
				return err
			}
			return os.Rename(canary+"2", canary)
		}},
		{"connect to a unix socket", func() error { return dial("unix", filepath.Join(t.Dir, "door")) }},
		{"connect to a port of the loopback", func() error { return dial("tcp4", "127.0.0.1:"+strconv.Itoa(t.Port)) }},
	}
}

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
	if len(args) == 0 {
		return refused
	}
	if args[0] == wardenPart {
		return watch(args[1:], thisSystem(providers.Host{}), os.Stdin, os.Stdout)
	}
	if args[0] == leadPart {
		return lead()
	}
	out := os.NewFile(reportFD, "report")
	say := func(r report) int {
		r.Part = args[0]
		_ = json.NewEncoder(out).Encode(r)
		return refused
	}
	syscall.CloseOnExec(orderFD)
	syscall.CloseOnExec(reportFD)
	text, err := io.ReadAll(io.NewSectionReader(os.NewFile(orderFD, "order"), 0, 16<<20))
	var o order
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err == nil {
		switch args[0] {
		case outsidePart:
			err = o.outside()
		case insidePart:
			var errno syscall.Errno
			if errno, err = o.inside(func() { say(report{}) }); err == nil {
				return say(report{Errno: int(errno)})
			}
		default:
			err = fmt.Errorf("part %q: there is none", args[0])
		}
	}
	return say(report{Fail: err.Error()})
}

// lead leads the session of the command's terminal, and starts the part outside in a group of its own:
// a command that led the session itself no key would stop, since its group were an orphaned one
// (setpgid(2)). The launcher says whether the command has the terminal ("f" or "b", a line) before it is
// started, and each time before it goes on; it is told the group, each stop, and the end.
func lead() int {
	const refused = 125
	syscall.CloseOnExec(leadFD)
	control := os.NewFile(leadFD, "control")
	said := bufio.NewScanner(control)
	if !said.Scan() {
		return refused
	}
	self, err := os.Executable()
	if err != nil {
		return refused
	}
	order, report := os.NewFile(orderFD, "order"), os.NewFile(reportFD, "report")
	child, err := os.StartProcess(self, []string{self, Verb, outsidePart}, &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, order, report},
		Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: said.Text() == "f"},
	})
	if err != nil {
		_ = json.NewEncoder(report).Encode(&struct{ Part, Fail string }{leadPart, err.Error()})
		return refused
	}
	order.Close()
	report.Close()
	fmt.Fprintln(control, "group", child.Pid)
	for {
		var status unix.WaitStatus
		switch _, err := unix.Wait4(child.Pid, &status, unix.WUNTRACED, nil); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return refused
		case status.Exited() || status.Signaled():
			fmt.Fprintln(control, "ended", uint32(status))
			return 0
		}
		fmt.Fprintln(control, "stopped", uint32(status)>>8&0xff) // Stopped() knows no SIGSTOP on a Mac
		if !said.Scan() {
			return refused // the launcher is gone
		}
		group := child.Pid
		if said.Text() != "f" {
			group = unix.Getpgrp()
		}
		signal.Ignore(syscall.SIGTTOU) // we may be in the background ourselves
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
		signal.Reset(syscall.SIGTTOU)
		_ = unix.Kill(-child.Pid, unix.SIGCONT)
	}
}

// outside becomes sandbox-exec.
func (o *order) outside() error {
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
	for _, fd := range [...]int{orderFD, reportFD} { // they are for the part inside too
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
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

// watch is the warden: it follows the processes of a run, by its label, and ends them when it is
// told to or when the launcher is gone. Then it prints the names of what there was.
func watch(args []string, s system, from io.Reader, to io.Writer) int {
	if len(args) != 1 {
		return 125
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTOU)
	t := &tracker{system: &s, label: args[0]}
	var helpers []process // of the launcher's own
	words := make(chan string)
	go func() {
		defer close(words)
		for in := bufio.NewScanner(from); in.Scan(); {
			words <- in.Text()
		}
	}()
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	for {
		select {
		case word, ok := <-words:
			if pid, err := strconv.Atoi(word); ok && err == nil {
				t.leader = pid
				continue
			}
			if text, is := strings.CutPrefix(word, "helper "); is {
				pid, _ := strconv.Atoi(text)
				all, _ := s.processes()
				helpers = append(helpers, slices.DeleteFunc(all, func(p process) bool { return p.pid != pid })...)
				continue
			}
			if !ok { // the launcher cannot end them
				all, _ := s.processes()
				for _, p := range helpers {
					if has(all, p) {
						_ = syscall.Kill(p.pid, syscall.SIGKILL)
					}
				}
			}
			names, err := t.end() // told to, or the launcher is gone
			if err != nil {
				fmt.Fprintln(to, "error "+err.Error())
				return 1
			}
			for _, name := range names {
				fmt.Fprintln(to, "ended "+strings.ToValidUTF8(name, "?"))
			}
			return 0
		case <-every.C:
			if t.leader > 0 {
				_, _ = t.look()
			}
		}
	}
}
