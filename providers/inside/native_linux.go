package inside

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
)

// launched is a run of the native provider.
type launched struct {
	*exec.Cmd
	events, said, started *os.File
	mine                  []*os.File
}

// launch prepares a run. The request goes over a socket, and what the run asks comes over it: no word of it is an argument, and
// nobody finds it in /proc.
func (sp *spool) launch(asked *Remote) (*launched, error) {
	l := &launched{Cmd: exec.Command("/proc/self/exe", Verb, Launch, sp.own)}
	l.Args[0], l.Dir, l.Env = "pccrun", "/", []string{"PATH=" + os.Getenv("PATH")}
	l.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: sp.place.as}
	request, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	l.ExtraFiles, l.mine = []*os.File{theirs}, []*os.File{request}
	for _, mine := range []**os.File{&l.events, &l.said, &l.started} {
		if *mine, theirs, err = os.Pipe(); err != nil {
			return nil, err
		}
		l.ExtraFiles, l.mine = append(l.ExtraFiles, theirs), append(l.mine, *mine)
	}
	sp.place.answers = json.NewEncoder(request)
	go func() {
		_ = sp.place.answers.Encode(asked)
		sp.passQuestions(request)
	}()
	return l, nil
}

// passQuestions passes on what the run asks, to its end.
func (sp *spool) passQuestions(f *os.File) {
	defer f.Close()
	for in := json.NewDecoder(f); ; {
		var q Question
		if in.Decode(&q) != nil {
			return
		}
		sp.place.say(Message{Question: &q})
	}
}

// begin starts it and closes what is its own.
func (l *launched) begin() error {
	err := l.Start()
	for _, f := range l.ExtraFiles {
		f.Close()
	}
	if err != nil {
		for _, f := range l.mine {
			f.Close()
		}
	}
	return err
}

// readEvents reads the events of a run to their end. each may be nil.
func (l *launched) readEvents(each func(line []byte, e events.Event)) (refused *events.Refused, exit *events.Exit) {
	defer l.events.Close()
	r := bufio.NewScanner(l.events)
	r.Buffer(nil, 4<<20)
	for r.Scan() {
		record, err := events.Parse(r.Bytes())
		if err != nil {
			continue
		}
		switch ev := record.Event.(type) {
		case events.Refused:
			refused = &ev
		case events.Exit:
			exit = &ev
		}
		if each != nil {
			each(r.Bytes(), record.Event)
		}
	}
	return refused, exit
}

// complaint is what a run said itself, for where its events say nothing.
func complaint(said io.ReadCloser) string {
	defer said.Close()
	text, _ := io.ReadAll(io.LimitReader(said, 4<<10))
	go func() { _, _ = io.Copy(io.Discard, said) }()
	return strings.TrimPrefix(strings.Join(strings.Fields(events.Clean(string(text))), " "), "pccrun: ")
}

// command runs what was asked for by the native provider.
func (sp *spool) command() error {
	asked := *sp.asked
	l, err := sp.launch(&asked)
	if err != nil {
		return err
	}
	sp.place.plan = &Plan{Screen: asked.Screen, Stdin: asked.Stdin}
	s, err := sp.place.streams(sp.place.plan, sp.place.open)
	if err != nil {
		return err
	}
	l.Stdin, l.Stdout, l.Stderr, l.SysProcAttr = s.theirs[0], s.theirs[1], s.theirs[2], s.attributes(sp.place.as)
	err = l.begin()
	s.closeTheirs()
	if err != nil {
		return err
	}
	sp.place.enter(0)
	sp.place.started(0, l.Process.Pid, s) // for its terminal: signals go to the process alone
	sp.place.mu.Lock()
	sp.child = l.Process
	sp.place.mu.Unlock()
	said := make(chan string, 1)
	go func() { said <- complaint(l.said) }()
	go func() {
		defer l.started.Close()
		if n, _ := l.started.Read(make([]byte, 1)); n == 1 {
			sp.place.say(Message{Started: true})
		}
	}()
	go sp.place.followLauncher(sp.in, func(sig unix.Signal) {
		sp.place.mu.Lock()
		defer sp.place.mu.Unlock()
		if sp.child != nil && !sp.ended {
			_ = sp.child.Signal(sig)
		}
	}, sp.executeThere)
	refused, exit := l.readEvents(func(line []byte, ev events.Event) {
		switch ev.(type) {
		case events.NetDecision, events.NetClosed, events.Denial, events.Warning, events.Hidden:
			sp.place.say(Message{Event: slices.Clone(line)})
		}
	})
	err = l.Wait()
	sp.place.mu.Lock()
	sp.ended = true
	sp.place.mu.Unlock()
	s.printed()
	done := &Done{}
	var status *exec.ExitError
	if errors.As(err, &status) {
		w := status.Sys().(syscall.WaitStatus)
		if done.Code = w.ExitStatus(); w.Signaled() {
			done.Code, done.Signal = 0, int(w.Signal())
		}
	}
	if exit != nil {
		done.Code, done.Signal = exit.Code, 0
		if exit.Signal != "" {
			done.Signal = int(unix.SignalNum(exit.Signal))
		}
		done.TimedOut, done.OOM, done.Memory, done.Processes = exit.TimedOut, exit.OOM, exit.MaxMemory, exit.Processes
		done.User, done.System = time.Duration(exit.UserMS)*time.Millisecond, time.Duration(exit.SystemMS)*time.Millisecond
		done.Read, done.Written, done.IOBy = exit.ReadBytes, exit.WriteBytes, exit.IOBy
	}
	if refused != nil {
		done.Refused = &Refusal{Code: done.Code, Guarantee: refused.Guarantee, Text: refused.Cause, Hint: refused.Hint}
	} else if exit == nil && done.Code == failed {
		done.Refused = &Refusal{Code: failed, Text: <-said}
	}
	sp.place.say(Message{Done: done})
	return nil
}

// executeThere has another command started by the run, as `pccrun exec` does on any machine.
func (sp *spool) executeThere(plan *Plan, s *streams) (pid int, wait func() unix.WaitStatus, step string, err error) {
	c := exec.Command("/proc/self/exe", "exec", "--")
	c.Args[0], c.Dir, c.SysProcAttr = "pccrun", sp.asked.Dir, s.attributes(sp.place.as)
	for _, arg := range plan.Argv {
		c.Args = append(c.Args, string(arg))
	}
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + sp.asked.Policy.Home, "XDG_STATE_HOME=" + filepath.Join(sp.own, "STATE")}
	c.Stdin, c.Stdout, c.Stderr = s.theirs[0], s.theirs[1], s.theirs[2]
	err = c.Start()
	s.closeTheirs()
	if err != nil {
		return 0, nil, "start pccrun exec", err
	}
	return c.Process.Pid, func() unix.WaitStatus {
		_ = c.Wait()
		return unix.WaitStatus(c.ProcessState.Sys().(syscall.WaitStatus))
	}, "", nil
}
