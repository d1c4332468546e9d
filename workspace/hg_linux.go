package workspace

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// mercurial pins what the configuration of each repository of Mercurial's, or Sapling's, names
// in the workspace: hooks, extensions and tools, which start at the root of the working tree.
func (s *scan) mercurial() error {
	var all []string
	for path := range s.pins {
		if vcs.IsHgConfig(path) {
			all = append(all, path)
		}
	}
	slices.Sort(all)
	for _, path := range all {
		tree := filepath.Dir(filepath.Dir(path))
		if filepath.Base(tree) == ".git" { // Sapling's in a repository of git
			tree = filepath.Dir(tree)
		}
		if err := s.hgConfig(path, tree, 0); err != nil {
			return err
		}
	}
	return nil
}

// hgConfig does it for one file, and those that it includes.
func (s *scan) hgConfig(path, tree string, depth int) error {
	t, err := s.follow("/", path)
	if err != nil || !t.found || t.end.Kind != File || depth > maxInclude {
		return err
	}
	b, err := s.configText(t.end.Path)
	if err != nil {
		return err
	}
	commands, included := vcs.HgPrograms(b)
	rule := profiles.ProtectRule{Pattern: "a command in " + path}
	for _, file := range included {
		if file = s.expand(file); !filepath.IsAbs(file) {
			file = filepath.Dir(path) + "/" + file
		}
		if err := s.leadsTo("/", file, rule); err != nil {
			return err
		}
		if err := s.hgConfig(file, tree, depth+1); err != nil {
			return err
		}
	}
	for _, command := range commands {
		for word, program := range vcs.Mentioned(command) {
			err := s.each([]string{tree}, s.expand(word), func(base, value string) error {
				t, err := s.follow(base, value)
				if err != nil || t.found && t.end.Kind != File || !t.found && !(program && strings.Contains(value, "/")) {
					return err
				}
				return s.leadsTo(base, value, rule)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
