package explain

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/kernel"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/inside"
)

// looks are what was surveyed for an answer, by the policy: it is asked more than once.
var looks = map[*profiles.Policy]*survey.Survey{}

// surveyed surveys this machine as a launch does, or says why none would start.
func surveyed(p *profiles.Policy, host *profiles.Host) (*survey.Survey, error) {
	if looks[p] == nil {
		o := survey.Options{Getenv: host.Getenv, Environ: host.Environ}
		if dirs, err := state.Find(host.Getenv, p.Home); err == nil {
			o.IndexDir, o.Own = dirs.Cache, dirs.State
		}
		looked, err := survey.Look(p, o)
		if err != nil {
			return nil, err
		}
		looks[p] = looked
	}
	return looks[p], nil
}

// At returns what a launch would put at a path. The table of the policy says that, but for what the survey has found:
// programs of PATH are shown, tracked files that are unchanged are not hidden, a worktree's repository is there. An error
// says why a launch would not start.
func At(p *profiles.Policy, host *profiles.Host, path string) (Found, error) {
	looked, err := surveyed(p, host)
	if err != nil {
		return Found{}, err
	}
	if at, access := made(p, path); at != "" {
		return found(at, access, "a tool's own directory, made for the run", access == profiles.Overlay), nil
	}
	if end := endOf(path); end != "" && led(p, looked, end) {
		return found(end, profiles.Read, "protect: a link leads to it", false), nil
	}
	table := p.Decide(path)
	_, missing := os.Lstat(path)
	place, ok := deepest(looked, path, missing == nil)
	if ok && place.Copied && place.Path == path && (p.Decide(p.Home).Access == profiles.Private || KeepsGit(p, path)) {
		place.Access, place.Scratch = profiles.Overlay, true
	}
	switch {
	case !ok, place.Access == table.Access, protectsOnly(p, &place, path, table.Access):
		return Found{Decision: table}, nil
	case missing != nil && !place.Scratch && (place.Access > profiles.Read || table.Rule.Glob != "" || table.Rule.Path == path):
		return Found{Decision: table}, nil // of what does not exist only what it lies in tells more than the table
	}
	return found(place.Path, place.Access, place.Why, place.Scratch), nil
}

// found is what the survey says, and not the table.
func found(path string, access profiles.Access, why string, scratch bool) Found {
	rule := profiles.FileRule{Path: path, Access: access, Origin: profiles.Origin{Source: "this machine", Key: why}}
	return Found{profiles.Decision{Access: access, Rule: rule}, scratch}
}

// deepest returns the place that a path lies in, or is at.
func deepest(looked *survey.Survey, path string, exists bool) (d survey.Place, ok bool) {
	for _, place := range looked.Places {
		covers := place.Path == path || place.Path == "/" || strings.HasPrefix(path, place.Path+"/")
		if covers && place.Node != survey.Link && (place.Node != survey.Absent || !exists) && len(place.Path) >= len(d.Path) {
			d, ok = place, true
		}
	}
	return d, ok
}

// protectsOnly reports whether a place is no more than what keeps a path from being changed: what may be done there the
// table says, or the rule that protects it. Neither does where the path has another name that is protected, or one leads
// to it.
func protectsOnly(p *profiles.Policy, place *survey.Place, path string, table profiles.Access) bool {
	if !place.Protect || place.Scratch || table == profiles.Hide {
		return false
	}
	rule, named := p.ProtectedAnywhere(path)
	return table <= place.Access || named && !rule.Review && place.Access == profiles.Read
}

// ShowsLink reports whether a link of the host's is there in a run: it lies in a directory that is shown, or a
// rule's path leads through it.
func ShowsLink(p *profiles.Policy, host *profiles.Host, link string) (bool, error) {
	looked, err := surveyed(p, host)
	if err != nil {
		return false, err
	}
	around, err := At(p, host, filepath.Dir(link))
	if err != nil {
		return false, err
	}
	return around.Access >= profiles.Read || slices.ContainsFunc(looked.Places, func(place survey.Place) bool {
		return place.Path == link && place.Node == survey.Link && place.Access > profiles.Hide
	}), nil
}

// WritesFIFO says why a run can write the FIFO that it is shown read-only at a path, "" if it cannot, or if that is no FIFO.
func WritesFIFO(p *profiles.Policy, host *profiles.Host, path string) (why string, err error) {
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return "", nil
	}
	looked, err := surveyed(p, host)
	if err != nil {
		return "", err
	}
	mounts, err := namespaces.Mounts(looked.Places)
	if err != nil {
		return "", err
	}
	switch around := namespaces.WritableAround(mounts, path); {
	case p.Nested, slices.Contains(p.Without, profiles.LayerLandlock), inside.Landlock() < 2:
		return "only Landlock, which is off, keeps a FIFO from being written", nil
	case p.Strict || around == "":
		return "", nil // under strict the launcher opens files
	default:
		return "it is a FIFO below " + around + ", which can be written: Landlock allows no exception there", nil
	}
}

// endOf returns the name at which nothing stands, and where a path leads; "" for one where something does.
func endOf(path string) string {
	for range 40 {
		if _, err := os.Stat(path); err == nil {
			return ""
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return path
		}
		path = filepath.Join(dir, filepath.Base(path))
		text, err := os.Readlink(path)
		if err != nil {
			return path
		}
		if path = text; !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	return ""
}

// led reports whether a name at which nothing stands is protected by no pattern of the policy, but since a link leads
// there, or git would execute it.
func led(p *profiles.Policy, looked *survey.Survey, path string) bool {
	if _, named := p.ProtectedAnywhere(path); named {
		return false
	}
	holds := func(name string) bool { return survey.Below(path, name) }
	found := slices.ContainsFunc(looked.Workspace.Vacant, holds)
	for _, t := range looked.Trees {
		found = found || slices.ContainsFunc(t.Found.Vacant, holds) || slices.ContainsFunc(t.Query.Protect, func(r profiles.ProtectRule) bool {
			return strings.HasPrefix(r.Pattern, "/") && !r.Review && holds(r.Pattern)
		})
	}
	return found
}

// made returns the directory that a run makes around a path, "" for none, and what the command may
// do there.
func made(p *profiles.Policy, path string) (at string, access profiles.Access) {
	for _, name := range p.MadeDirs() {
		dir := filepath.Join(p.Workspace, name)
		if _, err := os.Lstat(dir); err == nil || !survey.Below(path, dir) || !kernel.AtLeast(6, 6) {
			continue
		}
		at, access = dir, profiles.Overlay
		if d := p.Decide(path); d.Rule.Path == dir && d.Access == profiles.Write {
			return "", 0 // what the work goes to, which the policy says
		}
	}
	return at, access
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
	looked, err := surveyed(p, host)
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
