//go:build unix

package run

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// oweAlso adds to the record who holds the run: what is looked after waits for that.
func (f *flow) oweAlso(text string) error {
	if f.guarded.unfinished == nil {
		return nil
	}
	return f.guarded.unfinished.Add(text)
}

// noRecord is the error where nobody would look after a run whose launcher is killed.
func noRecord(err error) error {
	return hint.Errorf("XDG_STATE_HOME=DIR names a writable directory; --allow-missing fs.protect runs without the record",
		"guarantee fs.protect: write the unfinished-run record: %w", err)
}

// settled takes the record away of a run that never began, or has been looked after.
func (f *flow) settled() {
	if d := f.guarded.unfinished; d != nil {
		f.removeStubs()
		f.guarded.unfinished = nil
		if err := d.Done(); err != nil {
			messages.Say(messages.InWords(err))
		}
	}
}

// SettleUnfinished looks after killed runs before a verb does its work. A run does so
// by itself, since it knows its home better.
func SettleUnfinished(program Program) {
	if home, err := Sessions(); err == nil {
		if err = Settle(home, program); err != nil {
			messages.Say(unsettled + messages.InWords(err))
		}
	}
}

// Settle looks after the runs whose launchers were killed, before anything else
// is done in their workspaces.
func Settle(home sessions.Home, program Program) error {
	_, err := settleIn("", home, program)
	return err
}

// settleIn is Settle before a run in a workspace, and reports whether that is marked ([sessions.Home.Hold]).
func settleIn(workspace string, home sessions.Home, program Program) (held bool, err error) {
	return home.Recover(workspace, func(id, text string) error { return settleUnfinished(home, program, id, text) })
}

// reportKilled says what a killed run left, and keeps its session for a review.
func reportKilled(home sessions.Home, id, root string, start time.Time, found []workspace.Finding) (err error) {
	if len(found) == 0 { // but for what was quarantined by one that was killed before it had told
		if found, err = setAside(home, id); err != nil || len(found) == 0 {
			return err
		}
	}
	messages.Say("a run in " + root + " was killed:")
	sayFindings(found, nil, root, id)
	return errors.Join(home.Hold(root, true), home.EndKilled(id, root, start, KeepChanges))
}

// setAside returns what the directory of a session has kept, if there is one.
func setAside(home sessions.Home, id string) ([]workspace.Finding, error) {
	dir, err := home.Open(id)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return quarantine.ReadFindings(dir)
}

// sayFindings says what a run left, a line for each, with the flag that would have let it be.
func sayFindings(found []workspace.Finding, p *profiles.Policy, root, session string) {
	said := 0
	for _, c := range found {
		if said++; said > maxSaid {
			continue
		}
		flag := ""
		if p != nil && c.Protected() {
			flag = p.NewFlag(c.Why)
		}
		messages.Say(describe(c, root, flag))
	}
	if said > maxSaid {
		messages.Say(fmt.Sprintf("and %d more", said-maxSaid))
	}
	what := " shows them"
	if slices.ContainsFunc(found, SetAside) {
		what += ", with --accept it restores them"
	}
	messages.Say("pccrun review " + session + what)
}

// DescribeFinding says what a change is, in one line.
func DescribeFinding(c workspace.Finding, root string) string { return describe(c, root, "") }

// describe says it with the flags that would allow it.
func describe(c workspace.Finding, root, flags string) string {
	path := Within(root, c.Path)
	switch c.Kind {
	case workspace.Stashed, workspace.Inert:
		why := c.Why
		if c.Protected() {
			if why = executors[c.Why]; why == "" {
				why = "protected by " + c.Why
			}
		}
		if c.Stash == "" && c.Parts == nil { // it has another name in the workspace, or could not be kept
			why = c.What + "; " + why
		}
		if flags != "" {
			why += "; to allow: " + flags
		}
		if c.Kind == workspace.Stashed && c.Stash == "" && c.Why == workspace.Removed {
			return "not saved: " + path + " (" + why + ")"
		}
		return "quarantined: " + path + " (" + why + ")"
	case workspace.Address:
		return "changed: " + path + ": " + c.What + " (" + c.Why + ")"
	case workspace.Setting:
		if c.What == "" { // no key of it
			return "not saved: " + path + " (" + c.Why + ")"
		}
		return "not saved: " + path + ": " + c.What + " (" + c.Why + ")"
	}
	why := c.Why
	if what := reviewReasons[why]; what != "" {
		why += ": " + what
	}
	return c.What + ": " + path + " (review " + why + ")"
}

// reviewReasons say what files do that nobody can look through, by the pattern of the
// default profile.
var reviewReasons = map[string]string{
	"**/.svn/wc.db":         svnReason,
	"**/.svn/wc.db-journal": svnReason,
	"**/.svn/wc.db-wal":     svnReason,
	"**/CVS/Root":           "with :local: or :fork: CVS runs programs of the repository that it names",
}

const svnReason = "svn would change files where it says, also outside; use a fresh checkout"
