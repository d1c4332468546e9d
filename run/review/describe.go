package review

import (
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/workspace"
)

// Describe says in one line what a finding is, with the flags that would allow it.
func Describe(c workspace.Finding, root, flags string) string {
	path := messages.Within(root, c.Path)
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
