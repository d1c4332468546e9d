package inside

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// execError is that of the last execve(2).
type execError struct{ error }

// Unwrap returns the cause.
func (e *execError) Unwrap() error { return e.error }

// A command is one that runs here: the plan's, whose number is 0, or one that was started beside it.
type command struct {
	pid    int         // and its group; 0 before it is started
	early  unix.Signal // that came before
	master *os.File    // of its terminal
}

// streams are a command's descriptors, and what carries them.
type streams struct {
	theirs [3]*os.File
	master *os.File // of its terminal
	mine   []io.Closer
	pumps  Drain // of what the command prints
}

// streams opens the streams that a plan asks for.
func (p *place) streams(plan *Plan, open func(Kind, ...byte) (*yamux.Stream, error)) (s *streams, err error) {
	s = &streams{}
	if plan.Terminal {
		var slave *os.File
		if s.master, slave, err = openTerminal(plan.Columns, plan.Rows); err != nil {
			return nil, err
		}
		if p.as != nil { // else the command opens /dev/tty alone
			_ = slave.Chown(int(p.as.Uid), int(p.as.Gid))
		}
		t, err := open(Terminal)
		if err != nil {
			return nil, err
		}
		s.theirs = [3]*os.File{slave, slave, slave}
		go func() {
			_, _ = io.Copy(s.master, t)
		}()
		s.print(t, s.master) // until EIO, when nobody has it open any more
		return s, nil
	}
	null, err := os.OpenFile("/dev/null", os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	s.theirs[0] = null
	if plan.Stdin {
		in, err := open(Stdin)
		if err != nil {
			return nil, err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.theirs[0] = r
		go func() {
			_, _ = io.Copy(w, in)
			w.Close()
			_ = in.Close()
		}()
	}
	for i, kind := range [...]Kind{Stdout, Stderr} {
		out, err := open(kind)
		if err != nil {
			return nil, err
		}
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.theirs[1+i] = w
		s.print(out, r)
	}
	return s, nil
}

func (s *streams) print(to *yamux.Stream, from *os.File) {
	s.mine = append(s.mine, to)
	s.pumps.Go(to, from)
}

// printed returns when all that the command has printed is on its way.
func (s *streams) printed() {
	s.pumps.Wait()
	for _, c := range s.mine {
		_ = c.Close()
	}
}

func (s *streams) closeTheirs() {
	for _, f := range s.theirs {
		_ = f.Close() // a terminal's is one for all
	}
}

// attributes are those of the process that becomes the command: it leads a session of its own.
func (s *streams) attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: s.master != nil, Credential: as}
}

// start starts the plan's command, and returns what waits for its end and ends the rest.
func (p *place) start() (wait func() *Ended, step string, err error) {
	s, err := p.streams(p.plan, p.open)
	if err != nil {
		return nil, "open the command's streams", err
	}
	return p.startWith(s)
}

// startWith starts the command with its streams.
func (p *place) startWith(s *streams) (wait func() *Ended, step string, err error) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	begun := time.Now()
	p.enter(0)
	p.setOver(false)
	pid, status, step, err := p.launch(p.plan, s)
	if err != nil {
		s.printed() // who waits for what is printed hears that it is nothing
		return nil, step, err
	}
	p.started(0, pid, s)
	over, expired := make(chan struct{}), make(chan bool, 1)
	go func() { expired <- p.expire(begun, over) }()
	return func() *Ended {
		end := p.await(status, children)
		p.leave(0)
		close(over)
		end.TimedOut = <-expired
		p.endRest(end)
		s.printed()
		return end
	}, "", nil
}

