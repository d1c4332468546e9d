package namespaces

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pump carries one standard descriptor between the host's file, pipe or socket
// and a pipe of the sandbox's own.
//
// From a file or a pipe of the host, the command must not get more than it
// reads: a shell may read its script from there, line by line, and the next
// line is not the command's. What it left is given back to a file, and is not
// taken from a pipe before the command has read it ([pump.exact]).
type pump struct {
	name   string
	host   int // 0, 1 or 2
	inner  int // the launcher's end of the pipe
	input  bool
	kind   uint32          // the host's end: S_IFREG, S_IFIFO, S_IFSOCK, …
	single bool            // no other of the three is the same
	gone   <-chan struct{} // closed when the command is
	log    io.Writer       // gets what passes too; nil for nobody
}

// exactly is how much of a pipe is passed on without being taken from it
// before the command has read it, which costs two switches a page. A command
// that has read more, and leaves a rest, loses at most what its pipe holds.
const exactly = 1 << 20

// atOnce bounds one splice(2), bytes.
const atOnce = 1 << 20

// run copies until one side is gone, and lets go of the host's end: whoever is
// there learns of it now.
func (p *pump) run() error {
	err := p.copy()
	unix.Close(p.inner)
	if p.single && p.host < 2 { // the launcher has something to say at the end, on standard error
		if null, e := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); e == nil {
			unix.Dup3(null, p.host, unix.O_CLOEXEC)
			unix.Close(null)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

func (p *pump) copy() error {
	switch streams := p.kind == unix.S_IFIFO || p.kind == unix.S_IFSOCK; {
	case p.input && p.kind == unix.S_IFIFO:
		return p.exact(p.inner)
	case p.input && p.kind == unix.S_IFSOCK:
		return bulk(p.host, p.inner)
	case p.input:
		return p.read(p.inner)
	case streams && p.log == nil:
		return bulk(p.inner, p.host)
	}
	return p.write(p.inner)
}

// write passes on what is for a file, or is to be kept. (splice(2) cannot append.)
func (p *pump) write(inner int) error {
	buffer := make([]byte, 64<<10)
	wait, end := idle(inner, inner)
	defer end()
	for {
		_ = wait() // the call says what is wrong
		n, err := retry(func() (int, error) { return unix.Read(inner, buffer) })
		if n <= 0 {
			return err
		}
		if p.log != nil {
			_, _ = p.log.Write(buffer[:n]) // what becomes of the log is no matter of the command's
		}
		for sent := 0; sent < n; {
			m, err := retry(func() (int, error) { return unix.Write(p.host, buffer[sent:n]) })
			switch {
			case err == unix.EAGAIN: // whoever shares the other end wants it so
				if err := waitFor(p.host, unix.POLLOUT, inner); err != nil {
					return errorOf(err)
				}
			case err != nil:
				return errorOf(err) // a full disk: the command gets EPIPE, and the user the error
			default:
				sent += m
			}
		}
	}
}

// read passes a file on, and puts its offset back to where the command
// stopped.
func (p *pump) read(inner int) error {
	buffer := make([]byte, 64<<10)
	passed := 0
	for {
		n, err := retry(func() (int, error) { return unix.Read(p.host, buffer) })
		if err != nil {
			return err
		}
		if n == 0 {
			return p.rest(inner, passed)
		}
		for sent := 0; sent < n; {
			m, err := retry(func() (int, error) { return unix.Write(inner, buffer[sent:n]) })
			if err != nil { // EPIPE: nobody reads any more
				p.giveBack(n - sent + min(held(inner), passed))
				return nil
			}
			sent, passed = sent+m, passed+m
		}
	}
}

// rest lets the command see the end of the file, and gives back at the end what
// it has not read.
func (p *pump) rest(inner, passed int) error {
	reader, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", inner), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open again", Path: p.name, Err: err}
	}
	defer unix.Close(reader)
	if err := unix.Dup3(reader, inner, unix.O_CLOEXEC); err != nil { // closes the end that writes
		return os.NewSyscallError("dup3", err)
	}
	<-p.gone
	p.giveBack(min(held(reader), passed))
	return nil
}

// giveBack leaves the last n bytes of a file to whoever reads it next. The
// caller bounds them by what was passed on: the command can write into its own
// pipe, and must not choose what the host reads again.
func (p *pump) giveBack(n int) { unix.Seek(p.host, -int64(n), io.SeekCurrent) }

