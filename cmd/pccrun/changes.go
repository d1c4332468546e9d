package main

import "errors"

// What the verbs about a run's overlays share.

const lastRunHelp = `
Without --session it is about the last run in the current workspace that
changed something in an overlay.
`

const changesHelp = lastRunHelp + "PATH is a file or a directory with all in it; -- stands before one that begins\nwith a dash.\n"

// failChanges prints why a verb about changes did not do what it was asked for.
func failChanges(err error) int {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		fail(inWords(err), h.Hint())
		return failed
	}
	return failSession(err)
}
