package escape

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// startOnTerminal starts a command on the terminal that was made for it; what
// comes out of it is kept.
func (d *Drive) startOnTerminal(cmd *exec.Cmd, out *sink) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = d.slave, d.slave, d.slave
	cmd.SysProcAttr.Setctty = true
	err := cmd.Start()
	if !d.keep || err != nil {
		d.slave.Close()
		d.slave = nil
	}
	if err != nil {
		d.master.Close()
		return err
	}
	out.master, out.copied = d.master, make(chan struct{})
	go func() {
		io.Copy(out, out.master)
		close(out.copied)
	}()
	return nil
}

func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}
