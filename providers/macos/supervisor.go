//go:build unix

package macos

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The supervisor is the one process beside the command. It leads a session of its own, with the
// command's terminal if there is one; the command is a process group in it. A command that led the
// session itself could not be stopped by a key, since its group would be an orphaned one
// (setpgid(2)). It and the launcher share a stream:
//
//	launcher                                supervisor
//	an [order]                          -->
//	                                    <-- group       of the command, which is being started
//	                                    <-- begun       it runs
//	                                    <-- stopped     by a signal, where it has a terminal
//	foreground, background              -->             it goes on, with the terminal or without
//	signal N                            -->             to its group
//	end                                 -->             kill all that is the run's
//	(end of the stream)                 -->             the same
//	                                    <-- ended       the last: nothing of the run is left
//
// All of it is JSON: what the launcher writes after the order are strings, what the supervisor writes
// [event]s. What log(1) prints of the run's denials goes to the launcher by a pipe of its own.

// An event is what the supervisor says: one of these.
type event struct {
	Group   int     `json:"group,omitempty"`
	Begun   bool    `json:"begun,omitempty"`
	Stopped int     `json:"stopped,omitempty"` // by which signal
	Ended   *ending `json:"ended,omitempty"`
}

// An ending is how the command ended, or why it did not begin.
type ending struct {
	Status       uint32 // as wait(2) has it
	User, System time.Duration
	Failed       *report  // by which the command did not begin, if a part has said so
	Survivors    []string // what ran on when the command was gone, by name, and was killed
	Error        string   // why something of it may run on
}

// supervise starts sandbox-exec, and follows it until nothing of the run is left.
func supervise(system system, control, log *os.File) error {
	o, in := new(order), json.NewDecoder(control)
	if err := in.Decode(o); err != nil {
		return err
	}
	endTrial, err := o.Trial.controls()
	if err != nil {
		return err
	}
	defer endTrial()
	given, give, err := os.Pipe()
	if err != nil {
		return err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	child, err := os.StartProcess(o.Exec[0], o.Exec, &os.ProcAttr{
		Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, given, to},
		Sys: &syscall.SysProcAttr{Setpgid: true, Foreground: o.Terminal && o.Foreground},
	})
	if err != nil {
		return err
	}
	given.Close()
	to.Close()
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU) // which the command would have inherited
	say := func(e event) { _ = json.NewEncoder(control).Encode(e) }
	say(event{Group: child.Pid})
	failed := make(chan *report, 1)
	go func() {
		_ = json.NewEncoder(give).Encode(o)
		give.Close()
		begun, why := readReports(from)
		endTrial()
		if begun {
			say(event{Begun: true})
		}
		failed <- why
	}()
	t := &tracker{system: &system, leader: child.Pid, label: o.Label}
	defer o.followLog(log)()
	words, states := decoded[string](in), waitFor(child.Pid, o.Terminal)
	every := time.NewTicker(sampleEvery)
	defer every.Stop()
	for over := false; ; {
		select {
		case word, open := <-words:
			verb, number, _ := strings.Cut(word, " ")
			n, _ := strconv.Atoi(number)
			switch {
			case verb == "signal":
				_ = unix.Kill(-child.Pid, unix.Signal(n))
			case verb == "end" || !open:
				if over = true; !open {
					words = nil
				}
				_, _ = t.end()
			default:
				goOn(child.Pid, verb == "foreground")
			}
		case <-every.C:
			if over {
				_, _ = t.end()
			} else {
				_, _ = t.look()
			}
		case s := <-states:
			if !s.status.Exited() && !s.status.Signaled() {
				say(event{Stopped: int(s.status) >> 8 & 0xff}) // Stopped() knows no SIGSTOP on a Mac
				continue
			}
			names, err := t.end()
			e := &ending{
				Status: uint32(s.status), Failed: <-failed, Survivors: names,
				User: time.Duration(s.usage.Utime.Nano()), System: time.Duration(s.usage.Stime.Nano()),
			}
			if err != nil {
				e.Error = err.Error()
			}
			say(event{Ended: e})
			return nil
		}
	}
}

// readReports reads what the part inside says, until it has become the command or has ended. The command
// has begun where that was ready, and has said nothing since.
func readReports(from *os.File) (begun bool, failed *report) {
	defer from.Close()
	for one := range decoded[report](json.NewDecoder(from)) {
		begun = one == report{}
		if !begun {
			failed = &one
		}
	}
	return begun, failed
}

// decoded returns the values of a stream, until it ends or says something else.
func decoded[T any](from *json.Decoder) <-chan T {
	values := make(chan T)
	go func() {
		defer close(values)
		for {
			var one T
			if from.Decode(&one) != nil {
				return
			}
			values <- one
		}
	}()
	return values
}

// A waited is what wait(2) says of a process.
type waited struct {
	status unix.WaitStatus
	usage  unix.Rusage
}

// waitFor waits for a child: for its end, and for each stop before it where they count.
func waitFor(pid int, stops bool) <-chan waited {
	flags, states := 0, make(chan waited)
	if stops {
		flags = unix.WUNTRACED
	}
	go func() {
		for {
			var s waited
			if _, err := unix.Wait4(pid, &s.status, flags, &s.usage); err == unix.EINTR {
				continue
			}
			states <- s
			if s.status.Exited() || s.status.Signaled() {
				return
			}
		}
	}()
	return states
}

// followLog starts the reader of the system's log, which ends when the returned function is called: after
// what was denied last has come.
func (o *order) followLog(to *os.File) (end func()) {
	defer to.Close()
	cmd := exec.Command(o.Log[0], o.Log[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=/usr/bin:/bin"}, to, to
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(to, "log: "+err.Error())
		return func() {}
	}
	return func() {
		time.Sleep(logDelay)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// logDelay is how long a line of the log may be on its way.
const logDelay = 200 * time.Millisecond

// goOn lets a group go on that was stopped, with the terminal or without.
func goOn(group int, foreground bool) {
	owner := group
	if !foreground {
		owner = unix.Getpgrp()
	}
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, owner)
	_ = unix.Kill(-group, unix.SIGCONT)
}

// A supervisor is what the launcher has of it.
type supervisor struct {
	cmd     *exec.Cmd
	control *json.Encoder
	events  <-chan event
}

// startSupervisor starts it, in a session of its own: what ends the launcher does not end it.
func (r *running) startSupervisor(o *order) (*supervisor, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	r.close = append(r.close, func() { ours.Close() })
	log, err := r.readLog()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	stage := append(slices.Clone(r.provider.system.stage), supervisorPart)
	s := &supervisor{cmd: exec.Command(stage[0], stage[1:]...), control: json.NewEncoder(ours), events: decoded[event](json.NewDecoder(ours))}
	s.cmd.Dir, s.cmd.Env, s.cmd.ExtraFiles = "/", []string{}, []*os.File{theirs, log}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: o.Terminal} // 0 is the terminal
	if err = r.streams.give(s.cmd); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", stage[0], err)
	}
	if r.streams.slave != nil {
		r.streams.slave.Close() // the relay's end comes when the command's is closed
	}
	_ = s.control.Encode(o) // its end says that it could not be read
	return s, nil
}

func (s *supervisor) tell(word string) { _ = s.control.Encode(word) }

func (s *supervisor) signal(sig int) { s.tell("signal " + strconv.Itoa(sig)) }

// socketPair makes the two ends of a stream.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range pair {
		syscall.CloseOnExec(fd)
	}
	return os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control"), nil
}
