package main

import (
	"slices"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
)

const execUsage = `usage: pccrun exec [SESSION] -- COMMAND [ARG…]

Runs another command in a running session: with the same rights, environment,
limits and directory as the session's own command. The session's end kills it.
It has a terminal of its own if standard input and output are one.

Exit status: the command's own; 125 pccrun refused; 126 not executable; 127 not
found; 128+n signal n.

SESSION is an id from pccrun ps, the start of one, or the start of the eight
digits at its end. The default is the newest running session of the current
workspace.

example: pccrun exec -- sh
`

func execVerb(args []string) int {
	at := slices.Index(args, "--")
	if at < 0 || at == len(args)-1 {
		return fail("exec: no command", "pccrun exec [SESSION] -- COMMAND; put -- before it")
	}
	words, err := options(execUsage, args[:at], nil)
	var home sessions.Home
	var e sessions.Entry
	switch {
	case err != nil:
	case len(words) == 0:
		if home, err = run.Sessions(); err == nil {
			var is bool
			e, is, err = home.Newest(func(e sessions.Entry) bool { return e.State == sessions.Running && standsIn(e.Workspace) })
			if err == nil && !is {
				return fail("exec: no session runs in this workspace", "pccrun ps lists the running sessions")
			}
		}
	default:
		home, e, err = findSession(words)
	}
	if err == nil && e.State != sessions.Running {
		return fail("exec: session "+e.ID+": it does not run: "+string(e.State), "pccrun ps lists the running sessions")
	}
	code := 0
	if err == nil {
		code, err = run.Exec(home, e, args[at+1:])
	}
	if err != nil {
		failSession(err)
		return messages.Refused
	}
	return code
}
