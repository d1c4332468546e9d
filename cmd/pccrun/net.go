package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
)

const netUsage = `usage: pccrun net [SESSION] [--each] [--denied] [--json]

Lists the hosts that a session's command tried to reach: how often it was
allowed and denied, the bytes sent and received, and the flag to allow it.

  --each    each decision with its time and rule, not the sums
  --denied  only what was denied
  --json    print the events as JSON lines: docs/events.md
` + sessionHelp

func netVerb(args []string) int {
	denied, each, asJSON := false, false, false
	words, err := options(netUsage, args, func(name string, _ func() string) bool {
		switch name {
		case "--denied":
			denied = true
		case "--each":
			each = true
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
	if !each && !asJSON {
		return netTable(words, denied)
	}
	return listEvents(words, asJSON, func(r events.Record) string {
		switch e := r.Event.(type) {
		case events.NetDecision:
			if !(denied && e.Allowed) {
				return clock(r.Time) + netText(e)
			}
		case events.NetClosed:
			if !denied {
				return clock(r.Time) + closedText(e)
			}
		}
		return ""
	})
}

// A netSum is all that happened with one host and port.
type netSum struct {
	host                    string
	allowed, denied, failed int64
	up, down                int64
	hint                    string
}

// netTable prints a line for each host, the busiest first.
func netTable(words []string, denied bool) int {
	home, e, err := findSession(words)
	if err != nil {
		return failSession(err)
	}
	sayWhich(words, e)
	var sums []*netSum
	index := map[string]*netSum{}
	sumOf := func(host string, port int) *netSum {
		if port != 0 {
			host += ":" + strconv.Itoa(port)
		}
		if index[host] == nil {
			index[host] = &netSum{host: host}
			sums = append(sums, index[host])
		}
		return index[host]
	}
	err = eachEvent(home, e, func(r events.Record) {
		switch e := r.Event.(type) {
		case events.NetDecision:
			switch s := sumOf(e.Host, e.Port); {
			case !e.Allowed:
				s.denied, s.hint = s.denied+max(1, e.Times), e.Hint
			case e.Request == "": // the requests on a connection count with it
				s.allowed++
			}
		case events.NetClosed:
			s := sumOf(e.Host, e.Port)
			s.up, s.down = s.up+e.Up, s.down+e.Down
			if e.Error != "" {
				s.failed++
			}
		}
	})
	if err != nil {
		return failSession(err)
	}
	if denied {
		sums = slices.DeleteFunc(sums, func(s *netSum) bool { return s.denied == 0 })
	}
	if len(sums) == 0 {
		return 0
	}
	slices.SortStableFunc(sums, func(a, b *netSum) int {
		return cmp.Or(cmp.Compare(b.up+b.down, a.up+a.down), cmp.Compare(b.allowed+b.denied, a.allowed+a.denied), cmp.Compare(a.host, b.host))
	})
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	row := func(cells ...string) { _, _ = w.Write([]byte(strings.Join(cells, "\t") + "\n")) }
	row("HOST", "ALLOWED", "FAILED", "DENIED", "SENT", "RECEIVED", "TO ALLOW")
	for _, s := range sums {
		row(printable(s.host), itoa(s.allowed), itoa(s.failed), itoa(s.denied), messages.ByteCount(s.up), messages.ByteCount(s.down), printable(s.hint))
	}
	_ = w.Flush()
	return 0
}

// closedText says how a connection ended, with a blank before it.
func closedText(e events.NetClosed) string {
	text := " closed " + printable(e.Host)
	if e.Port != 0 {
		text += ":" + strconv.Itoa(e.Port)
	}
	if e.Error != "" {
		return text + " not reached: " + printable(e.Error)
	}
	return text + fmt.Sprintf(" via %s sent=%d received=%d after %d ms", printable(e.Via), e.Up, e.Down, e.DurationMS)
}

// listEvents prints the events of a session for which f has a line.
func listEvents(words []string, asJSON bool, f func(events.Record) string) int {
	home, e, err := findSession(words)
	if err != nil {
		return failSession(err)
	}
	if !asJSON {
		sayWhich(words, e)
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
	upstream := ""
	if d.Upstream {
		upstream = "by the host's own proxy"
	}
	for _, part := range [...]struct{ label, value string }{{"via ", d.Via}, {"to ", d.Address}, {"", upstream}, {"for ", d.Request}, {"by ", d.Rule}} {
		if part.value != "" {
			text += " " + part.label + printable(part.value)
		}
	}
	if d.Times > 1 {
		text += " (" + itoa(d.Times) + " times)"
	}
	if d.Hint != "" {
		text += " (to allow: " + printable(d.Hint) + ")"
	}
	return text
}
