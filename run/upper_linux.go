package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/workspace/changes"
)

// What a run does about its overlays: the session's directory holds what they
// change, and is kept if anything did.

// makeUpper makes the directories that the plan's overlays need.
func (l *launch) makeUpper() error {
	overlays := l.run.Plan.Overlays()
	if len(overlays) == 0 {
		return nil
	}
	session, err := l.session.Want(KeepUpper) // also if we are killed
	if err != nil {
		return err
	}
	record := &changes.Record{Workspace: l.policy.Workspace, Protect: l.watched.Held(), Started: changes.Clock()}
	for _, m := range overlays {
		record.Layers = append(record.Layers, changes.Layer{Path: m.Source, Dev: m.Device(), Ino: m.Ino})
	}
	var snapshot *os.Root
	if l.req.From != "" {
		if snapshot, err = OpenSnapshot(l.req.From); err != nil {
			return err
		}
		defer snapshot.Close()
	}
	if err := changes.CreateUpper(session, record, snapshot); err != nil {
		_ = changes.RemoveUpper(session) // the session may be kept for something else, on a disk that is full
		return fmt.Errorf("session %s: %w", l.session.ID(), err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(session.Name(), changes.UpperName))
	if err != nil {
		return err
	}
	l.run.Plan.SetUpper(dir)
	l.lower, l.upper, l.noted = l.openLower, true, sync.OnceValues(l.noteUpper)
	l.run.Overlaid = func() int64 { return changes.Usage(session) }
	return nil
}

// handUpper gives what was made to the identity that the command gets.
func (l *launch) handUpper(id namespaces.Identity) error {
	if !l.upper {
		return nil
	}
	session, err := l.session.Dir()
	if err != nil {
		return err
	}
	return changes.HandUpper(session, id.HostUID, id.HostGID)
}

// An overlaid is what a run left of its overlays.
type overlaid struct{ changed, lost int }

// noteUpper notes what the run changed, and removes what nothing was changed in.
// Nothing of the run lives: it is done while the kernel takes the mounts apart.
func (f *flow) noteUpper() (o overlaid, err error) {
	session, err := f.session.Dir()
	if err != nil {
		return o, err
	}
	upper, err := changes.OpenUpper(session, f.lower)
	if err != nil {
		return o, err
	}
	defer upper.Close()
	if o.changed, o.lost, err = upper.Settle(); err != nil {
		return o, fmt.Errorf("overlay: %w", err)
	}
	if o.changed == 0 {
		f.session.Drop(KeepUpper)
		return o, changes.RemoveUpper(session)
	}
	return o, nil
}

// settleUpper says what the run changed in its overlays, or why that is not noted.
func (f *flow) settleUpper() {
	if !f.upper {
		f.session.Drop(KeepUpper)
		return
	}
	o, err := f.noted()
	if err != nil {
		messages.Fail(messages.InWords(err), "the overlay is unchanged: pccrun diff shows it; apply and discard work when the error is fixed")
		return
	}
	if f.req.Quiet {
		return
	}
	if o.lost > 0 {
		messages.Say(fmt.Sprintf("%d sockets, FIFOs or devices in the overlay are not kept", o.lost))
	}
	if o.changed > 0 {
		messages.Say(PathsChanged(o.changed) + " in the overlay: pccrun diff, apply or discard")
	}
}

// openLower opens the directory under an overlay: as root, who is not root any
// more by now, through the mount that was lent.
func (l *launch) openLower(i int) (*os.Root, error) {
	m := l.run.Plan.Overlays()[i]
	if m.Donated < 0 {
		return os.OpenRoot(m.Source)
	}
	return os.OpenRoot("/proc/self/fd/" + strconv.Itoa(m.Donated))
}
