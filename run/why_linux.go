package run

import (
	"errors"
	"os"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
)

// Surveyed returns what a launch would put at a path, if that is not what the
// table says: programs of PATH are shown, tracked files that are unchanged are not
// hidden, a worktree's repository is there; and whether what is changed there is
// gone at exit. Of a path that does not exist only what it lies in tells more than the table.
func Surveyed(p *profiles.Policy, host *profiles.Host, path string) (d profiles.Decision, differs, scratch bool) {
	_, missing := os.Lstat(path)
	looked, err := survey.Look(p, survey.Options{Getenv: host.Getenv, Environ: host.Environ})
	if err != nil {
		messages.Say("a run would not start: " + messages.InWords(err))
		return d, false, false
	}
	deepest := survey.Place{}
	for _, place := range looked.Places {
		covers := place.Path == path || place.Path == "/" || strings.HasPrefix(path, place.Path+"/")
		if covers && place.Node != survey.Link && len(place.Path) >= len(deepest.Path) {
			deepest = place
		}
	}
	table := p.Decide(path)
	inShown := deepest.Scratch || deepest.Access == profiles.Read && table.Rule.Glob == "" && table.Rule.Path != path
	rule, named := p.ProtectedAnywhere(path) // else it has another name that is protected, or one leads to it
	pinned := deepest.Protect && !deepest.Scratch && (named && !rule.Review && deepest.Access == profiles.Read || table.Access <= deepest.Access)
	if missing != nil && !inShown || deepest.Path == "" || pinned || deepest.Access == table.Access {
		return d, false, false
	}
	at := profiles.FileRule{Path: deepest.Path, Access: deepest.Access, Origin: profiles.Origin{Source: "this machine", Key: deepest.Why}}
	return profiles.Decision{Access: deepest.Access, Rule: at}, true, deepest.Scratch
}

// ChangedWith returns what a rule has to name for a path to change: of the repository of a
// worktree all, since git makes names there that did not exist.
func ChangedWith(d *profiles.Decision, path string) string {
	if d.Rule.Origin.Key == survey.WorktreeRepository {
		return d.Rule.Path
	}
	return path
}

// SurveyedEnv returns the value that a launch gives to a variable of which the policy says
// nothing, and what is there; "" for none.
func SurveyedEnv(p *profiles.Policy, host *profiles.Host, name string) (value, what string) {
	looked, err := survey.Look(p, survey.Options{Getenv: host.Getenv, Environ: host.Environ})
	if err != nil {
		return "", ""
	}
	for _, v := range looked.Env {
		if value, ok := strings.CutPrefix(v.Entry, name+"="); ok {
			return value, v.Why
		}
	}
	return "", ""
}

// ProgramOf returns the file that a run tries first for a command's name, or the error
// with which it would end.
func ProgramOf(p *profiles.Policy, host *profiles.Host, name string) (string, error) {
	paths, err := survey.Programs(p, name, host.Environ)
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// Unrunnable says why a name stands for no program, and what mends that.
func Unrunnable(err error) (what, hint string) {
	var e *survey.ErrNotFound
	if !errors.As(err, &e) {
		return err.Error(), ""
	}
	if errors.Is(e.Err, os.ErrNotExist) {
		return "no program of this name is on the PATH of a run", e.Hint()
	}
	return e.Err.Error(), e.Hint()
}
