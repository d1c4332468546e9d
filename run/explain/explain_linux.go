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

// Surveyed returns what a launch would put at a path, if that is not what the
// table says: programs of PATH are shown, tracked files that are unchanged are not
// hidden, a worktree's repository is there; and whether what is changed there is
// gone at exit. Of a path that does not exist only what it lies in tells more than the table.
// An error says why a launch would not start.
func Surveyed(p *profiles.Policy, host *profiles.Host, path string) (d profiles.Decision, differs, scratch bool, err error) {
	_, missing := os.Lstat(path)
	looked, err := surveyed(p, host)
	if err != nil {
		return d, false, false, err
	}
	if at, access := made(p, path); at != "" {
		return profiles.Decision{Access: access, Rule: profiles.FileRule{Path: at, Access: access, Origin: profiles.Origin{Source: "this machine", Key: "a tool's own directory, made for the run"}}}, true, access == profiles.Overlay, nil
	}
	if end := endOf(path); end != "" && led(p, looked, end) {
		return profiles.Decision{Access: profiles.Read, Rule: profiles.FileRule{Path: end, Access: profiles.Read, Origin: profiles.Origin{Source: "this machine", Key: "protect: a link leads to it"}}}, true, false, nil
	}
	deepest := survey.Place{}
	for _, place := range looked.Places {
		covers := place.Path == path || place.Path == "/" || strings.HasPrefix(path, place.Path+"/")
		if covers && place.Node != survey.Link && (place.Node != survey.Absent || missing == nil) && len(place.Path) >= len(deepest.Path) {
			deepest = place
		}
	}
	if deepest.Copied && deepest.Path == path && (p.Decide(p.Home).Access == profiles.Private || KeepsGit(p, path)) {
		deepest.Access, deepest.Scratch = profiles.Overlay, true
	}
	table := p.Decide(path)
	inShown := deepest.Scratch || deepest.Access <= profiles.Read && table.Rule.Glob == "" && table.Rule.Path != path
	rule, named := p.ProtectedAnywhere(path) // else it has another name that is protected, or one leads to it
	pinned := deepest.Protect && !deepest.Scratch && table.Access != profiles.Hide && (named && !rule.Review && deepest.Access == profiles.Read || table.Access <= deepest.Access)
	if missing != nil && !inShown || deepest.Path == "" || pinned || deepest.Access == table.Access {
		return d, false, false, nil
	}
	at := profiles.FileRule{Path: deepest.Path, Access: deepest.Access, Origin: profiles.Origin{Source: "this machine", Key: deepest.Why}}
	return profiles.Decision{Access: deepest.Access, Rule: at}, true, deepest.Scratch, nil
}

// ShowsLink reports whether a link of the host's is there in a run: it lies in a directory that is shown, or a
// rule's path leads through it.
func ShowsLink(p *profiles.Policy, host *profiles.Host, link string) (bool, error) {
	looked, err := surveyed(p, host)
	if err != nil {
		return false, err
	}
	around := p.Decide(filepath.Dir(link))
	if here, differs, _, err := Surveyed(p, host, filepath.Dir(link)); err != nil {
		return false, err
	} else if differs {
		around = here
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
