package survey

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/profiles"
)

// caches shows the caches of tools, as far as nothing but the defaults decides on
// them: as directories that may be changed, and are as they were when the run is
// over. Read-only they would be worse than none, since a tool that finds one
// puts there what it lacks. It returns the variables that say where they are.
func (f *finder) caches(list []Cache, mounts []mountpoint) (env []Variable) {
	for i := range f.places {
		p := &f.places[i] // of the workspace, put there before anybody knew what is mounted
		if p.Scratch && slices.ContainsFunc(mounts, func(m mountpoint) bool { return Below(m.target, p.Path) }) {
			p.Scratch, p.Access = false, profiles.Read
		}
	}
	for _, c := range list {
		if !ByDefault(f.policy, c.Path) {
			continue
		}
		_, end, err := f.hops(c.Path)
		if err != nil || end.Node != Directory || Below(f.policy.Home, end.Path) || Below(end.Path, f.policy.Workspace) || f.shown(end.Path) > profiles.Read {
			continue
		}
		if !f.scratches(end.Path, mounts) {
			if f.policy.Decide(c.Path).Access < profiles.Read {
				f.add(c.Path, profiles.Read, c.Why+", read-only")
			}
			continue
		}
		f.add(c.Path, profiles.Overlay, c.Why)
		i, ok := f.seen[end.Path]
		if !ok || f.places[i].Access != profiles.Overlay {
			continue // it lies in a toolchain that is shown
		}
		f.places[i].Scratch = true
		v := Variable{c.Entry, "where the tool's cache is"}
		if name, _, _ := strings.Cut(c.Entry, "="); name != "" && free(f.policy, name) && !slices.Contains(env, v) {
			env = append(env, v)
		}
	}
	return env
}

// scratches reports whether a cache can be an overlay that is thrown away. The
// upper layer is a tmpfs, which has the attributes that overlayfs needs from
// Linux 6.6 on; before, a directory that was removed could not be made again.
// What is mounted below a directory no overlay shows. Under strict nothing
// depends on what the kernel makes of it.
func (f *finder) scratches(path string, mounts []mountpoint) bool {
	return !f.policy.Strict && kernel.AtLeast(6, 6) && ByDefault(f.policy, path) && !Below(f.policy.Workspace, path) &&
		!slices.ContainsFunc(mounts, func(m mountpoint) bool { return m.target != path && Below(m.target, path) })
}
