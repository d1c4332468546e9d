package native

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
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
	list, err := s.box.Lost(append(dirs, s.run.Plan.Layers(p.Workspace)...), append(p.Remade(), remade...))
	if err == nil {
		var named []namespaces.Lost
		named, err = s.namedTemporary()
		list = append(list, named...)
	}
	items := make([]quarantine.Lost, len(list))
	for i, one := range list {
		items[i] = quarantine.Lost{Path: one.Path, Dir: one.Dir, Files: one.Files, Size: one.Size, More: one.More}
	}
	return items, err
}

// namedTemporary is what was made in temporary directories by a name that is an argument of the command, or in an agent's own
// words: whoever asks for a report in /tmp wants it there.
func (s *Started) namedTemporary() (found []namespaces.Lost, err error) {
	p := s.run.Policy
	apart := "="
	if p.Attempts {
		apart = " \t\n\"'`;|&<>()=,"
	}
	var words []string
	for _, argument := range s.run.Plan.Command.Argv {
		words = append(words, strings.FieldsFunc(argument, func(r rune) bool { return strings.ContainsRune(apart, r) })...)
	}
	slices.Sort(words) // a directory before what is in it
	for _, word := range words {
		path := filepath.Clean(strings.TrimRight(word, ".:!?"))
		d := p.Decide(path)
		if d.Access != profiles.Private || !p.Temporary(d.Rule.Path) || path == d.Rule.Path || slices.ContainsFunc(found, func(f namespaces.Lost) bool { return survey.Below(path, f.Path) }) {
			continue
		}
		list, e := s.box.Lost([]string{filepath.Dir(path)}, nil)
		err = errors.Join(err, e)
		found = append(found, slices.DeleteFunc(list, func(l namespaces.Lost) bool { return l.Path != path })...)
	}
	return found, err
}

// OpenLost opens the directory that holds one of them, in which it has the name.
func (s *Started) OpenLost(path string) (dir int, name string, err error) {
	return s.box.OpenLost(path)
}
