package main

import (
	"errors"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// What exec and the verbs about sessions share.

// errNotHere is why there is nothing to show of the workspace that the caller stands in.
var errNotHere = hint.Errorf("a session is kept if something was denied, is left to review, or --log was given; pccrun ps --all lists all workspaces",
	"no session of this workspace was kept")

// failed is the exit status of a verb that was asked for what is not there.
const failed = 1

// findSession finds the one session that the words name; without words the newest of the workspace that the caller
// stands in which is wanted. What ran elsewhere is never shown in its place: where there is none here, the error is none.
func findSession(words []string, wanted func(sessions.Entry) bool, none error) (home sessions.Home, e sessions.Entry, err error) {
	if err = unexpected(words, 1, "name one session"); err != nil {
		return home, e, err
	}
	if home, err = run.Sessions(); err != nil {
		return home, e, err
	}
	if len(words) == 1 {
		e, err = home.Find(words[0])
		return home, e, err
	}
	e, ok, err := home.Newest(func(e sessions.Entry) bool { return standsIn(e.Workspace) && wanted(e) })
	if err == nil && !ok {
		err = none
	}
	return home, e, err
}

// anySession wants each.
func anySession(sessions.Entry) bool { return true }

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
	case profiles.Hint(err) != "":
		return profiles.Hint(err)
	case errors.Is(err, state.ErrUnsafe):
		return run.UnsafeHint
	case errors.Is(err, sessions.ErrNoSession):
		return "pccrun ps --all lists them"
	case errors.Is(err, sessions.ErrAlive):
		return "pccrun kill --force SESSION ends it"
	}
	return ""
}
