package workspace

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// covered lists the directories whose content the command does not see: those
// that a rule hides or replaces, by name or by a pattern, and that stand.
func (f *Found) covered() (list []Node) {
	for _, m := range f.Matches {
		if m.Kind == Dir && (m.Rule.Access == profiles.Hide || m.Rule.Access == profiles.Private) {
			list = append(list, m.Node)
		}
	}
	c := f.after.rules
	for _, i := range c.closed {
		var st unix.Stat_t
		path := c.files[i].Path
		if beneath.Stat(unix.AT_FDCWD, path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			list = append(list, Node{path, Dir, st.Dev, st.Ino})
		}
	}
	return list
}
