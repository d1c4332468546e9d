package main

import (
	"errors"
	"time"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/sessions"
)

const statsUsage = `usage: pccrun stats [SESSION] [--json]

Shows what a session uses now or, if it has ended, what it used in all.

  --json    print it as JSON

Memory, and what is read from and written to storage, are in bytes; the latter
of the processes that live and their children: io_by says what counted it.
Memory that several processes share counts for each of them.
` + sessionHelp

func statsVerb(args []string) int {
	asJSON := false
	words, err := options(statsUsage, args, func(name string, _ func() string) bool {
		asJSON = asJSON || name == "--json"
		return name == "--json"
	})
	if err != nil {
		return failSession(err)
	}
	home, e, err := findSession(words)
	if err != nil {
		return failSession(err)
	}
	o := object{{"id", e.ID}, {"state", string(e.State)}}
	switch e.State {
	case sessions.Running:
		if e.Resource != nil {
			return failSession(errors.New("session " + e.ID + ": provider " + e.Resource.Provider + " tells what it uses when it has ended"))
		}
		u, err := e.Usage()
		if err != nil {
			return failSession(err)
		}
		o = append(o, field{"wall_ms", time.Since(e.Started).Milliseconds()}, field{"cpu_ms", u.CPU.Milliseconds()},
			field{"memory", u.Memory}, field{"processes", u.Processes}, field{"threads", u.Threads},
			field{"read_bytes", u.Read}, field{"write_bytes", u.Written}, field{"io_by", "proc"})
	default:
		exit, err := exitOf(home, e)
		if err != nil {
			return failSession(err)
		}
		o = append(o, field{"code", exit.Code}, field{"wall_ms", exit.WallMS}, field{"cpu_ms", exit.UserMS + exit.SystemMS},
			field{"max_memory", exit.MaxMemory}, field{"read_bytes", exit.ReadBytes}, field{"write_bytes", exit.WriteBytes}, field{"io_by", exit.IOBy}, field{"denials", exit.Denials})
	}
	if asJSON {
		printJSON(o)
		return 0
	}
	for _, f := range o {
		printf("%-12s%v\n", f.key, f.value)
	}
	return 0
}

// exitOf returns the last event of a session.
func exitOf(home sessions.Home, e sessions.Entry) (exit events.Exit, err error) {
	found := false
	err = eachEvent(home, e, func(r events.Record) {
		if x, ok := r.Event.(events.Exit); ok {
			exit, found = x, true
		}
	})
	if err == nil && !found {
		err = errors.New("session " + e.ID + ": it did not come to its end, so nobody counted")
	}
	return exit, err
}
