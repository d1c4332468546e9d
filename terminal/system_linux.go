package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

const getTermios, setTermios = unix.TCGETS, unix.TCSETS

// wakeable returns an eventfd, which is both ends.
func wakeable() (read, write int, err error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return fd, fd, os.NewSyscallError("eventfd", err)
}

func poll(fds []unix.PollFd, timeout int) (int, error) { return unix.Poll(fds, timeout) }
