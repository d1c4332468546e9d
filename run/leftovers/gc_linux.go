package leftovers

import (
	"errors"
	"os"

	"github.com/pccrun/pccrun/cgroups"
)

// removeGroups removes the control groups that a record names.
func removeGroups(dirs []string) error {
	for _, dir := range dirs {
		if err := (cgroups.Leftover{Path: dir}).Remove(); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// RemoveLeftovers removes the control groups of launchers that were killed
// before any record named them.
func RemoveLeftovers() error {
	_, err := cgroups.RemoveLeftovers()
	return err
}
