package sessions

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
)

// Self returns this process.
func Self() Process { return identify(os.Getpid()) }

// identify returns the process that has the pid now, or none.
func identify(pid int) Process {
	start, ok := startOf(pid)
	if !ok {
		return Process{}
	}
	return Process{Pid: pid, Start: start, Boot: bootID(), Space: pidSpace()}
}

// startOf returns when a process started, in ticks, unless it is dead.
func startOf(pid int) (uint64, bool) {
	s, ok := procfs.ReadStat(pid)
	return uint64(s.Field(22)), ok && !s.Dead()
}

// setTime sets the time of a file, if it is there, and follows no link.
func setTime(path string, at time.Time) {
	t := unix.NsecToTimespec(at.UnixNano())
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}

// Rebooted reports whether the machine was started since the process was: it is gone, with all that it had.
func (p Process) Rebooted() bool { return p.Boot != "" && p.Boot != bootID() }

func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}

func pidSpace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}

// open returns a pidfd of the process, if it is still the one that was
// meant: the descriptor is opened first, so that the pid cannot come to mean
// another process between the look and the signal.
func (p Process) open() (int, error) {
	switch {
	case p.Pid <= 0:
		return -1, ErrGone
	case p.Space != pidSpace():
		return -1, ErrElsewhere
	case p.Boot != bootID():
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err == unix.ESRCH {
		return -1, ErrGone
	}
	if err != nil {
		return -1, os.NewSyscallError("pidfd_open", err)
	}
	if start, ok := startOf(p.Pid); !ok || start != p.Start {
		unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

// Kill ends a session: it sends the signal to the launcher, which passes it
// on and cleans up, and waits for the launcher's end as long as patience
// says. Where the launcher crashed and the sandbox still lives, its pid 1,
// which takes everything with it, gets SIGKILL whatever the signal. The
// error is [ErrGone] if there is nothing to end.
func (h Home) Kill(e Entry, signal os.Signal, patience time.Duration) error {
	sig, ok := signal.(unix.Signal)
	if !ok {
		return fmt.Errorf("signal %v: %w", signal, errors.ErrUnsupported)
	}
	p := e.Launcher
	switch e.State {
	case Running:
	case Crashed:
		p, sig = e.Sandbox, unix.SIGKILL
	default:
		return fmt.Errorf("session %s: %w", e.ID, ErrGone)
	}
	if err := p.Signal(sig, patience); err != nil {
		return fmt.Errorf("session %s: %w", e.ID, err)
	}
	return nil
}

// Signal sends a signal to the process that was meant, and to no other, and waits for its end as long as patience says. The error
// is [ErrGone] if it has ended before, [ErrAlive] if it goes on.
func (p Process) Signal(sig syscall.Signal, patience time.Duration) error {
	fd, err := p.open()
	if err != nil {
		return fmt.Errorf("pid %d: %w", p.Pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal pid %d: %w", p.Pid, err)
	}
	if !waitGone(fd, patience) {
		return fmt.Errorf("pid %d: %w", p.Pid, ErrAlive)
	}
	return nil
}

// waitGone waits for the end of the process behind a pidfd.
func waitGone(fd int, patience time.Duration) bool {
	deadline := time.Now().Add(patience)
	for {
		left := max(0, time.Until(deadline))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((left+time.Millisecond-1)/time.Millisecond))
		if n > 0 || err != nil && err != unix.EINTR {
			return n > 0
		}
		if left == 0 {
			return false
		}
	}
}

// AwaitEnd waits until a sandbox whose launcher is gone has ended: the kernel
// kills it with its launcher, and its pid 1 goes last. A process that has the
// pid now and did not begin when the run did is another one.
func AwaitEnd(pid int, began time.Time, patience time.Duration) error {
	var up unix.Sysinfo_t
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		start, ok := startOf(pid)
		if !ok || unix.Sysinfo(&up) != nil {
			return nil
		}
		// Ticks are hundredths of a second for every program, and the uptime is
		// in whole ones.
		age := time.Duration(up.Uptime)*time.Second - time.Duration(start)*10*time.Millisecond
		if time.Since(began)-age > 3*time.Second {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("process %d: %w", pid, ErrAlive)
		}
	}
}
