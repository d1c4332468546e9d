//go:build !linux

package main

import "github.com/pccrun/pccrun/events"

// reviewVerb lists what a session changed of that which is for review. Nothing is quarantined here: a
// protected name cannot be made.
func reviewVerb(args []string) int {
	asJSON, quiet := false, false
	words, err := options(reviewUsage, args, flags{"--json": &asJSON, "--quiet": &quiet})
	if err != nil {
		return failSession(err)
	}
	return listEvents(words, asJSON, func(r events.Record) string {
		if c, ok := r.Event.(events.Changed); ok {
			return clock(r.Time) + " " + printable(c.What) + ": " + printable(c.Path) + " (review " + printable(c.Why) + ")"
		}
		return ""
	})
}