// launch starts the stage of a command, and returns when it has become that. Its end comes from [place.reap].
func (p *place) launch(plan *Plan, s *streams) (pid int, ended <-chan unix.WaitStatus, step string, err error) {
	defer s.closeTheirs()
	planned, to, err := os.Pipe()
	if err != nil {
		return 0, nil, "pipe", err
	}
	pair := os.Pipe
	if plan.Bare != nil {
		pair = socketPair
	}
	told, errs, err := pair()
	if err != nil {
		return 0, nil, "pipe", err
	}
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Sys: s.attributes(p.as),
		Files: []uintptr{s.theirs[0].Fd(), s.theirs[1].Fd(), s.theirs[2].Fd(), planned.Fd(), errs.Fd()},
	}
	pid, ended, err = p.fork(attr)
	planned.Close()
	errs.Close()
	if err != nil {
		return 0, nil, "start the command's stage", err
	}
	s.closeTheirs()
	go func() {
		_ = json.NewEncoder(to).Encode(plan)
		to.Close()
	}()
	defer told.Close()
	var f Failed
	var rest io.Reader = told
	if plan.Bare != nil && len(plan.Bare.Sockets) > 0 {
		if rest, err = plan.Bare.supervise(told); err != nil {
			return 0, nil, "supervise sockets", err
		}
	}
	if err := json.NewDecoder(rest).Decode(&f); err == nil {
		return 0, nil, f.Step, f.err()
	} else if !errors.Is(err, io.EOF) {
		return 0, nil, "wait for the command's start", err
	}
	return pid, ended, "", nil
}

// fork starts a stage. Nothing is started once the plan's command has ended.
func (p *place) fork(attr *syscall.ProcAttr) (pid int, ended <-chan unix.WaitStatus, err error) {
	p.births.Lock()
	defer p.births.Unlock()
	if p.over {
		return 0, nil, os.ErrProcessDone
	}
	if pid, err = syscall.ForkExec("/proc/self/exe", []string{"pccrun", Verb, Stage}, attr); err != nil {
		return 0, nil, err
	}
	if p.waits == nil {
		p.waits = map[int]chan<- unix.WaitStatus{}
	}
	status := make(chan unix.WaitStatus, 1)
	p.waits[pid] = status
	return pid, status, nil
}

// failure says why a step failed.
func failure(step string, err error) *Failed {
	var exec *execError
	f := &Failed{Step: step, Text: err.Error(), Exec: errors.As(err, &exec)}
	var errno unix.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
	}
	return f
}

func (f *Failed) err() error {
	var err error = errors.New(f.Text)
	if f.Errno != 0 {
		err = unix.Errno(f.Errno)
	}
	if f.Exec {
		return &execError{err}
	}
	return err
}

// expire ends the command when its time is up, and reports that it was. It returns when the command
// is over: nothing of it signals what is started later.
func (p *place) expire(begun time.Time, over <-chan struct{}) bool {
	if p.plan.Deadline == 0 {
		return false
	}
	plan := p.plan
	select {
	case <-over:
		return false
	case <-time.After(plan.Deadline - time.Since(begun)):
	}
	_ = p.all(unix.SIGTERM)
	_ = p.all(unix.SIGCONT)
	select {
	case <-over:
		return true
	case <-time.After(plan.Grace):
	}
	_ = p.all(unix.SIGKILL)
	<-over
	return true
}

// await reaps all that dies until the plan's command has.
func (p *place) await(ended <-chan unix.WaitStatus, children <-chan os.Signal) *Ended {
	for {
		for p.reap(unix.WNOHANG | unix.WUNTRACED) {
		}
		select {
		case status := <-ended:
			return endOf(status)
		case <-children:
		}
	}
}

// endOf says how a process ended.
func endOf(status unix.WaitStatus) *Ended {
	if status.Signaled() {
		return &Ended{Signal: int(status.Signal())}
	}
	return &Ended{Code: status.ExitStatus()}
}

// reap takes in one process that has ended, or stopped, and reports whether there was one.
func (p *place) reap(options int) bool {
	var status unix.WaitStatus
	got, err := unix.Wait4(-1, &status, options, nil)
	for err == unix.EINTR {
		got, err = unix.Wait4(-1, &status, options, nil)
	}
	if err != nil || got == 0 {
		return false
	}
	p.births.Lock()
	defer p.births.Unlock()
	switch ended, is := p.waits[got]; {
	case !is:
	case status.Stopped():
		_ = unix.Kill(-got, unix.SIGCONT) // nobody else could continue a command
	default:
		delete(p.waits, got)
		ended <- status
	}
	return true
}

