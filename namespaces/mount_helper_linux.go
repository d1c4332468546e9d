package namespaces

import (
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// A helper mounts in a sandbox's namespaces for the launcher, through a child. Like pid 1 that is a
// clone of this process. It joins the sandbox's user and mount namespaces, which a program
// with several threads cannot, but not its pid namespace: nothing inside can see it.
type helper struct {
	pid     int   // of the child, 0 while there is none
	fds     []int // that the child has of this process's, by number
	control int
	program *inside.Program
	mark    inside.Mark
	ended   chan struct{}
}

// start starts a child with descriptors, if there is none that has one of them. It may live as long as the sandbox, so
// it closes all else that this process has open: a pipe to a program that
// is being started just now would not end with that program.
func (h *helper) start(s *Sandbox, need int, fds ...int) error {
	if h.pid != 0 && slices.Contains(h.fds, need) {
		return nil
	}
	h.end()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	p, err := inside.New()
	if err != nil {
		return err
	}
	p.Step("bind the helper's life to the launcher's")
	p.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))
	p.Alive(inside.Int(pair[1]))
	p.Step("join the sandbox's namespaces") // the user namespace first: it gives the right to join the other
	p.Call(unix.SYS_SETNS, inside.Int(s.user), inside.Int(unix.CLONE_NEWUSER))
	p.Call(unix.SYS_SETNS, inside.Int(s.mnt), inside.Int(unix.CLONE_NEWNS))
	p.Step("close unneeded descriptors")
	keepOnly(p, append([]int{pair[1], s.Private}, fds...))
	p.Await()
	h.fds, h.control, h.program, h.mark, h.ended = fds, pair[0], p, p.Mark(), make(chan struct{})
	started, ended := make(chan error), h.ended
	go func() {
		runtime.LockOSThread() // the child's death signal is this thread's end
		var err error
		h.pid, err = p.Start(inside.Options{Control: pair[1], Launcher: pair[0]})
		unix.Close(pair[1])
		started <- err
		<-ended
	}()
	if err := <-started; err != nil {
		h.pid = 0
		close(ended)
		unix.Close(pair[0])
		p.Free()
		return err
	}
	return nil
}

// end ends the child, if there is one.
func (h *helper) end() {
	if h.pid == 0 {
		return
	}
	unix.Kill(h.pid, unix.SIGKILL)
	unix.Wait4(h.pid, nil, unix.WALL, nil)
	h.pid = 0
	close(h.ended)
	unix.Close(h.control)
	h.program.Free()
}

// do has the child make the calls that are written to its program, and waits until it has. After
// a call that failed there is no child any more.
func (h *helper) do(write func(p *inside.Program)) error {
	h.program.Cut(h.mark)
	write(h.program)
	h.program.Repeat(h.mark)
	err := h.run()
	if err != nil {
		h.end()
	}
	return err
}

func (h *helper) run() error {
	p := h.program
	if err := p.Go(h.control, inside.Supervision{}); err != nil && err != unix.EPIPE { // what it died of may be told below
		return err
	}
	timeout := unix.Timeval{Sec: int64(10 * time.Second / time.Second)}
	unix.SetsockoptTimeval(h.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	var m inside.Message
	n, _, err := unix.Recvfrom(h.control, bytesOf(&m), 0)
	// With a timeout it is not taken up again, signal(7). A child that ended before
	// it took our message is reported once, and then what it said last: unix(7).
	for err == unix.EINTR || err == unix.ECONNRESET {
		n, _, err = unix.Recvfrom(h.control, bytesOf(&m), 0)
	}
	switch {
	case err != nil:
		return os.NewSyscallError("recvfrom", err)
	case n == 0:
		return ErrEnded
	case m.Kind == inside.Failed:
		return &StepError{Step: p.StepName(m.A), Errno: unix.Errno(m.B)}
	}
	return nil
}
