package namespaces

import (
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// A helper is a child that mounts in the sandbox's namespaces for the launcher. Like pid 1 it is a
// clone of this process. It has joined the sandbox's user and mount namespaces, which a program
// with several threads cannot, but not its pid namespace: nothing inside can see it.
type helper struct {
	pid     int
	fds     []int // that it has of this process's, by number
	control int
	program *inside.Program
	mark    inside.Mark
	done    chan struct{}
}

// newHelper starts one that has these descriptors. It may live as long as the sandbox, so
// it closes all else that this process has open: a pipe to a program that
// is being started just now would not end with that program.
func (s *Sandbox) newHelper(fds ...int) (*helper, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	p, err := inside.New()
	if err != nil {
		return nil, err
	}
	h := &helper{fds: fds, control: pair[0], program: p, done: make(chan struct{})}
	p.Step("bind the helper's life to the launcher's")
	p.Call(unix.SYS_PRCTL, inside.Int(unix.PR_SET_PDEATHSIG), inside.Int(int(unix.SIGKILL)))
	p.Alive(inside.Int(pair[1]))
	p.Step("join the sandbox's namespaces") // the user namespace first: it gives the right to join the other
	p.Call(unix.SYS_SETNS, inside.Int(s.user), inside.Int(unix.CLONE_NEWUSER))
	p.Call(unix.SYS_SETNS, inside.Int(s.mnt), inside.Int(unix.CLONE_NEWNS))
	p.Step("close unneeded descriptors")
	keepOnly(p, append([]int{pair[1], s.Private}, fds...))
	p.Await()
	h.mark = p.Mark()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the helper's death signal is this thread's end
		pid, err := p.Start(inside.Options{Control: pair[1], Launcher: pair[0]})
		unix.Close(pair[1])
		h.pid = pid
		started <- err
		<-h.done
	}()
	if err := <-started; err != nil {
		close(h.done)
		unix.Close(pair[0])
		return nil, err
	}
	return h, nil
}

func (h *helper) close() {
	unix.Kill(h.pid, unix.SIGKILL)
	unix.Wait4(h.pid, nil, unix.WALL, nil)
	close(h.done)
	unix.Close(h.control)
	h.program.Free()
}

// cover has the helper mount over what was seen at a path, and waits until it has. A
// directory keeps what is mounted in it.
func (h *helper) cover(private int, v view, m *remount, seen inode) error {
	p := h.program
	p.Cut(h.mark)
	p.Step("cover " + m.path)
	target := lookUpAt(p, inside.Int(v.fd), v.relative(m.path), unix.O_NOFOLLOW)
	p.SameInode(target, seen.dev, seen.ino)
	var tree inside.Reg
	clone := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC
	if m.with != "" {
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Int(private), p.Str(m.with), inside.Int(clone|unix.AT_SYMLINK_NOFOLLOW))
	} else {
		tree = p.Get(unix.SYS_OPEN_TREE, inside.Result(target), p.Str(""), inside.Int(clone|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE))
	}
	attr := unix.MountAttr{Attr_set: attrFresh}
	if m.readonly {
		attr.Attr_set = attrHidden
	}
	p.Call(unix.SYS_MOUNT_SETATTR, inside.Result(tree), p.Str(""), inside.Int(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE), inside.Ptr(p, attr), inside.Int(unsafe.Sizeof(attr)))
	p.Call(unix.SYS_MOVE_MOUNT, inside.Result(tree), p.Str(""), inside.Result(target), p.Str(""), inside.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	p.Call(unix.SYS_CLOSE, inside.Result(tree))
	p.Call(unix.SYS_CLOSE, inside.Result(target))
	return h.carryOut()
}

// carryOut has the helper do what its program says, and waits until it has.
func (h *helper) carryOut() error {
	p := h.program
	p.Repeat(h.mark)
	if err := p.Go(h.control, inside.Supervision{}); err != nil && err != unix.EPIPE { // what it died of may be told below
		return err
	}
	timeout := unix.Timeval{Sec: int64(10 * time.Second / time.Second)}
	unix.SetsockoptTimeval(h.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	var m inside.Message
	n, _, err := unix.Recvfrom(h.control, bytesOf(&m), 0)
	// With a timeout it is not taken up again, signal(7). A helper that ended before
	// it took our message is told of once, and then what it said last: unix(7).
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
