package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/terminal"
)

// twice is how soon a second Ctrl-C must follow to mean: end it now.
const twice = 5 * time.Second

// forward passes signals on until the returned function is called, which says
// whether a second Ctrl-C ended the run.
//
// INT, QUIT and HUP go to the command's process group, as a terminal would
// send them; TERM, USR1 and USR2 to the command alone, as kill(1) would. A
// second INT within five seconds ends everything. Where the command has no
// terminal of its own, TSTP stops it and us, and CONT continues both.
func (l *launch) forward(s *native.Started, relay *terminal.Relay) (stop func() bool) {
	var killed atomic.Bool
	c := make(chan os.Signal, 16)
	list := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2}
	if relay == nil {
		list = append(list, unix.SIGTSTP)
	}
	signal.Notify(c, list...)
	done := make(chan struct{})
	go func() {
		var last time.Time
		for {
			var sig unix.Signal
			select {
			case <-done:
				return
			case got := <-c:
				sig = got.(unix.Signal)
			}
			switch sig {
			case unix.SIGINT:
				if time.Since(last) < twice {
					killed.Store(true)
					s.Kill()
					continue
				}
				last = time.Now()
				s.Signal(sig, inside.ToGroup)
			case unix.SIGQUIT, unix.SIGHUP:
				s.Signal(sig, inside.ToGroup)
			case unix.SIGTSTP:
				// The command leads an orphaned group, which ignores TSTP.
				s.Signal(unix.SIGSTOP, inside.ToGroup)
				unix.Kill(os.Getpid(), unix.SIGSTOP)
				s.Signal(unix.SIGCONT, inside.ToGroup)
			default:
				s.Signal(sig, inside.ToCommand)
			}
		}
	}()
	return func() bool {
		signal.Stop(c)
		close(done)
		return killed.Load()
	}
}
