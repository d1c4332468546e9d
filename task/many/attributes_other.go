//go:build unix && !linux

package many

import "syscall"

// attributes are those of a task: a process group of its own, so that a terminal's Ctrl-C reaches this process alone.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
