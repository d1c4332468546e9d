//go:build unix

package survey

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// Mountable returns what of a [Layout] a container shows, as [Look] returns it on Linux: links, what
// patterns name, and the directories that must stay, as places of their own. The container's image
// has a system of its own: of this machine's, only private directories are left.
func (s *Survey) Mountable(policy *profiles.Policy) ([]Place, error) {
	f := newFinder(policy)
	for _, p := range s.Places {
		byDefault := ByDefault(policy, p.Path) && p.Why != WorktreeRepository && p.Why != worktreeCommits
		switch {
		case p.Copied, p.Source != "": // of ours, whatever stands here
			f.put(p)
		case !byDefault || Below(p.Path, policy.Home) || Below(p.Path, policy.Workspace):
			f.add(p.Path, p.Access, p.Why)
		case p.Access == profiles.Private:
			p.Node, p.Optional = Directory, true
			f.put(p)
		}
	}
	pin := func(name string, access profiles.Access) {
		f.put(placeAt(Place{Path: name, Access: access, Pin: true, Protect: true, Why: "protect"}))
	}
	for _, name := range s.Layout.Standing {
		d := policy.Decide(name)
		why := d.Rule.Origin.String()
		if d.Access >= profiles.Read {
			pin(name, profiles.Read)
			continue
		}
		f.put(placeAt(Place{Path: name, Access: d.Access, Why: why}))
		if to, err := state.Real(name); err == nil && to != name && (Below(to, policy.Workspace) || !ByDefault(policy, to)) {
			f.put(placeAt(Place{Path: to, Access: d.Access, Why: why}))
		}
	}
	for _, name := range s.Layout.Protect {
		if dir, is := strings.CutSuffix(name, "/alternates"); is && nodeAt(name) == Absent {
			name = dir // of a repository elsewhere, in which no check looks for what was made
		}
		pin(name, min(profiles.Read, f.shown(name)))
	}
	f.anchors()
	return f.places, f.err
}

// placeAt completes a place with what stands there.
func placeAt(p Place) Place {
	var st unix.Stat_t
	if unix.Lstat(p.Path, &st) == nil {
		p.Node, p.Dev, p.Ino = NodeOf(uint32(st.Mode)), Device(uint64(st.Dev)), st.Ino
	}
	return p
}
