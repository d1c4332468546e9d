//go:build !launcher

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/task"
)

// A doing is what a session is at: the task that it is a run of, and what it has cost by now.
type doing struct {
	e     sessions.Entry
	task  *atWork
	usd   float64
	paid  bool    // something was counted
	price float64 // US dollars, of its cloud's sandbox
}

// An atWork is a task, as it is shown of its runs.
type atWork struct{ name, prompt, repository string }

// newDoing counts what one that runs has cost: those that have ended are many.
func newDoing(home sessions.Home, e sessions.Entry, tasks map[string]atWork) *doing {
	d := &doing{e: e}
	if t, is := tasks[e.Workspace]; is && task.IsPhase(e.Argv) {
		d.task = &t
	}
	if e.State != sessions.Running {
		return d
	}
	if e.Resource != nil {
		d.price = e.Resource.Hourly * time.Since(e.Started).Hours()
	}
	return d.count(home)
}

// count takes in what its events say that it has cost.
func (d *doing) count(home sessions.Home) *doing {
	_ = eachEvent(home, d.e, func(r events.Record) {
		if s, is := r.Event.(events.Spending); is {
			d.usd, d.paid = d.usd+s.USD, true
		}
	})
	return d
}

// left is the time until the limit of one that runs.
func (d *doing) left() string {
	left, limited := d.e.Left()
	if !limited || d.e.State != sessions.Running {
		return "–"
	}
	return ago(max(left, 0))
}

func (d *doing) cost() string {
	if !d.paid && d.price == 0 {
		return "–"
	}
	return fmt.Sprintf("$%.2f", d.usd+d.price)
}

// what is the command line, or of a task its name and the first line of its prompt.
func (d *doing) what() string {
	if d.task == nil {
		return commandLine(d.e.Argv)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(d.task.prompt), "\n")
	return printable("task " + d.task.name + ": " + cut([]rune(line)))
}

func (d *doing) fields() (o object) {
	if left, limited := d.e.Left(); limited && d.e.State == sessions.Running {
		o = append(o, field{"left_ms", max(left, 0).Milliseconds()})
	}
	if d.paid {
		o = append(o, field{"usd", d.usd})
	}
	if d.price > 0 {
		o = append(o, field{"price_usd", d.price})
	}
	if d.task != nil {
		o = append(o, field{"task", d.task.name}, field{"prompt", d.task.prompt})
	}
	return o
}

// limitFields are the limits of a session that stats shows, by the names of the flags.
func limitFields(l sessions.Limits) (o object) {
	for _, f := range []field{{"limit_memory", l.Memory}, {"limit_disk", l.Disk}, {"limit_processes", l.Pids}, {"limit_wall_ms", l.TimeMS}} {
		if f.value.(int64) > 0 {
			o = append(o, f)
		}
	}
	if l.MilliCPUs > 0 {
		o = append(o, field{"limit_cpus", float64(l.MilliCPUs) / 1000})
	}
	return o
}

// lastActivity is when something was last seen of a session: an event, or output that is kept.
func lastActivity(home sessions.Home, e sessions.Entry) (last time.Time) {
	last = e.Started
	dir, err := home.Open(e.ID)
	if err != nil {
		return last
	}
	defer dir.Close()
	for _, name := range []string{sessions.EventsName, sessions.LogName, sessions.TerminalName} {
		if info, err := dir.Lstat(name); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
