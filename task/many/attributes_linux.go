package many

import "syscall"

// attributes are those of a task: a process group of its own, so that a terminal's Ctrl-C reaches this process alone, which
// interrupts each once; and it is interrupted when this process dies. That signal comes as often as a thread of this process
// dies to which the kernel has given the child meanwhile (prctl(2)): so it is one that ends nothing at once.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGHUP}
}
