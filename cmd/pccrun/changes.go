//go:build !launcher

package main

import "github.com/pccrun/pccrun/profiles"

// What the verbs about a run's overlays share.

const lastRunHelp = `
Without --session, the last run in the current workspace that changed something
in an overlay is used.
`

const changesHelp = lastRunHelp + "PATH is a file, or a directory with everything in it. Put -- before a PATH that\nbegins with a dash.\n"

// failChanges prints why a verb about changes did not do what it was asked for.
func failChanges(err error) int {
	if hint := profiles.Hint(err); hint != "" {
		fail(inWords(err), hint)
		return failed
	}
	return failSession(err)
}
