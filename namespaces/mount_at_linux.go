package namespaces

import (
	"slices"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// MountAt is the mount that a path lies in. The host's own tree is a bind without a target.
type MountAt struct {
	Mount
	MakesNames bool // the launcher makes names there in place of the command ([Watch.Broker])
	OpensFiles bool // and opens files ([Watch.Opens])
}

// At returns the mount that a path lies in inside, where layers may be off.
func (p *Plan) At(path string) MountAt {
	at := MountAt{Mount: Mount{Kind: Bind, ReadOnly: p.has(profiles.LayerReadonly)}}
	for i := range p.Mounts {
		m := &p.Mounts[i]
		if !below(path, m.Target) || p.skips(m) {
			continue
		}
		brokered := p.brokered(m)
		at.OpensFiles = at.OpensFiles || brokered && p.Watch.Opens
		if len(m.Target) >= len(at.Target) {
			at.Mount, at.MakesNames = *m, brokered
		}
	}
	return at
}

// Planned returns the mount that a path lies in by the plan, whatever layer is off.
func (p *Plan) Planned(path string) Mount {
	if i := innermost(p.Mounts, path, nil); i >= 0 {
		return p.Mounts[i]
	}
	return Mount{Kind: Bind, ReadOnly: true}
}

// innermost returns the index of the mount that a path lies in, among those that count:
// nil counts all. It is -1 for the host's own tree.
func innermost(mounts []Mount, path string, counts func(*Mount) bool) int {
	in := -1
	for i := range mounts {
		m := &mounts[i]
		if below(path, m.Target) && (in < 0 || len(m.Target) >= len(mounts[in].Target)) && (counts == nil || counts(m)) {
			in = i
		}
	}
	return in
}

// brokered reports whether Landlock lets the command make no name in a mount, so that the
// launcher makes them: where a directory of the host's that the command may write lies in the
// mount, since Landlock grants by hierarchy. Where the launcher opens files as well, one that the
// command may only read counts too, for the sake of its FIFOs.
func (p *Plan) brokered(m *Mount) bool {
	return p.Watch != nil && p.Watch.Broker && !m.ReadOnly && slices.ContainsFunc(p.Mounts, func(w Mount) bool {
		return w.Kind == Bind && w.Tree && below(w.Target, m.Target) && (!w.ReadOnly || p.Watch.Opens)
	})
}

// Hides reports whether what the host has at the target cannot be read.
func (m *Mount) Hides() bool { return m.Kind == Mask || m.Kind == Fresh && m.ReadOnly }

// Refuses reports whether the mount that a path lies in refuses that it is
// changed: made, where it is absent, or written, or, where the call renames or links,
// that its name is taken or given away. The sandbox's own /proc, /sys and /dev
// refuse for reasons of their own, of which this says nothing.
func (p *Plan) Refuses(path string, renames bool) bool {
	if survey.KernelTree(path) != "" {
		return false
	}
	at := p.At(path)
	return at.ReadOnly || renames && at.Target == path // EBUSY
}

// Shown returns a path if it is the host's inside, else the target of the mount that covers it
// with something of the sandbox's own: whether the host has something below that is not for
// the command to know.
func (p *Plan) Shown(path string) string {
	if at := p.At(path); at.Kind != Bind {
		return at.Target
	}
	return path
}

// Writes reports whether what the command writes at a path is the host's.
func (p *Plan) Writes(path string) bool {
	m := p.Planned(path)
	return m.Kind == Bind && !m.ReadOnly
}

// ReadOnlyIn reports whether a directory, or something in it, is hidden or read-only by a
// mount, whatever layer is off.
func (p *Plan) ReadOnlyIn(dir string) bool {
	return p.Planned(dir).ReadOnly || slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.ReadOnly && below(m.Target, dir) })
}

// OpenedDirectly returns a directory of the host's that the command may write and in which
// it opens files without the launcher, "" for none: mounts alone decide there what it may open.
func (p *Plan) OpenedDirectly() string {
	for _, m := range p.Mounts {
		if (m.Kind == Bind && m.Tree || m.Kind == Copy) && !m.ReadOnly && !p.At(m.Target).OpensFiles {
			return m.Target
		}
	}
	return ""
}

// Masked returns the files that the plan hides.
func (p *Plan) Masked() (paths []string) {
	for _, m := range p.Mounts {
		if m.Kind == Mask {
			paths = append(paths, m.Target)
		}
	}
	return paths
}

// HidesFiles reports whether a single file is hidden: a directory stays hidden
// whatever the host does in it, the cover of a file does not.
func (p *Plan) HidesFiles() bool {
	return slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Kind == Mask && !m.Optional })
}

// ReadInWritable returns a directory that is shown read-only within one that
// may be written, "" if there is none: see [WritableAround].
func (p *Plan) ReadInWritable() string {
	for _, m := range p.Mounts {
		if m.Kind == Bind && m.ReadOnly && m.Tree && WritableAround(p.Mounts, m.Target) != "" {
			return m.Target
		}
	}
	return ""
}

// WritableAround returns the directory that may be written around the one in which a path
// is shown read-only, "" for none. A FIFO at the path can be written then: a read-only mount
// does not refuse that (fifo(7)), and Landlock grants by hierarchy, across mounts (landlock(7)).
func WritableAround(mounts []Mount, path string) string {
	at := innermost(mounts, path, nil)
	if at < 0 || mounts[at].Kind != Bind || !mounts[at].ReadOnly {
		return ""
	}
	if around := innermost(mounts, path, func(m *Mount) bool { return !m.ReadOnly }); around >= 0 {
		return mounts[around].Target
	}
	return ""
}
