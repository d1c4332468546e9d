package namespaces

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/procfs"
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
	procfs.Each(proc, func(p procfs.Stat) bool {
		if stopped, aside := isStopped(&p); stopped && p.Pid != 1 {
			list = append(list, Stopped{p.Pid, aside})
		}
		return true
	})
	return list
}

// isStopped compares the foreground group of the terminal, if it has one, with its own.
func isStopped(p *procfs.Stat) (stopped, aside bool) {
	const group, terminal, foreground = 5, 7, 8
	stopped = p.State == 'T'
	return stopped, stopped && p.Field(terminal) != 0 && p.Field(foreground) != p.Field(group)
}
