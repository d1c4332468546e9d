package detach

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Variable names the descriptor to which a run that a holder has started says that it has started. It counts for a command
// line with --detach alone.
const Variable = "PCCRUN_DETACHED"

// Started is what it says: what it is called, and in which directory the holder is to listen.
type Started struct{ ID, Dir string }

// Reporter returns what a run calls when it has started; nil if no holder has started it. A project may set the variable, too:
// what is no pipe is something of this process's own.
func Reporter() func(Started) error {
	fd, err := strconv.Atoi(os.Getenv(Variable))
	_ = os.Unsetenv(Variable)
	var is unix.Stat_t
	if err != nil || fd < 3 || unix.Fstat(fd, &is) != nil || is.Mode&unix.S_IFMT != unix.S_IFIFO {
		return nil
	}
	unix.CloseOnExec(fd)
	to := os.NewFile(uintptr(fd), "holder")
	return func(s Started) error {
		defer to.Close()
		return json.NewEncoder(to).Encode(s)
	}
}

// An Order is what a holder is to start.
type Order struct {
	Line     []string // of pccrun, without its name
	Terminal [2]int   // the run gets one of this size, columns and rows; none if it is zero
	Input    *os.File // what it reads without one; nil for nothing
	Say      func(line string)
}

// Start starts a holder, and returns when the run has started, with its id, or has not: then that is "", and code what it has
// exited with. Say gets what pccrun says meanwhile. A signal ends what has not started, in order, and a second one this process.
func Start(o Order) (id string, code int, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", 0, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "holder"), os.NewFile(uintptr(ends[1]), "caller")
	defer ours.Close()
	// What we have from our parent ends with it, and is not held open by who goes on.
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "", 0, os.NewSyscallError("close_range", err)
	}
	kind := noTerminal
	if o.Terminal != [2]int{} {
		kind = fmt.Sprintf("%dx%d", o.Terminal[0], o.Terminal[1])
	}
	cmd := exec.Command("/proc/self/exe", append([]string{Verb, kind}, o.Line...)...)
	cmd.Args[0], cmd.ExtraFiles = "pccrun", []*os.File{theirs}
	if o.Input != nil {
		cmd.Stdin = o.Input
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", 0, fmt.Errorf("start pccrun: %w", err)
	}
	theirs.Close()
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	defer signal.Stop(signals)
	var came atomic.Int32
	go func() {
		if sig, is := (<-signals).(syscall.Signal); is {
			signal.Stop(signals)
			came.Store(int32(sig))
			control(ours, func(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) }) // as if we had gone, and we hear of the end
		}
	}()
	for in := json.NewDecoder(ours); ; {
		var r report
		if err := in.Decode(&r); err != nil {
			return "", 0, fmt.Errorf("the process that goes on has ended: %w", err)
		}
		switch {
		case r.ID != "":
			return r.ID, 0, nil
		case r.Status != nil:
			if sig := came.Load(); sig != 0 {
				return "", 128 + int(sig), nil
			}
			return "", *r.Status, nil
		default:
			o.Say(r.Line)
		}
	}
}
