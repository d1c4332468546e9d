package namespaces

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
)

// ErrWatched says that nobody can be asked: somebody around this sandbox answers
// system calls already, and the kernel takes one supervisor for a process and
// all that it starts (seccomp(2), EBUSY); or it has none (EINVAL).
var ErrWatched = errors.New("another seccomp supervisor already runs around this sandbox")

// Refuses reports whether what the plan puts at a path refuses that it is
// changed: made, where it is absent, or written, or, where the call says so,
// that its name is taken or given away. The sandbox's own /proc, /sys and /dev
// refuse for reasons of their own, of which this says nothing.
func (p *Plan) Refuses(path string, renames bool) bool {
	if survey.KernelTree(path) != "" {
		return false
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
// command: Landlock lets the command make none there (Watch.Broker). That is
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

// Opens reports whether the launcher opens the files at a path in place of the
// command, since Landlock lets that neither read nor write them (Watch.Opens):
// in all of the mounts where it makes names, and in what is mounted there.
func (p *Plan) Opens(path string) bool {
	return p.Watch != nil && p.Watch.Opens && slices.ContainsFunc(p.Mounts, func(m Mount) bool {
		return below(path, m.Target) && !p.skips(&m) && p.deputized(&m)
	})
}

// Alone returns a directory of the host's that the command may write and where
// it opens files by itself, "" for none: only mounts tell there what it may open.
func (p *Plan) Alone() string {
	for _, m := range p.Mounts {
		if (m.Kind == Bind && m.Tree || m.Kind == Copy) && !m.ReadOnly && !p.Opens(m.Target) {
			return m.Target
		}
	}
	return ""
}

// Covers reports whether the plan covers what the host has at a path, or
// somewhere below it if under is set, so that it is not read; whatever layer is off.
func (p *Plan) Covers(path string, under bool) bool {
	return p.anyAt(path, under, func(m *Mount) bool { return m.Kind == Mask || m.Kind == Fresh && m.ReadOnly })
}

// Masked returns the files that the plan covers.
func (p *Plan) Masked() (paths []string) {
	for _, m := range p.Mounts {
		if m.Kind == Mask {
			paths = append(paths, m.Target)
		}
	}
	return paths
}

// Pins reports whether the plan lets nothing be written at a path, or somewhere
// below it if under is set, within what may be; whatever layer is off.
func (p *Plan) Pins(path string, under bool) bool {
	return p.anyAt(path, under, func(m *Mount) bool { return m.ReadOnly })
}

// anyAt reports whether the mount that a path is in, or one below the path if
// under is set, is as asked for.
func (p *Plan) anyAt(path string, under bool, is func(*Mount) bool) bool {
	deepest := -1
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if under && below(m.Target, path) && is(m) {
			return true
		}
		if below(path, m.Target) && (deepest < 0 || len(m.Target) >= len(p.Mounts[deepest].Target)) {
			deepest = i
		}
	}
	return deepest >= 0 && is(&p.Mounts[deepest])
}

// deputized reports whether the command makes no names in a mount by itself:
// where a directory of the host's that it may write lies in it; and, where it
// opens no files either, one that it may only read, for the sake of its FIFOs.
func (p *Plan) deputized(m *Mount) bool {
	if p.Watch == nil || !p.Watch.Broker || m.ReadOnly {
		return false
	}
	for i := range p.Mounts {
		w := &p.Mounts[i]
		if w.Kind == Bind && w.Tree && below(w.Target, m.Target) && (!w.ReadOnly || p.Watch.Opens) {
			return true
		}
	}
	return false
}

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
