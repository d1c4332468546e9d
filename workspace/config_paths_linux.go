package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// The functions here note what the user's own configuration of git names outside of the
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

func inside(root, path string) bool {
	_, in := beneath.Path(root, path)
	return in
}
