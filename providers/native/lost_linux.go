package native

import (
	"path/filepath"

	"github.com/pccrun/pccrun/workspace/quarantine"
)

// Lost is what was made in the home, or beside the workspace, where the directory was the
// sandbox's own: the command had no error.
func (s *Started) Lost() ([]quarantine.Lost, error) {
	p := s.run.Policy
	dirs := []string{p.Home}
	if dir := p.Decide(filepath.Dir(p.Workspace)).Rule.Path; dir != p.Home && !p.Temporary(dir) {
		dirs = append(dirs, dir)
	}
	_, remade := p.AgentDirs()
	list, err := s.Sandbox.Lost(append(dirs, s.run.Plan.Layers(p.Workspace)...), append(p.Remade(), remade...))
	items := make([]quarantine.Lost, len(list))
	for i, one := range list {
		items[i] = quarantine.Lost{Path: one.Path, Dir: one.Dir, Files: one.Files, Size: one.Size, More: one.More}
	}
	return items, err
}
