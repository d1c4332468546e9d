// Package review shows what sessions left to be looked at: findings in quarantine, files of the policy's
// review list that changed, and files that were written where they are lost at exit.
//
// It promises that nothing is restored which the user has not seen, unless he names it, and that nothing
// which exists is overwritten.
package review

import (
	"slices"
	"strconv"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// ErrNone says that there is nothing to show of the workspace that the caller stands in.
var ErrNone = hint.Errorf("pccrun ps --all lists sessions of all workspaces; pccrun review SESSION shows one", "no session left anything to review in this workspace")

// Quarantined reports whether a finding can be put back.
func Quarantined(f workspace.Finding) bool {
	return f.Stash != "" && f.Kind != workspace.Review || slices.ContainsFunc(f.Parts, Quarantined)
}

// LostSize says how much of a run's is gone at a path.
func LostSize(l quarantine.Lost) string {
	text := messages.SizeText(l.Size)
	if l.Size < 1<<10 {
		text += " bytes"
	}
	if l.Dir {
		files := " files, "
		if l.Files == 1 {
			files = " file, "
		}
		text = strconv.Itoa(l.Files) + files + text
	}
	if l.More {
		text = "more than " + text
	}
	if l.Kept == "" {
		text += ", too large to copy back"
	}
	return text
}
