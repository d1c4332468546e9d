package native

import (
	"errors"

	"github.com/pccrun/pccrun/namespaces"
)

// Shed does what only root may do and gives root up, where this process is
// root: it opens what the plan binds and makes the control groups.
func (r *Run) Shed() error {
	if err := r.Plan.Donate(); err != nil {
		if errors.Is(err, namespaces.ErrIdmap) {
			return &IdmapError{err}
		}
		return err
	}
	var err error
	if r.Plan.Await {
		if r.group, err = r.Limits.Create(); err != nil {
			return err
		}
	}
	return r.Plan.Identity.Shed()
}

// An IdmapError says that root's files cannot be lent to somebody who is not
// root.
type IdmapError struct{ err error }

func (e *IdmapError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *IdmapError) Unwrap() error { return e.err }

// Hint says what works instead.
func (e *IdmapError) Hint() string {
	return "run pccrun as the user who owns the workspace, or keep the workspace on ext4, xfs, btrfs or tmpfs (a volume, in a container)"
}
