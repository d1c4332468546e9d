// Package leftovers works with what sessions have left when their commands are over: changes in overlays, what is still
// at a cloud, sandboxes and control groups of launchers that were killed.
//
// It promises that nothing of a session is destroyed which could still be downloaded or applied, unless all is to go.
package leftovers

import (
	"errors"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
)

// ClearCrashed ends what a crashed launcher left: the sandbox with its control groups, which
// are empty then, or what it has at another provider. It ends a sandbox that stands, too.
func ClearCrashed(program run.Program, home sessions.Home, e sessions.Entry) error {
	if e.Resource != nil {
		if err := run.Destroy(program, e.Resource); err != nil || !e.Unfetched && !e.Standing {
			return err
		}
		dir, err := home.Open(e.ID)
		if err != nil {
			return err
		}
		defer dir.Close()
		if e.Standing {
			return errors.Join(dir.Remove(sessions.KeptName), home.Release(e.ID, sessions.KeepSandbox))
		}
		return dir.Remove(sessions.UnfetchedName) // there is nothing to be downloaded any more
	}
	err := home.Kill(e, syscall.SIGKILL, 10*time.Second)
	if err != nil && !errors.Is(err, sessions.ErrGone) && !errors.Is(err, sessions.ErrElsewhere) {
		return err
	}
	return removeGroups(e.Cgroups)
}
