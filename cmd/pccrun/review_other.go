//go:build !linux

package main

import "github.com/pccrun/pccrun/events"

// reviewVerb lists what a session changed of that which is for review. Nothing is set aside here: a
// protected name cannot be made.
func reviewVerb(args []string) int {
	asJSON := false
	words, err := options(reviewUsage, args, func(name string, _ func() string) bool {
		asJSON = asJSON || name == "--json"
		return name == "--json" || name == "--quiet"
	})
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
