package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/workspace"
)

// What a run does about its overlays: the session's directory holds what they
// change, and is kept if anything did.

// makeUpper makes the directories that the plan's overlays need.
func (l *launch) makeUpper() error {
	overlays := l.run.Plan.Overlays()
	if len(overlays) == 0 {
		return nil
	}
	l.session.Keep(keptUpper) // also if we are killed
	session, err := l.session.Dir()
	if err != nil {
		return err
	}
	record := &workspace.Record{Workspace: l.policy.Workspace, Protect: l.policy.Protect, Started: workspace.Clock()}
	for _, m := range overlays {
		record.Layers = append(record.Layers, workspace.Layer{Path: m.Source, Dev: m.Device(), Ino: m.Ino})
	}
	var snapshot *os.Root
	if l.req.From != "" {
		if snapshot, err = openSnapshot(l.req.From); err != nil {
			return err
		}
		defer snapshot.Close()
	}
	if err := workspace.CreateUpper(session, record, snapshot); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(session.Name(), workspace.UpperName))
	if err != nil {
		return err
	}
	l.run.Plan.SetUpper(dir)
	l.upper = true
	l.run.Overlaid = func() int64 { return workspace.Usage(session) }
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
	return workspace.HandUpper(session, id.HostUID, id.HostGID)
}

// settleUpper notes what the run changed, and says so.
func (l *launch) settleUpper() error {
	if !l.upper {
		l.session.Drop(keptUpper)
		return nil
	}
	session, err := l.session.Dir()
	if err != nil {
		return err
	}
	upper, err := workspace.OpenUpper(session, l.openLower)
	if err != nil {
		return err
	}
	defer upper.Close()
	n, lost, err := upper.Settle()
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	if lost > 0 && !l.req.Quiet {
		say(fmt.Sprintf("%d sockets, FIFOs or devices in the overlay are not kept", lost))
	}
	if n == 0 {
		l.session.Drop(keptUpper)
		return workspace.RemoveUpper(session)
	}
	if !l.req.Quiet {
		files := "files"
		if n == 1 {
			files = "file"
		}
		say(fmt.Sprintf("%d %s changed in the overlay: pccrun diff, apply or discard", n, files))
	}
	return nil
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
