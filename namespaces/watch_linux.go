package namespaces

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
)

// ErrWatched says that nobody can be asked: somebody around this sandbox answers
// system calls already, and the kernel takes one supervisor for a process and
// all that it starts (seccomp(2), EBUSY); or it has none (EINVAL).
var ErrWatched = errors.New("another seccomp supervisor already runs around this sandbox")

// Listener takes the listener of the plan's [Watch] from pid 1. Call it once,
// when nothing holds pid 1 up any more and before [Sandbox.Next], and let
// somebody answer at once: the command may wait in its first call. Where the
// plan does not require one, [ErrWatched] says that the run goes on without.
// After any other error the sandbox must be closed.
func (s *Sandbox) Listener() (fd int, err error) {
	fds, word, err := s.link.perhaps(1)
	if err != nil || word.Kind == inside.Watched {
		if err == nil {
			err = ErrWatched
		}
		return -1, err
	}
	if _, word, err = s.link.perhaps(0); err != nil || word.Kind != inside.Watched {
		unix.Close(fds[0])
		return -1, errors.Join(errors.New("BUG: no word after the listener"), err)
	}
	return fds[0], nil
}

// Root returns a descriptor of the root of the sandbox's tree, good until
// [Sandbox.Next] returns a result.
func (s *Sandbox) Root() int { return s.root }
