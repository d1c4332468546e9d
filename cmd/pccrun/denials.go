package main

import "github.com/pccrun/pccrun/events"

const denialsUsage = `usage: pccrun denials [SESSION] [--json]

Lists what a session's command was denied, with the flag that would allow it.
Inside, the command can read the same in the file that $PCCRUN_DENIALS names.

  --json    print them as JSON lines: docs/events.md
` + sessionHelp

func denialsVerb(args []string) int {
	asJSON := false
	words, err := options(denialsUsage, args, func(name string, _ func() string) bool {
		asJSON = asJSON || name == "--json"
		return name == "--json"
	})
	if err != nil {
		return failSession(err)
	}
	return listEvents(words, asJSON, func(r events.Record) string {
		if d, ok := r.Event.(events.Denial); ok {
			return clock(r.Time) + denialText(d)
		}
		return ""
	})
}

// denialText says a denial, with a blank before it.
func denialText(d events.Denial) string {
	text := " " + printable(d.Guarantee) + ": " + printable(d.What)
	if d.Rule != "" {
		text += ": " + printable(d.Rule)
	}
	return allow(text, printable(d.Hint))
}
