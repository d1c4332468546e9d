package survey

import (
	"path/filepath"

	"github.com/pccrun/pccrun/profiles"
)

// absent names the paths that the user wants hidden, or kept from writing, or
// shown by a flag, which may be mistyped (a profile of his own may be for several
// machines), and that do not exist. A mount needs something to cover: if they appear during
// the run they are what their directory is. It reports whether one was to be
// hidden. In a directory that is hidden or private itself nothing of the host's
// appears. What is protected is quarantined.
func (f *finder) absent() (hidden bool) {
	for _, p := range f.places {
		if p.Node != Absent || p.Protect || ByDefault(f.policy, p.Path) {
			continue
		}
		around := f.policy.Decide(filepath.Dir(p.Path)).Access
		switch {
		case p.Access == profiles.Hide && around >= profiles.Read:
			hidden = true
			f.notes = append(f.notes, p.Path+" does not exist; if it appears during the run it is not hidden ("+p.Why+")")
		case p.Access == profiles.Read && around <= profiles.Read && f.policy.Decide(p.Path).Rule.Origin.Source == "flag":
			f.notes = append(f.notes, p.Path+" does not exist and is not shown ("+p.Why+")")
		case p.Access == profiles.Read && around > profiles.Read:
			f.notes = append(f.notes, p.Path+" does not exist; the command can create and write it ("+p.Why+")")
		}
	}
	return hidden
}
