package task

import "syscall"

// attributes are those of a run: it dies with this process, and has a process group of its own, so that a terminal's
// Ctrl-C reaches this process alone, which then ends the run in order.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
