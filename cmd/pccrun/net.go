//go:build !launcher

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
)

// A netSum is all that happened with one host and port.
type netSum struct {
	host                    string
	allowed, denied, failed int64
	up, down                int64
	hint                    string
}

// netTable prints a line for each host, the busiest first.
func netTable(home sessions.Home, e sessions.Entry, denied bool) error {
	var sums []*netSum
	index := map[string]*netSum{}
	sumOf := func(host string, port int) *netSum {
		if host = hostPort(host, port); index[host] == nil {
			index[host] = &netSum{host: host}
			sums = append(sums, index[host])
		}
		return index[host]
	}
	err := eachEvent(home, e, func(r events.Record) {
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
	if denied {
		sums = slices.DeleteFunc(sums, func(s *netSum) bool { return s.denied == 0 })
	}
	if err != nil || len(sums) == 0 {
		return err
	}
	slices.SortStableFunc(sums, func(a, b *netSum) int {
		return cmp.Or(cmp.Compare(b.up+b.down, a.up+a.down), cmp.Compare(b.allowed+b.denied, a.allowed+a.denied), cmp.Compare(a.host, b.host))
	})
	var rows table
	rows.row("HOST", "ALLOWED", "FAILED", "DENIED", "SENT", "RECEIVED", "TO ALLOW")
	for _, s := range sums {
		rows.row(s.host, itoa(s.allowed), itoa(s.failed), itoa(s.denied), sizeText(s.up), sizeText(s.down), s.hint)
	}
	rows.print()
	return nil
}

// hostPort writes a host with its port, where an event has one.
func hostPort(host string, port int) string {
	if port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(port)
}

// closedText says how a connection ended, with a blank before it.
func closedText(e events.NetClosed) string {
	text := " closed " + printable(hostPort(e.Host, e.Port))
	if e.Error != "" {
		return text + " not reached: " + printable(e.Error)
	}
	return text + fmt.Sprintf(" via %s sent=%d received=%d after %d ms", printable(e.Via), e.Up, e.Down, e.DurationMS)
}

// denialText says a denial, with a blank before it.
func denialText(d events.Denial) string {
	text := " " + printable(cmp.Or(d.Guarantee, "hidden")) + ": " + printable(d.What)
	if d.Rule != "" {
		text += ": " + printable(d.Rule)
	}
	return allow(text, printable(d.Hint))
}

// netText says a decision, with a blank before it.
func netText(d events.NetDecision) string {
	text := " denied "
	if d.Allowed {
		text = " allowed "
	}
	text += printable(hostPort(d.Host, d.Port))
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
	return allow(text, printable(d.Hint))
}
