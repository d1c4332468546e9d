package native

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// watchPrivate checks once a second whether the private directories are full: the kernel refuses
// what has no room, and reports that to the command alone.
func (s *Started) watchPrivate(ctx context.Context) {
	fd, err := unix.FcntlInt(uintptr(s.box.Private), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	s.filled = make(chan bool, 1)
	go func() {
		defer unix.Close(fd)
		full := false
		look := func() {
			var private unix.Statfs_t
			full = full || unix.Fstatfs(fd, &private) == nil && (private.Bfree == 0 || private.Ffree == 0)
		}
		for {
			select {
			case <-ctx.Done():
				look()
				s.filled <- full
				return
			case <-time.After(time.Second): // what fills them most often ends soon, and leaves them full
				look()
			}
		}
	}()
}

// Spent returns the limits that a run reached, as keys of resources; memory and time are
// reported as events of their own.
func (e *End) Spent(policy *profiles.Policy) (keys []string) {
	if e.Forks > 0 && policy.Resources.Pids.Value > 0 {
		keys = append(keys, "pids")
	}
	if e.Full || e.Filled {
		keys = append(keys, "disk")
	}
	if e.Status.Signaled() && e.Status.Signal() == unix.SIGXFSZ || e.Status.Exited() && e.Status.ExitStatus() == 128+int(unix.SIGXFSZ) {
		keys = append(keys, "filesize")
	}
	return keys
}
