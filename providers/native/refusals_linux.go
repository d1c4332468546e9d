package native

import "github.com/pccrun/pccrun/workspace"

// Refused returns what [Started.changedCopies] has found.
func (s *Started) Refused() []workspace.Refusal { return s.pinned }

// changedCopies returns the configurations of which the command has changed a copy that nothing
// comes back of. It is for when nothing of the command runs any more, and to be called once.
func (s *Started) changedCopies() (list []workspace.Refusal) {
	for _, c := range s.box.Configs(false) {
		if c.Changed() {
			list = append(list, workspace.Refusal{Path: c.Path, Why: ".git/config"})
		}
	}
	return list
}
