//go:build !launcher

package main

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
)

// A table is rows of cells, to be printed in columns.
type table struct{ text strings.Builder }

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	t.text.WriteString(strings.Join(cells, "\t") + "\n")
}

// print prints it, and returns the verb's exit status.
func (t *table) print() int {
	w := tabwriter.NewWriter(stdout, 0, 8, 2, ' ', 0)
	_, _ = io.WriteString(w, t.text.String())
	_ = w.Flush() // standard output remembers an error
	return 0
}

// sessionObject is a session as --json shows it.
func sessionObject(e sessions.Entry) object {
	o := object{{"id", e.ID}, {"state", string(e.State)}}
	if e.State == sessions.Unknown {
		return append(o, field{"cause", e.Cause})
	}
	o = append(o,
		field{"started", e.Started.UTC().Format(time.RFC3339Nano)}, field{"version", e.Version}, field{"pid", e.Launcher.Pid}, field{"sandbox_pid", e.Sandbox.Pid},
		field{"argv", e.Argv}, field{"workspace", e.Workspace}, field{"profile", e.Profile}, field{"provider", e.Provider},
		field{"without", e.Without}, field{"allow_missing", e.AllowMissing})
	if e.Resource != nil {
		o = append(o, field{"resource", e.Resource})
	}
	if !e.Ended.IsZero() {
		o = append(o, field{"ended", e.Ended.UTC().Format(time.RFC3339Nano)}, field{"code", e.Code}, field{"kept", e.Kept})
	}
	return o
}

// eachEvent calls f for the events of a session that there are now. A line
// that is none is named on stderr and passed over.
func eachEvent(home sessions.Home, e sessions.Entry, f func(events.Record)) error {
	dir, err := home.Open(e.ID)
	if err != nil {
		return err
	}
	defer dir.Close()
	file, err := state.OpenFile(dir, sessions.EventsName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return drainEvents(events.NewReader(file), f)
}

// drainEvents calls f for what a reader has by now.
func drainEvents(r *events.Reader, f func(events.Record)) error {
	for {
		record, err := r.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, events.ErrRead):
			return err
		case err != nil:
			say(inWords(err))
		default:
			f(record)
		}
	}
}

// ago says how long something lasts or is past, in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Hour).String(), "0m0s")
	}
	return itoa(int64(d/(24*time.Hour))) + "d"
}
