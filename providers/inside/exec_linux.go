package inside

import (
	"errors"
	"os"
	"syscall"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
)

// other is a command that was started beside the plan's.
type other struct {
	pid    int // and its group; 0 before it is started
	signal int // that came before
	master *os.File
}

// begin starts another command's process as the plan's was started, and returns what waits for its end.
func (p *place) begin(plan *Plan, s *streams, sys *syscall.SysProcAttr) (pid int, wait func() unix.WaitStatus, step string, err error) {
	ended := make(chan unix.WaitStatus, 1)
	pid, step, err = p.launch(plan, s, sys, func(pid int) {
		if p.waits == nil {
			p.waits = map[int]chan<- unix.WaitStatus{}
		}
		p.waits[pid] = ended
	})
	return pid, func() unix.WaitStatus { return <-ended }, step, err
}

// reportEnd tells who waits for a process that it has ended.
func (p *place) reportEnd(pid int, status unix.WaitStatus) {
	p.births.Lock()
	defer p.births.Unlock()
	if ended, is := p.waits[pid]; is {
		delete(p.waits, pid)
		ended <- status
	}
}

// endOthers ends the other commands, at the end of the plan's.
func (p *place) endOthers() {
	p.births.Lock()
	defer p.births.Unlock()
	for pid, ended := range p.waits {
		_ = unix.Kill(-pid, unix.SIGKILL)
		_ = unix.Kill(pid, unix.SIGKILL)
		var status unix.WaitStatus
		for {
			if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
				break
			}
		}
		delete(p.waits, pid)
		ended <- status
	}
}

// handleExec does what the launcher says of another command.
func (p *place) handleExec(e *Exec, begin starter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.others[e.Number]
	switch {
	case len(e.Argv) > 0 && o == nil:
		if p.others == nil {
			p.others = map[int]*other{}
		}
		o = &other{}
		p.others[e.Number] = o
		go p.execute(e, o, begin)
	case o == nil: // it has ended
	case e.Signal != 0 && o.pid == 0:
		o.signal = e.Signal
	case e.Signal != 0:
		_ = unix.Kill(-o.pid, unix.Signal(e.Signal))
	case e.Size != [2]int{} && o.master != nil:
		resize(o.master, e.Size[0], e.Size[1])
	}
}

// execute runs another command.
func (p *place) execute(e *Exec, o *other, begin starter) {
	plan := *p.plan
	plan.Argv, plan.Paths, plan.Terminal, plan.Stdin = e.Argv, e.Paths, e.Terminal, true
	answer := &Exec{Number: e.Number}
	status, step, err := func() (status unix.WaitStatus, step string, err error) {
		var slave *os.File
		sys := &syscall.SysProcAttr{Setsid: true}
		if e.Terminal {
			var master *os.File
			if master, slave, err = openTerminal(e.Size[0], e.Size[1]); err != nil {
				return 0, "open a terminal", err
			}
			p.mu.Lock()
			o.master = master
			p.mu.Unlock()
			sys.Setctty = true
		}
		s, err := plan.streams(o.master, slave, func(kind Kind, _ ...byte) (*yamux.Stream, error) {
			return p.open(Executed, byte(e.Number), byte(kind))
		})
		if err != nil {
			return 0, "open the command's streams", err
		}
		defer s.printed()
		pid, wait, step, err := begin(&plan, s, sys)
		if err != nil {
			return 0, step, err
		}
		p.mu.Lock()
		o.pid = pid
		early := o.signal
		p.mu.Unlock()
		if early != 0 {
			_ = unix.Kill(-pid, unix.Signal(early))
		}
		return wait(), "", nil
	}()
	p.mu.Lock()
	delete(p.others, e.Number)
	p.mu.Unlock()
	if err != nil {
		var exec *execError
		answer.Failed = &Failed{Step: step, Text: err.Error(), Exec: errors.As(err, &exec)}
		var errno unix.Errno
		if errors.As(err, &errno) {
			answer.Failed.Errno = int(errno)
		}
	} else if answer.Ended = (&Ended{}); status.Signaled() {
		answer.Ended.Signal = int(status.Signal())
	} else {
		answer.Ended.Code = status.ExitStatus()
	}
	p.say(Message{Exec: answer})
}
