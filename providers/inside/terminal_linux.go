package inside

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openTerminal opens a pseudo-terminal of the place's own.
func openTerminal(columns, rows int) (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	err = control(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return os.NewSyscallError("ioctl(TIOCSPTLCK)", err)
		}
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		if err != nil {
			return os.NewSyscallError("ioctl(TIOCGPTN)", err)
		}
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
		return err
	})
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	resize(master, columns, rows)
	// Nobody inside could continue what Ctrl-Z stops.
	err = control(slave, func(fd int) error {
		modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return os.NewSyscallError("ioctl(TCGETS)", err)
		}
		modes.Cc[unix.VSUSP] = 0
		modes.Iflag |= unix.IUTF8
		return os.NewSyscallError("ioctl(TCSETS)", unix.IoctlSetTermios(fd, unix.TCSETS, modes))
	})
	return master, slave, err
}

func resize(master *os.File, columns, rows int) {
	_ = control(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)})
	})
}

// control calls f with the file's descriptor, without making it blocking.
func control(file *os.File, f func(fd int) error) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	if err := conn.Control(func(fd uintptr) { ferr = f(int(fd)) }); err != nil {
		return err
	}
	return ferr
}
