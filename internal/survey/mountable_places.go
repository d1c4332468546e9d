//go:build unix

package survey

import (
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// Mountable returns what of a [Layout] a container shows, as [Look] returns it on Linux: links, what
// patterns name, and the directories that must stay, as places of their own. The container's image
// has a system of its own: of this machine's, only private directories are left.
func (s *Survey) Mountable(policy *profiles.Policy) []Place {
	m := &mountable{policy: policy, at: map[string]int{}}
	for _, p := range s.Places {
		m.rule(p)
	}
	for _, name := range s.Layout.Standing {
		d := policy.Decide(name)
		p := Place{Path: name, Access: d.Access, Why: d.Rule.Origin.String()}
		if d.Access >= profiles.Read {
			p.Access, p.Pin, p.Protect, p.Why = profiles.Read, true, true, "protect"
		}
		m.put(p)
		if to, err := state.Real(name); err == nil && to != name && d.Access < profiles.Read && (Below(to, policy.Workspace) || !ByDefault(policy, to)) {
			p.Path = to
			m.put(p)
		}
	}
	for _, name := range s.Layout.Protect {
		if dir, is := strings.CutSuffix(name, "/alternates"); is && nodeAt(name) == Absent {
			name = dir // of a repository elsewhere, in which no check looks for what was made
		}
		m.put(Place{Path: name, Access: min(profiles.Read, m.shown(name)), Pin: true, Protect: true, Why: "protect"})
	}
	m.anchors()
	return m.places
}

type mountable struct {
	policy *profiles.Policy
	places []Place
	at     map[string]int // by path
}

// rule adds what a rule names, and each link on the way.
func (m *mountable) rule(p Place) {
	if p.Copied && p.Ino == 0 {
		m.add(p) // a text of ours, whatever stands here
		return
	}
	byDefault := ByDefault(m.policy, p.Path) && p.Why != WorktreeRepository && p.Why != worktreeCommits
	if byDefault && !Below(p.Path, m.policy.Home) && !Below(p.Path, m.policy.Workspace) {
		if p.Access == profiles.Private {
			p.Node, p.Optional = Directory, true
			m.add(p)
		}
		return
	}
	to, links := followed(p.Path)
	for _, link := range links {
		text, err := os.Readlink(link)
		if err == nil {
			m.put(Place{Path: link, Link: text, Access: p.Access, Pin: m.policy.Decide(path.Dir(link)).Access >= profiles.Overlay, Why: p.Why})
		}
	}
	if d := m.policy.Decide(to); to != p.Path && !ByDefault(m.policy, to) {
		p.Access = min(p.Access, d.Access)
	}
	p.Path = to
	m.put(p)
}

// put adds a place with what stands there; what is there already becomes stricter.
func (m *mountable) put(p Place) {
	p.Node = nodeAt(p.Path)
	if info, err := os.Lstat(p.Path); err == nil && p.Source == "" {
		if st, is := info.Sys().(*syscall.Stat_t); is {
			p.Dev, p.Ino = Device(uint64(st.Dev)), st.Ino
		}
	}
	m.add(p)
}

func (m *mountable) add(p Place) {
	if i, there := m.at[p.Path]; there {
		had := &m.places[i]
		had.Access, had.Pin, had.Protect = min(had.Access, p.Access), had.Pin || p.Pin, had.Protect || p.Protect
		return
	}
	m.at[p.Path] = len(m.places)
	m.places = append(m.places, p)
}

// shown returns what the command may do at a path: what the policy says, but in a repository elsewhere.
func (m *mountable) shown(name string) profiles.Access {
	d := m.policy.Decide(name)
	for dir := name; len(dir) >= len(d.Rule.Path) && dir != "/"; dir = path.Dir(dir) {
		if i, is := m.at[dir]; is && (m.places[i].Node == Directory || m.places[i].Node == File) {
			return m.places[i].Access
		}
	}
	return d.Access
}

// anchors pins the directories between what may be written and what may not, as on Linux.
func (m *mountable) anchors() {
	for _, p := range m.places[:len(m.places):len(m.places)] {
		if p.Node == Absent || p.Access >= profiles.Overlay {
			continue
		}
		for dir := path.Dir(p.Path); dir != "/" && m.shown(path.Dir(dir)) == profiles.Write; dir = path.Dir(dir) {
			m.put(Place{Path: dir, Access: m.shown(dir), Pin: true, Protect: true, Why: "contains files that must not be moved"})
		}
	}
}
