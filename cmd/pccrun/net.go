package main

import (
	"strconv"

	"github.com/pccrun/pccrun/events"
)

const netUsage = `usage: pccrun net [SESSION] [--denied] [--json]

Lists what a session's command wanted to reach, and what was decided.

  --denied  only what was refused
  --json    print the decisions as JSON lines: docs/events.md
` + sessionHelp

func netVerb(args []string) int {
	denied, asJSON := false, false
	words, err := options(args, func(name string, _ func() string) bool {
		switch name {
		case "--denied":
			denied = true
		case "--json":
			asJSON = true
		default:
			return false
		}
		return true
	})
	if err != nil {
		return failSession(err)
	}
	return listEvents(words, asJSON, func(r events.Record) string {
		if d, ok := r.Event.(events.NetDecision); ok && !(denied && d.Allowed) {
			return r.Time.UTC().Format("15:04:05.000") + netText(d)
		}
		return ""
	})
}

// listEvents prints the events of a session for which f has a line.
func listEvents(words []string, asJSON bool, f func(events.Record) string) int {
	home, e, err := findSession(words)
	if err != nil {
		return failSession(err)
	}
	err = eachEvent(home, e, func(r events.Record) {
		switch line := f(r); {
		case line == "":
		case asJSON:
			printf("%s\n", r.Line)
		default:
			printf("%s\n", line)
		}
	})
	if err != nil {
		return failSession(err)
	}
	return 0
}

// netText says a decision, with a blank before it.
func netText(d events.NetDecision) string {
	text := " denied "
	if d.Allowed {
		text = " allowed "
	}
	text += printable(d.Host)
	if d.Port != 0 {
		text += ":" + strconv.Itoa(d.Port)
	}
	for _, part := range [...]struct{ label, value string }{{"via ", d.Via}, {"to ", d.Address}, {"for ", d.Request}, {"by ", d.Rule}, {"hint: ", d.Hint}} {
		if part.value != "" {
			text += " " + part.label + printable(part.value)
		}
	}
	return text
}
