//go:build unix

package run

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// home is what the command has for a home.
type home struct {
	*resolved
	kept      *homes.Home         // nil: it is not persistent
	conversed *homes.Home         // what of it goes elsewhere is here; nil: nothing does
	seeds     map[string]string   // what a home begins with that is gone at exit, by path
	notes     []string            // what the user should hear of it
	stood     map[string][]string // names in it, by directory, before the command
}

// openHome opens the home that the policy asks for, and copies into it what the profile says.
// From then on no other run is kept out. A dry run makes none, and neither does one elsewhere.
func openHome(r *resolved) (m *home, err error) {
	m = &home{resolved: r}
	p := r.policy
	switch {
	case r.req.Resolved != nil: // elsewhere: they came along
		m.seeds = r.req.Seeds
		return m, nil
	case r.Cloud:
		if m.seeds, m.notes, err = homes.FilesElsewhere(p); err == nil && r.req.Conversation != nil && !r.req.DryRun && !p.FreshHome && p.Decide(p.Home).Access == profiles.Persist {
			if m.conversed, err = homes.For(r.dirs.State, p.Workspace, p); err == nil {
				err = m.conversed.Share()
			}
		}
		return m, err
	case r.req.DryRun:
		return m, nil
	case p.FreshHome:
		m.seeds, m.notes = homes.Files(p)
		return m, nil
	case p.Decide(p.Home).Access != profiles.Persist:
		return m, nil
	}
	h, err := homes.For(r.dirs.State, p.Workspace, p)
	if err != nil {
		return m, err
	}
	if err = h.Clear(); err == nil {
		err = h.Seed(p)
	}
	if err == nil {
		err = m.gained(h)
	}
	if err == nil {
		h.Layers, err = m.agentLayers(h)
	}
	if err == nil {
		err = h.Share()
	}
	if err != nil {
		h.Close()
		return m, err
	}
	m.kept, m.notes = h, append(m.notes, h.Notes...)
	return m, nil
}

// gained says where this run may do more than the one before, and finds programs in the home.
func (m *home) gained(h *homes.Home) error {
	more, program, err := h.Gains(homes.Rights(m.policy))
	if err != nil || len(more) == 0 {
		return err
	}
	m.notes = append(m.notes, "this run may do more than the last one here ("+messages.Few(more, 3)+"), and the home has a program of that run: "+strconv.Quote("~/"+program)+"; --fresh-home starts with a new home")
	return nil
}

// mounted is what the plan mounts at ~; nil for a home that is not persistent.
func (m *home) mounted() *survey.Home {
	if m.kept == nil {
		return nil
	}
	return &survey.Home{Path: m.kept.Path, Dev: m.kept.Dev, Ino: m.kept.Ino, Layers: m.kept.Layers}
}

// prepare makes what a plan needs in the home.
func (m *home) prepare(needs []homes.Need) error {
	if m.kept == nil {
		return nil
	}
	if err := m.kept.Prepare(needs); err != nil {
		return err
	}
	if !m.req.Quiet {
		for _, name := range m.kept.Aside[:min(len(m.kept.Aside), maxSaid)] {
			messages.Say("moved out of the home: " + strconv.Quote("~/"+name) + " (made by an earlier run)")
		}
	}
	m.kept.Aside = nil
	m.stood = map[string][]string{}
	for _, dir := range m.searched() {
		m.stood[dir] = m.kept.Shown(dir)
	}
	return nil
}

// searched are the directories of the home where people look for what they have made: itself,
// where `go install` puts programs, and that around the workspace.
func (m *home) searched() []string {
	dirs := []string{".", "go/bin"}
	if rest, in := strings.CutPrefix(filepath.Dir(m.policy.Workspace), m.policy.Home+"/"); in {
		dirs = append(dirs, rest)
	}
	return dirs
}
