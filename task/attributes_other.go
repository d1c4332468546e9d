//go:build unix && !linux

package task

import "syscall"

// attributes are those of a child: a process group of its own.
func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
