package namespaces

import (
	"bytes"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// Proc opens the sandbox's own /proc, in which nobody else's processes are; nil
// where it has none of its own.
func (s *Sandbox) Proc() *os.File {
	if !s.plan.has(profiles.LayerPidns) {
		return nil
	}
	fd, err := openPlain(s.root, "proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "/proc")
}

// Stopped is a process that a signal has stopped.
type Stopped struct {
	Pid   int
	Aside bool // it is in the background of its terminal, as who was stopped by Ctrl-Z
}

// StoppedIn lists the processes of a /proc, pid 1 aside, that a signal has stopped. One
// that a debugger has stopped is none of them.
func StoppedIn(proc *os.File) (list []Stopped) {
	if proc == nil {
		return nil
	}
	if _, err := proc.Seek(0, io.SeekStart); err != nil {
		return nil
	}
	entries, _ := proc.Readdirnames(-1)
	var b [512]byte
	for _, e := range entries {
		pid, err := strconv.Atoi(e)
		if err != nil || pid == 1 {
			continue
		}
		fd, err := unix.Openat(int(proc.Fd()), e+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		n, err := unix.Read(fd, b[:])
		unix.Close(fd)
		if err != nil {
			continue
		}
		if stopped, aside := parseStopped(b[:n]); stopped {
			list = append(list, Stopped{pid, aside})
		}
	}
	return list
}

// parseStopped reads proc_pid_stat(5): "pid (name) state ppid pgrp session tty_nr tpgid …",
// where a name may hold anything.
func parseStopped(stat []byte) (stopped, aside bool) {
	f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(f) < 6 || string(f[0]) != "T" {
		return false, false
	}
	return true, string(f[4]) != "0" && string(f[5]) != string(f[2])
}
