package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
)

// What a run does about a persistent home.

// prepareHome makes what the plan needs in the home.
func (f *prepared) prepareHome() error {
	if f.home == nil {
		return nil
	}
	needs := f.local.HomeNeeds()
	if err := f.home.Prepare(needs); err != nil {
		return err
	}
	if len(f.home.Aside) > 0 && !f.req.Quiet {
		for _, name := range f.home.Aside[:min(len(f.home.Aside), maxSaid)] {
			messages.Say("moved out of the home: " + strconv.Quote("~/"+name) + " (made by an earlier run)")
		}
	}
	f.home.Aside = nil
	f.stood = map[string][]string{}
	for _, dir := range f.homeDirs() {
		f.stood[dir] = f.home.Shown(dir)
	}
	return nil
}

// homeDirs are the directories of the home where people look for what they have made: itself,
// where `go install` puts programs, and that around the workspace.
func (f *prepared) homeDirs() []string {
	dirs := []string{".", "go/bin"}
	if rest, in := strings.CutPrefix(filepath.Dir(f.policy.Workspace), f.policy.Home+"/"); in {
		dirs = append(dirs, rest)
	}
	return dirs
}

// leaveHome says what the command has left in the home that no tool keeps there: the user will
// look for it outside, and in vain.
func (f *flow) leaveHome() {
	if f.home == nil {
		return
	}
	var made []string
	for _, dir := range f.homeDirs() {
		for _, name := range f.home.Shown(dir) {
			if path := filepath.Join(dir, name); !slices.Contains(f.stood[dir], name) && !f.needed(path) {
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
	text := "saved only in the home of this workspace: " + strings.Join(paths, ", ")
	if more := len(made) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	hint := "pccrun home" + f.homeFlags() + " export " + shell.Quote(made[0]) + " DEST copies it to the host"
	f.warn(events.Warning{Text: text, Hint: hint}, text)
}

// giveBack has a log-in that the run has renewed taken over into the user's own file, by the whole
// program, as far as that needs no question.
func (f *flow) giveBack() {
	if f.home == nil || f.local == nil {
		return
	}
	renewable := false
	for _, s := range f.home.Renewed(f.policy) {
		if renewable = renewable || s.Renew != ""; s.Renew == "" && !f.req.Quiet {
			if _, err := os.Lstat(s.Path); errors.Is(err, os.ErrNotExist) {
				messages.Say("a new login stays in the home of this workspace: " + strconv.Quote(s.Path))
			}
		}
	}
	f.home.Close()
	if renewable && f.uid == 0 {
		messages.Say("a renewed login stays in the home of this workspace: root privileges were dropped")
		messages.Say("hint: pccrun home login" + f.homeFlags() + " asks and copies it")
		return
	}
	if !renewable {
		return
	}
	exe, err := f.program.Whole()
	if err == nil {
		defer exe.Close()
		args := []string{"pccrun", "home", "login", "--renewed", "--workspace", f.policy.Workspace, "--profile", f.home.Record.Name}
		var p *os.Process
		if p, err = os.StartProcess("/proc/self/fd/3", args, &os.ProcAttr{Dir: "/", Env: f.req.Host.Environ, Files: []*os.File{nil, os.Stderr, os.Stderr, exe}}); err == nil {
			timer := time.AfterFunc(loginWithin, func() { _ = p.Kill() })
			_, err = p.Wait()
			timer.Stop()
		}
	}
	if err != nil {
		messages.Say("a renewed login stays in the home of this workspace: " + messages.InWords(err))
	}
}

// loginWithin is how long a run waits at its end for a log-in to be taken over.
const loginWithin = 30 * time.Second

// homeFlags name the home of this run where it is not the one that `pccrun home` takes by itself.
func (f *prepared) homeFlags() string {
	flags := " --profile " + shell.Quote(f.home.Record.Name)
	if f.policy.WorkDir != f.policy.Workspace {
		flags += " --workspace " + shell.Quote(f.policy.Workspace)
	}
	return flags
}

// needed reports whether something of the host's is shown at, or below, a path of the home, and
// whether a cache of Go's lies there.
func (f *prepared) needed(path string) bool {
	return path == "go" || slices.ContainsFunc(f.local.HomeNeeds(), func(n homes.Need) bool {
		return n.Name == path || strings.HasPrefix(n.Name, path+"/")
	})
}
