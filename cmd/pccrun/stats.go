//go:build !launcher

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
)

func statsVerb(args []string) int {
	asJSON := false
	words, err := options(args, flags{"--json": &asJSON})
	if err != nil {
		return failSession(err)
	}
	home, e, err := findSession(words, anySession, errNotHere)
	if err != nil {
		return failSession(err)
	}
	o := object{{"id", e.ID}, {"state", string(e.State)}}
	switch e.State {
	case sessions.Running:
		if e.Resource != nil { // its provider counts, and tells when it has ended
			denials := int64(0)
			err := eachEvent(home, e, func(r events.Record) {
				if d, is := r.Event.(events.NetDecision); is && !d.Allowed {
					denials++
				} else if _, is := r.Event.(events.Denial); is {
					denials++
				}
			})
			if err != nil {
				return failSession(err)
			}
			o = append(o, field{"provider", e.Resource.Provider}, field{"wall_ms", time.Since(e.Started).Milliseconds()}, field{"denials", denials})
			used, err := run.Usage(home, e)
			if err != nil {
				say(inWords(err)) // what is known here is told all the same
				break
			}
			o = append(o, field{"cpu_ms", (used.User + used.System).Milliseconds()}, field{"memory", used.Memory}, field{"processes", used.Processes})
			if used.IOBy != "" {
				o = append(o, field{"read_bytes", used.Read}, field{"write_bytes", used.Written}, field{"io_by", used.IOBy})
			}
			if room := used.Room; room != nil {
				o = append(o, field{"place_cpus", room.CPUs}, field{"place_memory", room.Memory})
				if room.Disk > 0 { // a file system without a size says nothing of what it holds
					o = append(o, field{"disk", room.DiskUsed}, field{"place_disk", room.Disk})
				}
			}
			break
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
			field{"max_memory", exit.MaxMemory}, field{"read_bytes", exit.ReadBytes}, field{"write_bytes", exit.WriteBytes}, field{"io_by", exit.IOBy}, field{"price_usd", exit.PriceUSD}, field{"denials", exit.Denials})
	}
	if e.State == sessions.Running {
		last := lastActivity(home, e)
		o = append(o, field{"last_activity", last.UTC().Format(time.RFC3339)})
	}
	doing := newDoing(home, e, tasksAt())
	if e.State != sessions.Running {
		doing.count(home)
	}
	o = append(append(o, doing.fields()...), limitFields(e.Limits)...)
	if asJSON {
		printJSON(o)
		return 0
	}
	for _, f := range o {
		if f.key == "price_usd" && f.value == 0.0 { // no cloud, or no known price
			continue
		}
		printf("%-16s%s\n", withUnit(f.key, &f.value), printableLine(fmt.Sprint(f.value)))
	}
	return 0
}

// withUnit gives a value its unit, which the name then lacks.
func withUnit(name string, value *any) string {
	n, _ := (*value).(int64)
	if short, is := strings.CutSuffix(name, "_ms"); is {
		*value = time.Duration(n) * time.Millisecond
		return short
	}
	if name == "last_activity" {
		at, _ := time.Parse(time.RFC3339, (*value).(string))
		*value = ago(time.Since(at)) + " ago"
		return name
	}
	if usd, is := (*value).(float64); is && name == "price_usd" {
		*value = fmt.Sprintf("$%.4f", usd)
		return "price"
	} else if is && name == "usd" {
		*value = fmt.Sprintf("$%.2f", usd)
		return "cost"
	}
	if short, is := strings.CutSuffix(name, "_bytes"); is || strings.HasSuffix(name, "memory") || strings.HasSuffix(name, "disk") {
		*value = messages.SizeText(n)
		return short
	}
	return name
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
		err = errors.New("session " + e.ID + ": it was interrupted, so its usage is unknown")
	}
	return exit, err
}
