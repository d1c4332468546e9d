package workspace

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// beside notes what the user's own configuration of git names outside of the
// workspace and git needs to do its work: without an included file a commit has no
// author, without the excludes it has everything. A file of the workspace has no
// say in it, though the user's includes it.

// names notes a path that a file of the user's own gives. A relative one begins in
// a repository.
func (s *scan) names(path string, from reading) {
	if path = s.expand(path); from.of == ofUser && filepath.IsAbs(path) && !inside(s.root, filepath.Clean(path)) {
		s.beside[filepath.Clean(path)] = true
	}
}

// starts notes a program that the user's own configuration names by its path.
func (s *scan) starts(word string) {
	path := s.expand(strings.NewReplacer("$HOME", "~", "${HOME}", "~").Replace(word))
	if filepath.IsAbs(path) && !inside(s.root, filepath.Clean(path)) && !slices.Contains(s.found.Programs, path) {
		s.found.Programs = append(s.found.Programs, path)
	}
}

// signs notes that git is set up to sign what is committed, and how, and whom it shares a repository with.
func (s *scan) signs(c *vcs.Setting) {
	switch {
	case c.Name() == "core.sharedrepository":
		s.found.Shared = c.Value
		return
	case c.Name() == "gpg.format":
		s.signFormat = c.Value
	case (c.Name() == "commit.gpgsign" || c.Name() == "tag.gpgsign") && c.Value != "false" && c.Value != "no" && c.Value != "off" && c.Value != "0":
		s.signed = true
	default:
		return
	}
	if s.found.SignFormat = cmp.Or(s.signFormat, "openpgp"); s.signed {
		s.found.Signs = s.found.SignFormat
	}
}

func inside(root, path string) bool {
	_, in := beneath.Path(root, path)
	return in
}
