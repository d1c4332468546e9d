package terminal

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const getTermios, setTermios = unix.TIOCGETA, unix.TIOCSETA

// wakeable returns a pipe.
func wakeable() (read, write int, err error) {
	var fds [2]int
	if err := unix.Pipe(fds[:]); err != nil {
		return -1, -1, os.NewSyscallError("pipe", err)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		_ = unix.SetNonblock(fd, true)
	}
	return fds[0], fds[1], nil
}

// poll is select(2): macOS's poll(2) does not support terminals. That one goes away is not told in the
// background.
func poll(fds []unix.PollFd, timeout int) (int, error) {
	var read, write unix.FdSet
	most := 0
	for i := range fds {
		fds[i].Revents = 0
		if fds[i].Events&unix.POLLIN != 0 {
			read.Set(int(fds[i].Fd))
		}
		if fds[i].Events&unix.POLLOUT != 0 {
			write.Set(int(fds[i].Fd))
		}
		most = max(most, int(fds[i].Fd))
	}
	var limit *unix.Timeval
	if timeout >= 0 {
		t := unix.NsecToTimeval(int64(timeout) * 1e6)
		limit = &t
	}
	n, err := unix.Select(most+1, &read, &write, nil, limit)
	if err != nil {
		return n, err
	}
	for i := range fds {
		if fds[i].Events&unix.POLLIN != 0 && read.IsSet(int(fds[i].Fd)) {
			fds[i].Revents |= unix.POLLIN
		}
		if fds[i].Events&unix.POLLOUT != 0 && write.IsSet(int(fds[i].Fd)) {
			fds[i].Revents |= unix.POLLOUT
		}
	}
	return n, nil
}

// OpenPair opens a pseudo-terminal, as posix_openpt(3), grantpt, unlockpt and ptsname do.
func OpenPair() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		return nil, nil, err
	}
	var name [128]byte
	for _, request := range [...]uintptr{unix.TIOCPTYGRANT, unix.TIOCPTYUNLK, unix.TIOCPTYGNAME} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(&name))); e != 0 {
			master.Close()
			return nil, nil, fmt.Errorf("ioctl %#x: %w", request, e)
		}
	}
	path, _, _ := bytes.Cut(name[:], []byte{0})
	if slave, err = os.OpenFile(string(path), os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}
