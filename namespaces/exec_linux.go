package namespaces

import (
	"errors"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/seccomp"
)

// ErrNoExec says that a sandbox cannot start another command: pid 1 must see it end, and be given
// its descriptors.
var ErrNoExec = errors.New("exec needs the layer pidns, and a seccomp filter that allows recvmsg")

// Executed is another command in a sandbox.
type Executed struct {
	s     *Sandbox
	which int
	gone  chan inside.Message // one, or none where the sandbox has ended
}

// executes are the other commands.
type executes struct {
	mu   sync.Mutex
	list [inside.MaxExecs]*Executed
	over bool // the sandbox has ended
}

// execs reports whether pid 1 can do what [Sandbox.Exec] asks of it.
func (p *Plan) execs() bool {
	if !p.has(profiles.LayerPidns) {
		return false
	}
	if !p.OwnFilter || !p.has(profiles.LayerSeccomp) {
		return true
	}
	_, passes, err := seccomp.Answer(p.Filter, unix.SYS_RECVMSG)
	return err == nil && passes
}

// Exec starts another command with the rights, limits and environment of the first. The
// descriptors, which are the caller's to close, become its 0, 1 and 2; if they are of a terminal,
// that becomes its own. One command starts at a time.
func (s *Sandbox) Exec(paths, argv []string, fds [3]int, terminal bool) (*Executed, error) {
	if !s.plan.execs() {
		return nil, ErrNoExec
	}
	report, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	_ = unix.SetNonblock(report[0], true) // for the runtime's poller
	told := os.NewFile(uintptr(report[0]), "report")
	defer told.Close()
	s.starting.Lock()
	defer s.starting.Unlock()
	e, err := s.execs.enroll(s)
	if err != nil {
		unix.Close(report[1])
		return nil, err
	}
	p := s.shell.Program
	mark := p.Mark()
	defer func() { p.Cut(mark) }() // its process needs no more of it
	env := s.plan.Command.Env
	if s.env != nil {
		env = s.env
	}
	s.shell.another(s.plan, paths, argv, env, terminal)
	m, err := p.Also(mark, e.which)
	if err == nil {
		err = s.link.hand(m, []int{fds[0], fds[1], fds[2], report[1]})
	}
	unix.Close(report[1])
	if err != nil {
		s.execs.dismiss(e.which)
		return nil, err
	}
	// What its process tells is a failure; that it has become the command closes the other end.
	for {
		n, err := told.Read(bytesOf(&m))
		switch {
		case err != nil || n == 0:
		case m.Kind == inside.NotExecuted:
			e.Wait()
			return nil, &ExecError{Name: argv[0], Errno: unix.Errno(m.B)}
		default:
			e.Wait()
			return nil, &StepError{Step: p.StepName(m.A), Errno: unix.Errno(m.B)}
		}
		break
	}
	return e, nil
}

// enroll finds a number for another command.
func (x *executes) enroll(s *Sandbox) (*Executed, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return nil, ErrEnded
	}
	for i, e := range x.list {
		if e == nil {
			e = &Executed{s, i, make(chan inside.Message, 1)}
			x.list[i] = e
			return e, nil
		}
	}
	return nil, errors.New(strconv.Itoa(inside.MaxExecs) + " other commands run already")
}

// dismiss forgets another command, and returns it.
func (x *executes) dismiss(which int) *Executed {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.list[which]
	x.list[which] = nil
	return e
}

// ended is told that another command has ended.
func (x *executes) ended(m inside.Message) {
	if m.B >= 0 && m.B < inside.MaxExecs {
		if e := x.dismiss(int(m.B)); e != nil {
			e.gone <- m
		}
	}
}

// end ends the waiting for other commands: all that ran inside was killed.
func (x *executes) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	for i, e := range x.list {
		if e != nil {
			close(e.gone)
			x.list[i] = nil
		}
	}
}

// Wait waits for the command's end. It was killed where the sandbox has ended.
func (e *Executed) Wait() (unix.WaitStatus, error) {
	m, there := <-e.gone
	switch {
	case !there:
		return unix.WaitStatus(unix.SIGKILL), nil
	case m.C != 0:
		return 0, &StepError{Step: "fork the command", Errno: unix.Errno(m.C)}
	}
	return unix.WaitStatus(m.A), nil
}

// Signal sends a signal to the command's process group.
func (e *Executed) Signal(sig unix.Signal) {
	e.s.link.tell(inside.Message{Kind: inside.ExecSignal, A: int32(sig), B: int32(e.which)})
}

// OpenTerminal opens a terminal of the sandbox's own: its /dev, in which nobody inside can make a
// name, is looked at from outside.
func (s *Sandbox) OpenTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Openat(s.root, "dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: "/dev/pts/ptmx", Err: err}
	}
	master = os.NewFile(uintptr(fd), "terminal")
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
		peer, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if err = errno; errno == 0 {
			return master, os.NewFile(peer, "terminal"), nil
		}
	}
	master.Close()
	return nil, nil, os.NewSyscallError("ioctl", err)
}

// another writes what the process of another command does: what [compiler.command] has the
// first's do, with descriptors that came later.
func (c *compiler) another(p *Plan, paths, argv, env []string, terminal bool) {
	fds := c.Extra()
	c.Step("start a session")
	c.Call(unix.SYS_SETSID)
	if terminal {
		c.Call(unix.SYS_IOCTL, inside.Result(fds[0]), inside.Int(unix.TIOCSCTTY), inside.Int(0))
	}
	c.Step("set the standard descriptors")
	var high [3]inside.Reg // they may be 0, 1 and 2 in another order
	for i := range high {
		high[i] = c.Get(unix.SYS_FCNTL, inside.Result(fds[i]), inside.Int(unix.F_DUPFD_CLOEXEC), inside.Int(inside.ExecFDs))
	}
	for i, fd := range high {
		c.Call(unix.SYS_DUP3, inside.Result(fd), inside.Int(i), inside.Int(0))
	}
	c.become(p, nil, paths, argv, env)
}
