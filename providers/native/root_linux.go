package native

import (
	"errors"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/namespaces"
)

// donate opens what the plan binds, which only root may do as the command needs
// it.
func (r *Run) donate() error {
	err := r.Plan.Donate()
	if errors.Is(err, namespaces.ErrIdmap) {
		return hint.Errorf("run pccrun as the user who owns the workspace, or keep the workspace on ext4, xfs or btrfs, "+
			"or from Linux 6.3 on tmpfs (a volume, in a container)", "%w", err)
	}
	return r.unkept(err)
}

// shed gives root up, where this process is root, after it has made the control
// groups. donate comes before it. The directory of the session, which is
// empty at the end if nothing in it is wanted, is removed by tidy.
func (r *Run) shed(session string) error {
	var err error
	if r.moves() {
		if r.group, err = r.Limits.Create(); err != nil {
			return err
		}
	}
	empty := []string{session}
	if r.group != nil {
		empty = append(empty, r.group.Directories()...)
	}
	if r.remover, err = namespaces.NewDirectoryRemover(empty...); err != nil {
		return errors.Join(err, r.release())
	}
	return r.Plan.Identity.Shed()
}

// tidy removes what only root may remove. It is the last thing that a run does.
func (r *Run) tidy() {
	if r.remover != nil {
		r.remover.Close()
		r.remover = nil
	}
}
