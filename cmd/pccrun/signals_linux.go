package main

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/terminal"
)

// twice is how soon a second Ctrl-C must follow to mean: end it now.
const twice = 5 * time.Second

// impatience is how long somebody who wants us to end waits before he hears why we
// have not.
const impatience = 300 * time.Millisecond

// forward passes signals on until the returned function is called, which says
// whether a second Ctrl-C ended the run.
//
// INT, QUIT and HUP go to the command's process group, as a terminal would
// send them; TERM, USR1 and USR2 to the command alone, as kill(1) would. A
// second INT within five seconds ends everything. Where the command has no
// terminal of its own, TSTP stops it and us, and CONT continues both. PIPE ends
// nobody: whoever reads what we say may go before we have looked after the run.
//
// When the command is gone, the first that would end us is held until that is done:
// who presses Ctrl-C until a program ends presses it once too often, and what the
// command made would be lost. A second ends us.
func (l *launch) forward(s *native.Started, relay *terminal.Relay) (stop func() bool) {
	var mu sync.Mutex
	var killed, over, held bool
	var last time.Time
	pass := func(sig unix.Signal) {
		mu.Lock()
		defer mu.Unlock()
		if sig == unix.SIGPIPE {
			return
		}
		if over && !held {
			held = true
			time.AfterFunc(impatience, func() {
				say("the command has ended, and what it left is looked after; a second signal ends that, and what is not kept by then is lost")
			})
			return
		}
		if over {
			signal.Reset(sig)
			unix.Kill(os.Getpid(), sig)
			return
		}
		switch sig {
		case unix.SIGINT:
			if time.Since(last) < twice {
				killed = true
				s.Kill()
				return
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
	list := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE}
	if relay == nil {
		list = append(list, unix.SIGTSTP)
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c, list...)
	go func() {
		for sig := range c {
			pass(sig.(unix.Signal))
		}
	}()
	// The goroutine and the handlers stay: to take a handler back costs two
	// switches of threads, and the process is about to end.
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		over = true
		return killed
	}
}