// exact passes a pipe on by tee(2), one page at a time, and takes from it what
// the command has read.
func (p *pump) exact(inner int) error {
	if _, err := unix.FcntlInt(uintptr(inner), unix.F_SETPIPE_SZ, os.Getpagesize()); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	for passed := 0; passed < exactly; {
		if err := waitFor(p.host, unix.POLLIN, inner); err != nil {
			return errorOf(err)
		}
		n, err := retry(func() (int, error) {
			n, err := unix.Tee(p.host, inner, os.Getpagesize(), unix.SPLICE_F_NONBLOCK)
			return int(n), err
		})
		switch {
		case err == unix.EAGAIN:
			// Somebody else was faster, or the command itself has filled its
			// page: there is nothing to do until that is empty.
			if err := waitFor(inner, unix.POLLOUT, inner); err != nil {
				return errorOf(err)
			}
			continue
		case n <= 0:
			return errorOf(err)
		}
		// Its one page has room again when it is empty.
		err = waitFor(inner, unix.POLLOUT, inner)
		take(p.host, n-held(inner))
		if err != nil {
			return errorOf(err)
		}
		passed += n
	}
	unix.FcntlInt(uintptr(inner), unix.F_SETPIPE_SZ, 64<<10)
	return bulk(p.host, inner)
}

// bulk moves one pipe into another until one of them is closed.
func bulk(from, to int) error {
	wait, end := idle(from, to)
	defer end()
	for {
		if err := wait(); err != nil {
			return errorOf(err)
		}
		n, err := retry(func() (int, error) {
			n, err := unix.Splice(from, nil, to, nil, atOnce, unix.SPLICE_F_NONBLOCK)
			return int(n), err
		})
		switch {
		case err == unix.EAGAIN:
			// The other end is full, since this one has something.
			if err := waitFor(to, unix.POLLOUT, to); err != nil {
				return errorOf(err)
			}
		case n <= 0:
			return errorOf(err)
		}
	}
}

// idle returns what waits as [waitFor] does until there is something to read, however long, and takes no thread for that: an
// epoll(7) of both ends waits in the runtime's poller. Where it cannot be made, a thread waits.
func idle(from, pipe int) (wait func() error, end func()) {
	blocked := func() error { return waitFor(from, unix.POLLIN, pipe) }
	both, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return blocked, func() {}
	}
	err = unix.EpollCtl(both, unix.EPOLL_CTL_ADD, from, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(from)})
	if err == nil && pipe != from {
		err = unix.EpollCtl(both, unix.EPOLL_CTL_ADD, pipe, &unix.EpollEvent{Fd: int32(pipe)}) // its error comes unasked
	}
	if err == nil {
		err = unix.SetNonblock(both, true) // by which the runtime knows that it can be waited for
	}
	if err != nil {
		unix.Close(both)
		return blocked, func() {}
	}
	f := os.NewFile(uintptr(both), "both ends")
	conn, err := f.SyscallConn()
	if err != nil {
		return blocked, func() { f.Close() }
	}
	wait = func() (ready error) {
		var found [2]unix.EpollEvent
		err := conn.Read(func(fd uintptr) bool {
			n, err := retry(func() (int, error) { return unix.EpollWait(int(fd), found[:], 0) })
			for _, e := range found[:max(n, 0)] {
				if int(e.Fd) == pipe && pipe != from && e.Events&unix.EPOLLERR != 0 {
					ready = unix.EPIPE
				}
			}
			return n != 0 || err != nil
		})
		return cmp.Or(ready, err)
	}
	return wait, func() { f.Close() }
}

// waitFor waits until a descriptor is ready, or the reading end of a pipe is
// gone: then it returns EPIPE.
func waitFor(fd int, events int16, pipe int) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(pipe)}}
	for {
		_, err := retry(func() (int, error) { return unix.Ppoll(fds, nil, nil) })
		switch {
		case err != nil:
			return err
		case fds[1].Revents&unix.POLLERR != 0:
			return unix.EPIPE
		case fds[0].Revents != 0:
			return nil
		}
	}
}

// held returns how many bytes a pipe holds.
func held(pipe int) int {
	n, err := unix.IoctlGetInt(pipe, unix.TIOCINQ) // FIONREAD
	if err != nil {
		return 0
	}
	return n
}

// take reads n bytes from a pipe and drops them, as far as they are there.
func take(pipe, n int) {
	buffer := make([]byte, max(n, 1))
	for n > 0 && held(pipe) > 0 {
		m, err := retry(func() (int, error) { return unix.Read(pipe, buffer[:n]) })
		if m <= 0 || err != nil {
			return
		}
		n -= m
	}
}

// errorOf leaves out what is no error here: that nobody reads any more.
func errorOf(err error) error {
	if err == unix.EPIPE {
		return nil
	}
	return err
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
