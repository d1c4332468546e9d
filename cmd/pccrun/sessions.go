package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// What exec and the verbs about sessions share.

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
	case errors.Is(err, errNotHere):
		return "a session is kept if something was denied, is left to review, or --log was given; pccrun ps --all lists all workspaces"
	case errors.Is(err, sessions.ErrNoSession):
		return "pccrun ps --all lists them"
	case errors.Is(err, sessions.ErrAlive):
		return "pccrun kill --force SESSION ends it"
	}
	return verbHint(err)
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
