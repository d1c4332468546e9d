package survey

import (
	"cmp"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// privateDirs are names of a home that no run takes over from another: what stands there says
// whom to trust, or is a program of PATH.
var privateDirs = [...]string{".ssh", ".gnupg", ".config/git"}

// persistent puts the home in its place, and keeps apart what is never persistent.
func (f *finder) persistent(home *Home, path, traced []string, mounts []mountpoint) {
	p := f.policy
	d := f.policy.Decide(p.Home)
	if d.Access != profiles.Persist {
		return
	}
	at := Place{Path: p.Home, Node: Directory, Access: profiles.Persist, Why: d.Rule.Origin.String()}
	if home != nil {
		at.Source, at.Dev, at.Ino = home.Path, Device(home.Dev), home.Ino
	}
	if i, ok := f.seen[p.Home]; ok {
		f.places[i] = at
	} else {
		f.put(at)
	}
	for _, name := range privateDirs {
		if !slices.Contains(traced, name) { // else a link leads to a private one
			f.apart(p.Home+"/"+name, "never persistent")
		}
	}
	for _, dir := range path {
		if dir != p.Home && Below(dir, p.Home) && !Below(dir, p.Workspace) && !Below(p.Workspace, dir) {
			f.apart(dir, PathPrivate)
			f.installable(dir, mounts)
		}
	}
}

// PathLayer is the Why of a directory of PATH in the home that the run may write.
const PathLayer = "a directory of PATH: programs installed there are deleted at exit"

// PathPrivate is that of one of which nothing of the host's is shown.
const PathPrivate = "a directory of PATH, never persistent"

// installable lets the command install programs into a directory of PATH in the home that the
// defaults show: `pip install --user`, `npm install -g`. They are this run's, in a layer over
// the host's, so that no later run with more rights executes them.
func (f *finder) installable(dir string, mounts []mountpoint) {
	i, ok := f.seen[dir]
	if !ok || f.places[i].Access != profiles.Read || f.places[i].Node != Directory || f.places[i].Source != "" || !f.scratches(dir, mounts) || unix.Access(dir, unix.W_OK) != nil {
		return
	}
	f.places[i].Access, f.places[i].Scratch, f.places[i].Why = profiles.Overlay, true, PathLayer
}

// spelledInHome shows what a rule's path in the persistent home leads to at the path itself, where
// a link is on the way: `~/.agent` may be one into a repository of dotfiles, and what the agent
// keeps beside is the home's. It reports whether it has.
func (f *finder) spelledInHome(path string, d *profiles.Decision) bool {
	home := f.policy.Home
	if d.Access != profiles.Read || path == home || !Below(path, home) || Below(path, f.policy.Workspace) || f.policy.Decide(home).Access != profiles.Persist {
		return false
	}
	list, end, err := f.hops(path)
	if err != nil || len(list) == 0 {
		return false
	}
	if end.Node == Absent { // no link of the home's is needed for nothing
		return true
	}
	if end.Node != File && end.Node != Directory || Below(home, end.Path) || !f.carries(list) {
		return false // [paths.add] says what is refused
	}
	if to := f.policy.Decide(end.Path); to.Rule.Path != home && to.Rule.Path != "/" && to.Access < profiles.Read {
		return false
	}
	end.Source, end.Path, end.Access, end.Why = end.Path, path, profiles.Read, d.Rule.Origin.String()
	f.put(end)
	if end.Node == Directory && ByDefault(f.policy, path) {
		f.inner(nil, end.Source, end.Why)
	}
	return true
}

// apart makes a directory of the persistent home private, unless something of the host's is
// shown there.
func (f *finder) apart(path, why string) {
	if _, ok := f.seen[path]; ok || f.shown(path) != profiles.Persist {
		return
	}
	f.put(Place{Path: path, Node: Directory, Access: profiles.Private, Why: why})
}

// pathDirs are the absolute directories of the caller's PATH.
func (o *Options) pathDirs() (list []string) {
	for _, dir := range filepath.SplitList(o.Getenv("PATH")) {
		if dir = filepath.Clean(dir); filepath.IsAbs(dir) {
			list = append(list, dir)
		}
	}
	return list
}

// traces returns the names of the home that are on the host, and of which
// nothing is shown: where the home is the sandbox's own.
func (f *finder) traces() (names []string) {
	policy := f.policy
	home := policy.Decide(policy.Home)
	if !policy.Attempts && f.signing.Flags == "" || home.Access != profiles.Private && home.Access != profiles.Persist {
		return nil
	}
	for _, name := range profiles.SearchedPlaces() {
		if !policy.Attempts && name != f.signing.Dir {
			continue
		}
		path := policy.Home + "/" + name
		shows := slices.ContainsFunc(f.places, func(p Place) bool { return Below(p.Path, path) && p.Access != profiles.Hide }) ||
			slices.ContainsFunc(policy.Network.Sockets, func(s profiles.PathRule) bool { return Below(cmp.Or(s.At, s.Path), path) })
		if shows {
			continue
		}
		var st unix.Stat_t
		if d := policy.Decide(path); d.Access == home.Access && d.Rule.Path == home.Rule.Path && unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			names = append(names, name)
		}
	}
	return names
}
