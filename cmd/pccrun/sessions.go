package main

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
	"github.com/pccrun/pccrun/run/review"
)

// What the verbs about sessions share.

const sessionHelp = `
SESSION is an id from pccrun ps, the start of one, or the start of the eight
digits at its end. The default is the newest session of the current workspace
that pccrun ps --all lists.
`

// Why there is nothing to show of the workspace that the caller stands in.
var (
	errNotHere = errors.New("no session of this workspace was kept")
)

// failed is the exit status of a verb that was asked for what is not there.
const failed = 1

// findSession finds the one session that the words name.
func findSession(words []string) (sessions.Home, sessions.Entry, error) {
	name := ""
	switch len(words) {
	case 0:
	case 1:
		name = words[0]
	default:
		return sessions.Home{}, sessions.Entry{}, misuse("unexpected argument "+quote(words[1]), "name one session")
	}
	home, err := run.Sessions()
	if err != nil {
		return home, sessions.Entry{}, err
	}
	if name == "" {
		return lastHere(home)
	}
	e, err := home.Find(name)
	return home, e, err
}

// lastHere finds the newest session of the workspace that the caller stands in. What ran
// elsewhere is never shown in its place.
func lastHere(home sessions.Home) (sessions.Home, sessions.Entry, error) {
	e, ok, err := home.Newest(func(e sessions.Entry) bool { return standsIn(e.Workspace) })
	if err == nil && !ok {
		err = errNotHere
	}
	return home, e, err
}

// standsIn reports whether the current directory is in a workspace.
func standsIn(workspace string) bool {
	cwd := profiles.ThisHost().Cwd
	return workspace != "" && (cwd == workspace || strings.HasPrefix(cwd, workspace+"/"))
}

// failSession prints why there is nothing to show. 125 is for mistakes in
// the command line.
func failSession(err error) int {
	var usage *messages.UsageError
	if errors.As(err, &usage) {
		return messages.FailUsage(usage)
	}
	fail(inWords(err), sessionHint(err))
	return failed
}

func sessionHint(err error) string {
	switch {
	case errors.Is(err, state.ErrUnsafe):
		return run.UnsafeHint
	case errors.Is(err, leftovers.ErrNoneHere), errors.Is(err, leftovers.ErrNoChanges):
		return "pccrun --overlay . -- COMMAND keeps changes in an overlay; pccrun ps --all lists all sessions"
	case errors.Is(err, errNotHere):
		return "a session is kept if something was denied, is left to review, or --log was given; pccrun ps --all lists all workspaces"
	case errors.Is(err, review.ErrNone):
		return "pccrun ps --all lists sessions of all workspaces; pccrun review SESSION shows one"
	case errors.Is(err, sessions.ErrNoSession):
		return "pccrun ps --all lists them"
	case errors.Is(err, sessions.ErrAlive):
		return "pccrun kill --force SESSION ends it"
	}
	return profiles.Hint(err)
}

// flags are those of a verb, and what each sets: a bool, a string, or what a function makes of its value.
type flags map[string]any

// options reads the flags that a verb's usage describes, which may stand before and after words, but not after --:
// a run can leave a file of any name, and a shell puts it in the place of a *.
func options(usage string, args []string, known flags) (words []string, err error) {
	for len(args) > 0 {
		switch arg := args[0]; {
		case arg == "--":
			words, args = append(words, args[1:]...), nil
			continue
		case !strings.HasPrefix(arg, "-") || arg == "-":
			words, args = append(words, arg), args[1:]
			continue
		}
		if args, err = readFlag(args, func(name string) (*flagDef, string) {
			d := &flagDef{name: name}
			if _, is := known[name].(*bool); is {
				d.kind = alone
			}
			if known[name] == nil {
				return nil, suggestName(helpFlags(usage), name)
			}
			return d, ""
		}, func(d *flagDef, value string) error {
			switch to := known[d.name].(type) {
			case *bool:
				*to = true
			case *string:
				*to = value
			case func(string) error:
				return to(value)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if slices.Contains(words, "") { // of a variable that is not set: it would mean the newest, or all
		return nil, misuse("empty argument", "")
	}
	return words, nil
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

// needsWhole reports whether something of a session is at a provider that this program may
// not have: it then becomes the one that has them all.
func needsWhole(list ...sessions.Entry) bool {
	return become != nil && slices.ContainsFunc(list, func(e sessions.Entry) bool { return e.Resource != nil && (e.State == sessions.Crashed || e.Standing) })
}
