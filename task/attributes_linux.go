package task

import "syscall"

// attributes are those of a child: a process group of its own, and a signal when the thread that has started it ends.
func attributes(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: death}
}
