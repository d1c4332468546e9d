package survey

import (
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
)

// spelled makes a path of the caller's work inside as he spells it, ~/code where
// that is a link to another disk: build files keep such paths. The links are the
// user's own, and what they lead to is shown already, or a home: a name is made,
// and nothing is granted. It reports whether the path leads there by links.
func (f *links) spelled(path string) bool {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || f.err != nil {
		return false
	}
	list, end, err := f.hops(path)
	if err != nil || len(list) == 0 || f.shown(end.Path) < profiles.Read && end.Path != f.policy.Home {
		return false
	}
	for i := range list {
		if f.refuses(list[i].at, &list[i].st, profiles.Read, list[i].to) != "" {
			return false
		}
	}
	for _, h := range list {
		f.put(Place{Path: h.at, Node: Link, Link: h.text, Access: profiles.Read, Why: "as " + path + " is spelled"})
	}
	return true
}

// leadsTo reports whether a path leads to a directory that has no links on its way.
func leadsTo(path, dir string) bool {
	real, err := state.Real(path)
	return err == nil && real == dir
}

// terminfo shows what the caller's terminal is, where that is described in the
// home: terminfo(5). A new terminal brings its own.
func (f *links) terminfo(getenv func(string) string) {
	term := getenv("TERM")
	if term == "" || strings.ContainsAny(term, "/.") {
		return
	}
	for _, dir := range [...]string{getenv("TERMINFO"), f.policy.Home + "/.terminfo"} {
		if filepath.IsAbs(dir) {
			f.lend(filepath.Join(dir, term[:1], term), "the terminal's description")
		}
	}
}
