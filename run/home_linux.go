package run

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
)

// What a run does about a persistent home.

// openHome opens the home that the policy asks for, and copies into it what the profile says.
// From then on no other run is kept out. A dry run makes none.
func (f *flow) openHome() error {
	if f.req.DryRun {
		return nil
	}
	if f.policy.FreshHome {
		var notes []string
		f.seeds, notes = homes.Files(f.policy)
		f.policy.Warnings = append(f.policy.Warnings, notes...)
		return nil
	}
	if f.policy.Decide(f.policy.Home).Access != profiles.Persist {
		return nil
	}
	h, err := homes.Open(f.dirs.State, f.policy.Workspace, f.policy.Source, f.policy.Profile)
	if err != nil {
		return err
	}
	if err = h.Clear(); err == nil {
		err = h.Seed(f.policy)
	}
	if err == nil {
		err = h.Share()
	}
	if err != nil {
		h.Close()
		return err
	}
	f.home = h
	f.policy.Warnings = append(f.policy.Warnings, h.Notes...)
	return nil
}

// homeDir is what the plan mounts at ~.
func (f *flow) homeDir() *namespaces.Home {
	if f.home == nil {
		return nil
	}
	return &namespaces.Home{Path: f.home.Path, Dev: f.home.Dev, Ino: f.home.Ino}
}

// furnish makes what the plan needs in the home.
func (l *launch) furnish() error {
	for path, text := range l.seeds {
		l.run.Plan.SeedHome(l.policy.Home, path, text)
	}
	if l.home == nil {
		return nil
	}
	var needs []homes.Need
	for _, s := range l.run.Plan.HomeStubs() {
		needs = append(needs, homes.Need{Name: s.Name, Dir: s.Node == namespaces.Directory, Link: s.Link})
	}
	if err := l.home.Prepare(needs); err != nil {
		return err
	}
	if len(l.home.Aside) > 0 && !l.req.Quiet {
		for _, name := range l.home.Aside[:min(len(l.home.Aside), maxSaid)] {
			messages.Say("moved out of the home: " + strconv.Quote("~/"+name) + ", which an earlier run has made")
		}
	}
	l.home.Aside = nil
	l.stood = map[string][]string{}
	for _, dir := range l.homeDirs() {
		l.stood[dir] = l.home.Shown(dir)
	}
	return nil
}

// homeDirs are the directories of the home where people look for what they have made: itself,
// and that around the workspace.
func (l *launch) homeDirs() []string {
	dirs := []string{"."}
	if rest, in := strings.CutPrefix(filepath.Dir(l.policy.Workspace), l.policy.Home+"/"); in {
		dirs = append(dirs, rest)
	}
	return dirs
}

// leaveHome says what the command has left in the home that no tool keeps there: the user will
// look for it outside, and in vain.
func (l *launch) leaveHome() {
	if l.home == nil {
		return
	}
	var made []string
	for _, dir := range l.homeDirs() {
		for _, name := range l.home.Shown(dir) {
			if path := filepath.Join(dir, name); !slices.Contains(l.stood[dir], name) && !l.needed(path) {
				made = append(made, path)
			}
		}
	}
	if len(made) == 0 {
		return
	}
	const most = 3
	var paths []string
	for _, name := range made[:min(len(made), most)] {
		paths = append(paths, strconv.Quote("~/"+name))
	}
	text := "in the home of this workspace: " + strings.Join(paths, ", ")
	if more := len(made) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	w := events.Warning{Text: text, Hint: "pccrun home" + l.homeFlags() + " export " + shell.Quote(made[0]) + " DEST copies it"}
	l.log.Emit(w)
	if !l.req.Quiet {
		messages.Say(w.Text)
		messages.Say("hint: " + w.Hint)
	}
}

// homeFlags name the home of this run where it is not the one that `pccrun home` takes by itself.
func (l *launch) homeFlags() string {
	flags := " --profile " + shell.Quote(l.policy.Profile)
	if l.policy.WorkDir != l.policy.Workspace {
		flags += " --workspace " + shell.Quote(l.policy.Workspace)
	}
	return flags
}

// needed reports whether something of the host's is shown at, or below, a path of the home, and
// whether a cache of Go's lies there.
func (l *launch) needed(path string) bool {
	return path == "go" || slices.ContainsFunc(l.run.Plan.HomeStubs(), func(s namespaces.Stub) bool {
		return s.Name == path || strings.HasPrefix(s.Name, path+"/")
	})
}
