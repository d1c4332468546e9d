package workspace

import "path/filepath"

// beside notes what the user's own configuration of git names outside of the
// workspace and git needs to do its work: without an included file a commit has no
// author, without the excludes it has everything. A file of the workspace has no
// say in it, though the user's includes it.

// reads reports whether git reads the file that a setting names, as text: git help
// config, 2.51.
func (s *setting) reads() bool {
	switch s.section {
	case "core":
		return s.key == "excludesfile" || s.key == "attributesfile"
	case "commit":
		return s.key == "template"
	}
	return false
}

// names notes a path that a file of the user's own gives. A relative one begins in
// a repository.
func (s *scan) names(path string) {
	if path = s.expand(path); s.mine && filepath.IsAbs(path) && !inside(s.root, filepath.Clean(path)) {
		s.beside[filepath.Clean(path)] = true
	}
}

func inside(root, path string) bool {
	_, in := below(root, path)
	return in
}
