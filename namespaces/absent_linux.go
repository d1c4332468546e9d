package namespaces

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// absent names the paths that the user wants hidden, or kept from writing, or
// shown by a flag, which may be mistyped (a profile of his own may be for several
// machines), and that do not exist. A mount needs something to cover: if they appear during
// the run they are what their directory is. It reports whether one was to be
// hidden. In a directory that is hidden or private itself nothing of the host's
// appears. What is protected is set aside.
func (f *finder) absent() (hidden bool) {
	for _, p := range f.places {
		if p.Node != Absent || p.Protect || f.byDefault(p.Path) {
			continue
		}
		around := f.decider.Decide(filepath.Dir(p.Path)).Access
		switch {
		case p.Access == profiles.Hide && around >= profiles.Read:
			hidden = true
			f.notes = append(f.notes, p.Path+" does not exist, and is not hidden if it appears during the run ("+p.Why+")")
		case p.Access == profiles.Read && around <= profiles.Read && f.decider.Decide(p.Path).Rule.Origin.Source == "flag":
			f.notes = append(f.notes, p.Path+" does not exist: there is nothing to show ("+p.Why+")")
		case p.Access == profiles.Read && around > profiles.Read:
			f.notes = append(f.notes, p.Path+" does not exist, and can be made and written during the run ("+p.Why+")")
		}
	}
	return hidden
}

// Vacant reports whether a path that the policy has private is not, because nothing
// stands on the host where the rule says: what is made there, in a directory that
// may be written, is taken away again, at the end or, where the name is protected, as
// it appears.
func Vacant(policy *profiles.Policy, path string) bool {
	d := policy.Decide(path)
	return d.Access == profiles.Private && newFinder(policy).vacant(d.Rule.Path)
}

// vacant reports whether nothing stands at a path that a built-in profile has
// private and protects, or reviews: a mount would leave a stub there, and what
// appears is taken away, or told. Who asks for it by a rule of his own gets it, or
// a refusal.
func (f *finder) vacant(path string) bool {
	var st unix.Stat_t
	if !f.byDefault(path) || unix.Lstat(path, &st) != unix.ENOENT || below(path, f.policy.Workspace) {
		return false
	}
	_, ok := f.policy.Protected(path)
	return ok
}
