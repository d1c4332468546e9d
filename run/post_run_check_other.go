//go:build unix && !linux

package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/postrun"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A guarded run is looked at when it has ended. Whoever kills the launcher takes that away: nothing
// is written down for the next.
type guarded struct {
	record *postrun.Record
	failed bool // the post-run check was not finished
}

// recordUnfinished takes in what stands where the command may write.
func (f *flow) recordUnfinished() error {
	p := f.policy
	if len(p.Protect) == 0 {
		return nil
	}
	var roots []string
	add := func(path string) {
		if p.Decide(path).Access == profiles.Write && !slices.ContainsFunc(roots, func(root string) bool { return survey.Below(path, root) }) {
			roots = append(roots, path)
		}
	}
	add(p.Workspace)
	for _, r := range p.Files {
		if info, err := os.Lstat(r.Path); r.Glob == "" && err == nil && info.IsDir() {
			add(r.Path)
		}
	}
	if own := f.layout.OwnGit; own != "" {
		roots = append(roots, own)
	}
	record, err := postrun.Take(roots, postrun.Rules{
		Hidden:    func(path string) bool { return p.Decide(path).Access < profiles.Read },
		Protected: survey.Protects(p),
	})
	if err != nil && slices.Contains(p.AllowMissing, profiles.FSProtect) {
		return nil
	}
	if err != nil {
		return &profiles.Error{Cause: "guarantee fs.protect: " + err.Error(), Hint: "--allow-missing fs.protect runs without the post-run check"}
	}
	f.guarded.record = record
	return nil
}

// lookBack looks at what the run left, and says what was found.
func (f *flow) lookBack() (list []events.Change) {
	record := f.guarded.record
	if f.guarded.record = nil; record == nil {
		return nil
	}
	found, err := record.Check(func() (*os.Root, error) { return f.session.Want(KeepChanges) })
	if err != nil {
		messages.Say("post-run check: " + messages.InWords(err))
		f.log.Emit(events.Warning{Text: messages.InWords(err)})
		f.guarded.failed = true
	}
	for i, c := range found {
		f.log.Emit(events.Changed{Path: c.Path, Kind: string(c.Kind), What: c.What, Why: c.Why})
		if !f.req.Quiet && i < maxSaid {
			messages.Say(DescribeFinding(c, f.policy.Workspace))
		}
		list = append(list, events.Change{Path: Within(f.policy.Workspace, c.Path), Kind: string(c.Kind)})
	}
	if !f.req.Quiet && len(found) > 0 {
		messages.Say("pccrun review " + f.session.ID() + " lists them, and with --accept restores what was quarantined")
	}
	return list
}

// DescribeFinding says what a finding is, in one line.
func DescribeFinding(c quarantine.Finding, root string) string {
	path := Within(root, c.Path)
	switch {
	case c.Kind == workspace.Review:
		return c.What + ": " + path + " (review " + c.Why + ")"
	case executors[c.Why] != "":
		return "quarantined: " + path + " (" + executors[c.Why] + ")"
	case c.Protected():
		return "quarantined: " + path + " (protected by " + c.Why + ")"
	}
	return "quarantined: " + path + " (" + c.What + "; " + c.Why + ")"
}

// Restore puts back what a session has quarantined at the paths and below them, or all of it.
func Restore(home sessions.Home, e sessions.Entry, paths []string, cwd string, told func(text string)) error {
	if e.State == sessions.Running {
		return fmt.Errorf("session %s: %w: accept it when it has ended", e.ID, sessions.ErrAlive)
	}
	dir, err := home.Open(e.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	found, err := quarantine.ReadFindings(dir)
	errs := []error{err}
	matched := make([]bool, len(paths))
	for _, c := range found {
		wanted := len(paths) == 0
		for i, p := range paths {
			if !filepath.IsAbs(p) {
				p = filepath.Join(cwd, p)
			}
			if survey.Below(c.Path, filepath.Clean(p)) || survey.Below(c.Path, filepath.Join(e.Workspace, paths[i])) {
				wanted, matched[i] = true, true
			}
		}
		if !wanted || c.Stash == "" && len(c.Parts) == 0 {
			continue
		}
		if err := c.PutBack(dir); err != nil {
			errs = append(errs, err)
			continue
		}
		told("restored: " + Within(e.Workspace, c.Path))
	}
	for i, ok := range matched {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: session %s quarantined nothing at that path", paths[i], e.ID))
		}
	}
	return errors.Join(errs...)
}
