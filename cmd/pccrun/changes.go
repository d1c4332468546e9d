package main

import "errors"

// What the verbs about a run's overlays share.

const lastRunHelp = `
Without --session, the last run in the current workspace that changed something
in an overlay is used.
`

const changesHelp = lastRunHelp + "PATH is a file, or a directory with everything in it. Put -- before a PATH that\nbegins with a dash.\n"

// failChanges prints why a verb about changes did not do what it was asked for.
func failChanges(err error) int {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		fail(inWords(err), h.Hint())
		return failed
	}
	return failSession(err)
}
