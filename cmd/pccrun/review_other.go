//go:build !linux

package main

import (
	"slices"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// reviewVerb lists what a session changed of that which is for review, and what was quarantined when
// it had ended; with --accept that is restored.
func reviewVerb(args []string) int {
	asJSON, quiet := false, false
	known := flags{"--json": &asJSON, "--quiet": &quiet}
	accept := slices.Index(args, "--accept")
	var paths []string
	var err error
	if accept >= 0 {
		paths, err = options(reviewUsage, args[accept+1:], known)
		args = args[:accept]
	}
	words, bad := options(reviewUsage, args, known)
	if err == nil {
		err = bad
	}
	if err != nil {
		return failSession(err)
	}
	if accept >= 0 {
		home, e, err := findSession(words)
		if err == nil {
			err = run.Restore(home, e, paths, profiles.ThisHost().Cwd, say)
		}
		if err != nil {
			return failSession(err)
		}
		return 0
	}
	return listEvents(words, asJSON, func(r events.Record) string {
		c, ok := r.Event.(events.Changed)
		if !ok {
			return ""
		}
		why := "quarantined: " + printable(c.What) + "; "
		if c.Kind == "review" {
			why = printable(c.What) + "; review "
		}
		return clock(r.Time) + " " + printable(c.Path) + " (" + why + printable(c.Why) + ")"
	})
}
