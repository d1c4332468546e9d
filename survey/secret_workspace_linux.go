package survey

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
)

// A SecretError says that the workspace is a directory of secrets, which the
// command could read and change. Somebody may have led there by a link.
type SecretError struct{ Workspace, Secret string }

func (e *SecretError) Error() string {
	return fmt.Sprintf("workspace %s: %s keeps secrets and configuration of other programs", e.Workspace, e.Secret)
}

// Hint says what to do instead.
func (e *SecretError) Hint() string {
	return "cd to a project; --read or --write DIR shows another directory"
}

// keepsSecrets refuses such a workspace. A repository of its own within is one
// that somebody works in, such as ~/.config/nvim.
func keepsSecrets(policy *profiles.Policy) error {
	for _, name := range secrets {
		dir := policy.Home + "/" + name
		if !Below(policy.Workspace, dir) {
			continue
		}
		var st unix.Stat_t
		if policy.Workspace == dir || unix.Lstat(policy.Workspace+"/.git", &st) != nil {
			return &SecretError{policy.Workspace, dir}
		}
	}
	return nil
}
