//go:build !launcher

package main

import (
	"bufio"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/run"
)

// observe runs the command in a process of its own, and reads the events of that run.
// Its output goes to standard error: standard output is the verb's.
func observe(args []string) (*seen, int, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, refused, err
	}
	defer r.Close()
	// The run dies with us: the signal goes with the thread that started it
	// (prctl(2), PR_SET_PDEATHSIG).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// What a terminal sends to all of the group is the run's to handle, and what
	// is sent to us alone is passed on.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2)
	run.LeaveSignals()
	defer signal.Stop(signals)
	child, err := os.StartProcess("/proc/self/exe", append([]string{os.Args[0], "learn", supervised}, args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{os.Stdin, os.Stderr, os.Stderr, w}, Sys: &syscall.SysProcAttr{Pdeathsig: unix.SIGTERM},
	})
	w.Close()
	if err != nil {
		return nil, refused, err
	}
	go func() {
		for sig := range signals {
			if sig != unix.SIGINT && sig != unix.SIGQUIT {
				_ = child.Signal(sig)
			}
		}
	}()
	s := &seen{}
	err = drainEvents(events.NewReader(r), func(record events.Record) { s.add(record.Event) })
	state, e := child.Wait()
	if err = errors.Join(err, e); err != nil {
		return nil, refused, err
	}
	status := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return s, 128 + int(status.Signal()), nil
	}
	return s, status.ExitStatus(), nil
}

// hasOtherNames reports whether a file has more than one name: another may be a key's.
func hasOtherNames(path string) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1
}

// openTerminal returns the user's terminal, nil where there is none to ask at.
func openTerminal(quiet bool) *os.File {
	if quiet || !terminal.IsTerminal(2) {
		return nil
	}
	f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return f
}

// yes asks, and takes nothing that was typed before the question was there.
func yes(tty *os.File, question string) bool {
	if tty == nil {
		return false
	}
	_ = unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	if _, err := tty.WriteString("pccrun: " + printable(question) + " [y/N] "); err != nil {
		return false
	}
	answer, _ := bufio.NewReader(tty).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