// endRest ends what runs when the plan's command has ended: the other commands, and what survived.
func (p *place) endRest(end *Ended) {
	p.setOver(true)
	for p.killOthers() && p.reap(0) {
	}
	for _, s := range processes(p.egress) {
		if !s.Dead() && !procfs.IsTelemetry("/proc", s.Pid) {
			end.Survivors = append(end.Survivors, s.Name)
		}
	}
	if p.tree {
		p.endTree()
	} else if unix.Kill(-1, unix.SIGKILL) == nil {
		for p.reap(0) {
		}
	}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &used) == nil {
		end.User, end.System = time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())
	}
}

func (p *place) setOver(over bool) {
	p.births.Lock()
	defer p.births.Unlock()
	p.over = over
}

// killOthers kills the other commands, and reports whether there are any.
func (p *place) killOthers() bool {
	p.births.Lock()
	defer p.births.Unlock()
	for pid := range p.waits {
		_ = unix.Kill(-pid, unix.SIGKILL)
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return len(p.waits) > 0
}

// enter enters a command by its number, which has none yet.
func (p *place) enter(number int) (is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.commands == nil {
		p.commands = map[int]*command{}
	}
	if is = p.commands[number] == nil; is {
		p.commands[number] = &command{}
	}
	return is
}

// leave forgets a command that has ended.
func (p *place) leave(number int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.commands, number)
}

// started notes the process of a command, and sends the signal that came before.
func (p *place) started(number, pid int, s *streams) {
	p.mu.Lock()
	c := p.commands[number]
	c.pid, c.master = pid, s.master
	p.mu.Unlock()
	if c.early != 0 {
		p.signal(number, c.early)
	}
}

// signal sends a signal to a command's process group; what has left it is ended with the plan's command.
func (p *place) signal(number int, sig unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c := p.commands[number]; {
	case c == nil: // it has ended
	case c.pid == 0:
		c.early = sig
	default:
		_ = unix.Kill(-c.pid, sig)
	}
}

// resize gives a command's terminal another size.
func (p *place) resize(number, columns, rows int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.commands[number]; c != nil && c.master != nil {
		resize(c.master, columns, rows)
	}
}

// A starter starts the process of another command, and returns what waits for its end.
type starter func(*Plan, *streams) (pid int, wait func() unix.WaitStatus, step string, err error)

// begin starts another command's process as the plan's was started.
func (p *place) begin(plan *Plan, s *streams) (pid int, wait func() unix.WaitStatus, step string, err error) {
	pid, ended, step, err := p.launch(plan, s)
	return pid, func() unix.WaitStatus { return <-ended }, step, err
}

// handleExec does what the launcher says of another command.
func (p *place) handleExec(e *Exec, begin starter) {
	switch {
	case len(e.Argv) > 0 && p.enter(e.Number):
		go p.execute(e, begin)
	case e.Signal != 0:
		p.signal(e.Number, unix.Signal(e.Signal))
	case e.Columns != 0 || e.Rows != 0:
		p.resize(e.Number, e.Columns, e.Rows)
	}
}

// execute runs another command, and answers how it ended.
func (p *place) execute(e *Exec, begin starter) {
	plan := *p.plan
	plan.Argv, plan.Paths, plan.Screen, plan.Stdin = e.Argv, e.Paths, e.Screen, true
	answer := &Exec{Number: e.Number}
	s, err := p.streams(&plan, func(kind Kind, _ ...byte) (*yamux.Stream, error) {
		return p.open(Executed, byte(e.Number), byte(kind))
	})
	if err != nil {
		answer.Failed = failure("open the command's streams", err)
	} else if pid, wait, step, err := begin(&plan, s); err != nil {
		answer.Failed = failure(step, err)
		s.printed()
	} else {
		p.started(e.Number, pid, s)
		answer.Ended = endOf(wait())
		s.printed()
	}
	p.leave(e.Number)
	p.say(Message{Exec: answer})
}
