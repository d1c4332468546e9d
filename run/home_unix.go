//go:build unix

package run

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
)

// openHome opens the home that the policy asks for, and copies into it what the profile says.
// From then on no other run is kept out. A dry run makes none, and neither does one elsewhere.
func (f *prepared) openHome() (err error) {
	switch {
	case f.req.Resolved != nil: // elsewhere: they came along
		f.seeds = f.req.Seeds
		return nil
	case f.Cloud:
		f.seeds, f.homeNotes, err = homes.FilesElsewhere(f.policy)
		return err
	case f.req.DryRun:
		return nil
	case f.policy.FreshHome:
		f.seeds, f.homeNotes = homes.Files(f.policy)
		return nil
	case f.policy.Decide(f.policy.Home).Access != profiles.Persist:
		return nil
	}
	variant := ""
	if f.policy.NoLogin {
		variant = homes.NoLogin
	}
	source := f.policy.Source
	if one := "built-in " + f.policy.Profile; slices.Contains(f.policy.Layers, one) {
		source = one // a profile of the user's in its place adds to it: `pccrun profile allow` does not give an agent another home
	}
	h, err := homes.Open(f.dirs.State, f.policy.Workspace, source+variant, f.policy.Profile+variant)
	if err != nil {
		return err
	}
	if err = h.Clear(); err == nil {
		err = h.Seed(f.policy)
	}
	if err == nil {
		err = f.gained(h)
	}
	if err == nil {
		h.Layers, err = f.agentLayers(h)
	}
	if err == nil {
		err = h.Share()
	}
	if err != nil {
		h.Close()
		return err
	}
	f.home = h
	f.homeNotes = append(f.homeNotes, h.Notes...)
	return nil
}

// gained says where this run may do more than the one before, and finds programs in the home.
func (f *prepared) gained(h *homes.Home) error {
	more, program, err := h.Gains(homes.Rights(f.policy))
	if err != nil || len(more) == 0 {
		return err
	}
	const most = 3
	text := strings.Join(more[:min(len(more), most)], ", ")
	if n := len(more) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	f.homeNotes = append(f.homeNotes, "this run may do more than the last one here ("+text+"), and the home has a program of that run: "+strconv.Quote("~/"+program)+"; --fresh-home starts with a new home")
	return nil
}

// homeDir is what the plan mounts at ~.
func (f *prepared) homeDir() *survey.Home {
	if f.home == nil {
		return nil
	}
	return &survey.Home{Path: f.home.Path, Dev: f.home.Dev, Ino: f.home.Ino, Layers: f.home.Layers}
}
