package survey

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// keepsSecrets refuses a workspace that is a directory of secrets, which the command could read and
// change: somebody may have led there by a link. A repository of its own within is one
// that somebody works in, such as ~/.config/nvim.
func keepsSecrets(policy *profiles.Policy) error {
	for _, s := range profiles.SecretPlaces {
		dir := policy.Home + "/" + s.Name
		if !Below(policy.Workspace, dir) {
			continue
		}
		var st unix.Stat_t
		if policy.Workspace == dir || unix.Lstat(policy.Workspace+"/.git", &st) != nil {
			return hint.Errorf("cd to a project; --read or --write DIR shows another directory",
				"workspace %s: %s keeps secrets and configuration of other programs", policy.Workspace, dir)
		}
	}
	return nil
}
