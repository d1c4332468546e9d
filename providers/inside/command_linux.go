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

// streams are the command's descriptors, and what carries them.
type streams struct {
	theirs [3]*os.File
	mine   []io.Closer
	pumps  Drain // of what the command prints
}

// streams opens the streams that the plan asks for.
func (p *place) streams() (*streams, error) { return p.plan.streams(p.master, p.slave, p.open) }

func (p *Plan) streams(master, slave *os.File, open func(Kind, ...byte) (*yamux.Stream, error)) (*streams, error) {
	s := &streams{}
	if p.Terminal {
		t, err := open(Terminal)
		if err != nil {
			return nil, err
		}
		s.theirs = [3]*os.File{slave, slave, slave}
		go func() {
			_, _ = io.Copy(master, t)
		}()
		s.print(t, master) // until EIO, when nobody has it open any more
		return s, nil
	}
	null, err := os.OpenFile("/dev/null", os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	s.theirs[0] = null
	if p.Stdin {
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

// start starts the command, and returns what waits for its end.
func (p *place) start() (wait func() *Ended, step string, err error) {
	s, err := p.streams()
	if err != nil {
		return nil, "open the command's streams", err
	}
	return p.startWith(s)
}

// startWith starts the command with its streams.
func (p *place) startWith(s *streams) (wait func() *Ended, step string, err error) {
	sys := &syscall.SysProcAttr{Setsid: true}
	if p.plan.Terminal {
		// pid 1 leads the session: a command that did would be in an orphaned group.
		if err := p.lead(); err != nil {
			return nil, "take the terminal", err
		}
		sys = &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: int(p.slave.Fd())}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	begun := time.Now()
	pid, step, err := p.launch(p.plan, s, sys, func(pid int) {
		p.mu.Lock()
		p.group = pid
		p.mu.Unlock()
	})
	if err != nil {
		if p.tree {
			s.printed() // who waits for what is printed hears that it is nothing
		}
		return nil, step, err
	}
	over, expired := make(chan struct{}), make(chan bool, 1)
	go func() { expired <- p.expire(begun, over) }()
	clock := func() bool {
		close(over)
		return <-expired
	}
	return func() *Ended { return p.await(pid, children, s, clock) }, "", nil
}

// launch starts the stage of a command, and returns when it has become that. born is told the
// process before anybody can hear of its end.
func (p *place) launch(plan *Plan, s *streams, sys *syscall.SysProcAttr, born func(pid int)) (pid int, step string, err error) {
	defer s.closeTheirs()
	planned, to, err := os.Pipe()
	if err != nil {
		return 0, "pipe", err
	}
	pair := os.Pipe
	if plan.Bare != nil {
		pair = socketPair
	}
	told, errs, err := pair()
	if err != nil {
		return 0, "pipe", err
	}
	sys.Credential = p.as
	attr := &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Sys: sys,
		Files: []uintptr{s.theirs[0].Fd(), s.theirs[1].Fd(), s.theirs[2].Fd(), planned.Fd(), errs.Fd()},
	}
	p.births.Lock()
	if pid, err = syscall.ForkExec("/proc/self/exe", []string{"pccrun", Verb, Stage}, attr); err == nil {
		born(pid)
	}
	p.births.Unlock()
	planned.Close()
	errs.Close()
	if err != nil {
		return 0, "start the command's stage", err
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
			return 0, "supervise sockets", err
		}
	}
	if err := json.NewDecoder(rest).Decode(&f); err == nil {
		return 0, f.Step, f.err()
	} else if !errors.Is(err, io.EOF) {
		return 0, "wait for the command's start", err
	}
	return pid, "", nil
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

// await reaps all that dies until the command has, ends the rest, and returns when
// what was printed is with the launcher. clock is stopped at the command's end, and reports whether its time was up.
func (p *place) await(pid int, children <-chan os.Signal, s *streams, clock func() bool) *Ended {
	end := &Ended{}
	reap := func(options int) (more bool) {
		for {
			var status unix.WaitStatus
			got, err := unix.Wait4(-1, &status, options, nil)
			switch {
			case err == unix.EINTR:
			case err != nil || got == 0:
				return err == nil
			case got == pid && status.Stopped():
				_ = unix.Kill(-pid, unix.SIGCONT) // nobody else could continue it
			case got == pid && status.Exited():
				end.Code = status.ExitStatus()
				pid = 0
				return true
			case got == pid && status.Signaled():
				end.Signal = int(status.Signal())
				pid = 0
				return true
			case !status.Stopped():
				p.reportEnd(got, status)
			}
		}
	}
	for pid != 0 {
		reap(unix.WNOHANG | unix.WUNTRACED)
		if pid != 0 {
			<-children
		}
	}
	end.TimedOut = clock()
	p.mu.Lock()
	p.group = 0
	p.mu.Unlock()
	p.endOthers()
	for _, s := range processes(p.egress) {
		if !s.Dead() && !procfs.IsTelemetry("/proc", s.Pid) {
			end.Survivors = append(end.Survivors, s.Name)
		}
	}
	if p.tree {
		p.endTree(reap)
	}
	for !p.tree && unix.Kill(-1, unix.SIGKILL) == nil && reap(0) {
	}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &used) == nil {
		end.User, end.System = time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())
	}
	s.printed()
	return end
}
