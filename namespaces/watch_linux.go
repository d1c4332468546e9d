package namespaces

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
)

// ErrWatched says that nobody can be asked: somebody around this sandbox answers
// system calls already, and the kernel takes one supervisor for a process and
// all that it starts (seccomp(2), EBUSY); or it has none (EINVAL).
var ErrWatched = errors.New("system calls have a supervisor already, around this sandbox")

// Refuses reports whether what the plan puts at a path refuses that it is
// changed: made, where it is absent, or written, or, where the call says so,
// that its name is taken or given away. The sandbox's own /proc, /sys and /dev
// refuse for reasons of their own, of which this says nothing.
func (p *Plan) Refuses(path string, renames bool) bool {
	for _, own := range [...]string{"/proc", "/sys", "/dev"} {
		if below(path, own) {
			return false
		}
	}
	deepest := p.At(path)
	return deepest.ReadOnly || renames && deepest.Target == path // EBUSY
}

// At returns the mount that the plan has at a path: the host's own tree is a
// bind without a target.
func (p *Plan) At(path string) Mount {
	deepest := Mount{Kind: Bind, Target: "", ReadOnly: p.has(profiles.LayerReadonly)}
	for _, m := range p.Mounts {
		if below(path, m.Target) && len(m.Target) >= len(deepest.Target) && !p.skips(&m) {
			deepest = m
		}
	}
	return deepest
}

// Shown returns the place of the host that a path inside leaves no doubt about:
// the path itself, or where the sandbox's own stands on what lies there. What is
// below that, on the host, must not show in anything that the command is told.
func (p *Plan) Shown(path string) string {
	deepest := Mount{Kind: Bind}
	for _, m := range p.Mounts {
		if below(path, m.Target) && len(m.Target) >= len(deepest.Target) && !p.skips(&m) {
			deepest = m
		}
	}
	if deepest.Kind == Bind {
		return path
	}
	return deepest.Target
}

// Makes reports whether the launcher makes names at a path in place of the
// command: Landlock lets the command make none there (Watch.Deputy). That is
// what it may write on the host, and each private directory or overlay around
// such a place, since Landlock grants by hierarchy.
func (p *Plan) Makes(path string) bool {
	deepest := -1
	for i, m := range p.Mounts {
		if below(path, m.Target) && (deepest < 0 || len(m.Target) >= len(p.Mounts[deepest].Target)) && !p.skips(&m) {
			deepest = i
		}
	}
	return deepest >= 0 && p.deputized(&p.Mounts[deepest])
}

// deputized reports whether the command makes no names in a mount by itself.
func (p *Plan) deputized(m *Mount) bool {
	if p.Watch == nil || !p.Watch.Deputy || m.ReadOnly {
		return false
	}
	for i := range p.Mounts {
		if w := &p.Mounts[i]; w.Kind == Bind && w.Tree && !w.ReadOnly && below(w.Target, m.Target) {
			return true
		}
	}
	return false
}

// Listener takes the listener of the plan's [Watch] from pid 1. Call it once,
// when nothing holds pid 1 up any more and before [Sandbox.Wait], and let
// somebody answer at once: the command may wait in its first call. Where the
// plan does not require one, [ErrWatched] says that the run goes on without.
// After any other error the sandbox must be closed.
func (s *Sandbox) Listener() (fd int, err error) {
	fds, word, err := s.perhaps(1)
	if err != nil || word.Kind == inside.Watched {
		if err == nil {
			err = ErrWatched
		}
		return -1, err
	}
	if _, word, err = s.perhaps(0); err != nil || word.Kind != inside.Watched {
		unix.Close(fds[0])
		return -1, errors.Join(errors.New("BUG: no word after the listener"), err)
	}
	return fds[0], nil
}

// Root returns a descriptor of the root of the sandbox's tree, good until
// [Sandbox.Wait] returns.
func (s *Sandbox) Root() int { return s.root }
