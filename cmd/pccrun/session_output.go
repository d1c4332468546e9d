//go:build !launcher

package main

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run/leftovers"
	"github.com/pccrun/pccrun/run/review"
)

const sessionHelp = `
SESSION is an id from pccrun ps, the start of one, or the start of the eight
digits at its end. The default is the newest session of the current workspace
that pccrun ps --all lists.
`

// verbHint is sessionHint of what other verbs than exec look for.
func verbHint(err error) string {
	switch {
	case errors.Is(err, leftovers.ErrNoneHere), errors.Is(err, leftovers.ErrNoChanges):
		return "pccrun --overlay . -- COMMAND keeps changes in an overlay; pccrun ps --all lists all sessions"
	case errors.Is(err, review.ErrNone):
		return "pccrun ps --all lists sessions of all workspaces; pccrun review SESSION shows one"
	}
	return profiles.Hint(err)
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

// openEvents opens the events of a session; a session without any has an
// empty file.
func openEvents(home sessions.Home, e sessions.Entry) (io.ReadCloser, error) {
	dir, err := home.Open(e.ID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := state.OpenFile(dir, sessions.EventsName)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return f, err
}

// eachEvent calls f for the events of a session that there are now. A line
// that is none is named on stderr and passed over.
func eachEvent(home sessions.Home, e sessions.Entry, f func(events.Record)) error {
	file, err := openEvents(home, e)
	if err != nil {
		return err
	}
	defer file.Close()
	return drainEvents(events.NewReader(file), f)
}

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
