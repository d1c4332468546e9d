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
	"github.com/pccrun/pccrun/run/review"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// addToRecord adds a line to the record: who holds the run, or a stub that was made. The launch waits for it.
func (g *guarded) addToRecord(text string) error {
	if g.unfinished == nil {
		return nil
	}
	return g.unfinished.Add(text)
}

// noRecord is the error where nobody would look after a run whose launcher is killed.
func noRecord(err error) error {
	return hint.Errorf("XDG_STATE_HOME=DIR names a writable directory; --allow-missing fs.protect runs without the record",
		"guarantee fs.protect: write the unfinished-run record: %w", err)
}

// removeRecord removes the record of a run that never began, or was checked.
func (g *guarded) removeRecord() {
	if d := g.unfinished; d != nil {
		g.removeStubs()
		g.unfinished = nil
		if err := d.Done(); err != nil {
			messages.Say(messages.InWords(err))
		}
	}
}

// CheckKilled makes the post-run check of killed runs before a verb does its work. A run does so
// by itself, since it knows its home better.
func CheckKilled(program Program) {
	if home, err := Sessions(); err == nil {
		if _, err = checkKilled("", home, program); err != nil {
			messages.Say(notChecked + messages.InWords(err))
		}
	}
}

// checkKilled makes the post-run check of the runs whose launchers were killed, before anything else is done in their
// workspaces, and reports whether a workspace is marked ([sessions.Home.Hold]).
func checkKilled(workspace string, home sessions.Home, program Program) (held bool, err error) {
	return home.Recover(workspace, func(id, text string) error { return checkUnfinished(home, program, id, text) })
}

// Checking returns what says which of the runs that go on checks a path at its end: its session, "" for none.
func Checking(home sessions.Home) (func(path string) (session string), error) {
	runs := map[string]func(path string) bool{}
	err := home.EachUnfinished(func(id, text string) (err error) {
		if runs[id], err = checkedBy(text); err != nil {
			err = fmt.Errorf("session %s: %w", id, err)
		}
		return err
	})
	return func(path string) string {
		for id, checks := range runs {
			if checks(path) {
				return id
			}
		}
		return ""
	}, err
}

// reportKilled says what a killed run left, and keeps its session for a review.
func reportKilled(home sessions.Home, id, root string, start time.Time, found []workspace.Finding) (err error) {
	if len(found) == 0 { // but for what was quarantined by one that was killed before it had told
		if found, err = keptFindings(home, id); err != nil || len(found) == 0 {
			return err
		}
	}
	messages.Say("a run in " + root + " was killed:")
	sayFindings(found, nil, root, id)
	return errors.Join(home.Hold(root, true), home.EndKilled(id, root, start, KeepChanges))
}

// keptFindings returns what the directory of a session has kept, if there is one.
func keptFindings(home sessions.Home, id string) ([]workspace.Finding, error) {
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
	var lines []string
	for _, c := range found {
		flag := ""
		if p != nil && c.Protected() {
			flag = p.NewFlag(c.Why)
		}
		lines = append(lines, review.Describe(c, root, flag))
	}
	sayFew(lines, "and %d more")
	what := " shows them"
	if slices.ContainsFunc(found, review.Quarantined) {
		what += ", with --accept it restores them"
	}
	messages.Say("pccrun review " + session + what)
}
