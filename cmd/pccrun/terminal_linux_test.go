package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A signal that ends pccrun, whenever it comes, leaves the terminal as it was: it is
// caught before that is changed.
func TestSignalLeavesTheTerminal(t *testing.T) {
	p := newPupil(t)
	var until time.Duration // the terminal is changed
	for round := range 121 {
		fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		require.NoError(t, err)
		slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
		require.NoError(t, err)
		modes := func() unix.Termios {
			m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			require.NoError(t, err)
			return *m
		}
		before := modes()
		cmd := p.command("-q", "--", "sleep", "60")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.NoError(t, cmd.Start())
		if began := time.Now(); round == 0 {
			require.Eventually(t, func() bool { return modes() != before }, 20*time.Second, time.Millisecond)
			until = time.Since(began)
		} else {
			time.Sleep(until * time.Duration(round) / 90)
		}
		sig := []os.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT}[round%3]
		require.NoError(t, cmd.Process.Signal(sig))
		require.NoError(t, ignoreExit(cmd.Wait()))
		require.Equal(t, before, modes(), "round %d: %v", round, sig)
		slave.Close()
		unix.Close(fd)
	}
}
