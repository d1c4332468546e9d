package inside

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
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
		return nil, step, err
	}
	if d := p.plan.Deadline; d > 0 {
		time.AfterFunc(d-time.Since(begun), p.expire)
	}
	return func() *Ended { return p.await(pid, children, s) }, "", nil
}

// launch starts the stage of a command, and returns when it has become that. born is told the
// process before anybody can hear of its end.
func (p *place) launch(plan *Plan, s *streams, sys *syscall.SysProcAttr, born func(pid int)) (pid int, step string, err error) {
	defer s.closeTheirs()
	planned, to, err := os.Pipe()
	if err != nil {
		return 0, "pipe", err
	}
	told, errs, err := os.Pipe()
	if err != nil {
		return 0, "pipe", err
	}
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
	if err := json.NewDecoder(told).Decode(&f); err == nil {
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

// expire ends the command when its time is up.
func (p *place) expire() {
	p.mu.Lock()
	p.expired = true
	p.mu.Unlock()
	_ = unix.Kill(-1, unix.SIGTERM) // all but pid 1
	_ = unix.Kill(-1, unix.SIGCONT)
	time.AfterFunc(p.plan.Grace, func() { _ = unix.Kill(-1, unix.SIGKILL) })
}

// await reaps all that dies until the command has, ends the rest, and returns when
// what was printed is with the launcher.
func (p *place) await(pid int, children <-chan os.Signal, s *streams) *Ended {
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
				p.died(got, status)
			}
		}
	}
	for pid != 0 {
		reap(unix.WNOHANG | unix.WUNTRACED)
		if pid != 0 {
			<-children
		}
	}
	p.mu.Lock()
	p.group, end.TimedOut = 0, p.expired
	p.mu.Unlock()
	p.endOthers()
	end.Survivors = running()
	for unix.Kill(-1, unix.SIGKILL) == nil && reap(0) {
	}
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_CHILDREN, &used) == nil {
		end.User, end.System = time.Duration(used.Utime.Nano()), time.Duration(used.Stime.Nano())
	}
	s.printed()
	return end
}

// running returns the names of the processes but pid 1 that are no zombies.
func running() (names []string) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" || e.Name() == "1" {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		name, rest, ok := strings.Cut(string(stat), ") ")
		if err != nil || !ok || strings.HasPrefix(rest, "Z") {
			continue
		}
		_, name, _ = strings.Cut(name, "(")
		names = append(names, name)
	}
	return names
}
