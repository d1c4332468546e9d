package main

import (
	"slices"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
)

func execVerb(args []string) int {
	at := slices.Index(args, "--")
	if at < 0 || at == len(args)-1 {
		return fail("exec: no command", "pccrun exec [SESSION] -- COMMAND; put -- before it")
	}
	words, err := options(args[:at], nil)
	var home sessions.Home
	var e sessions.Entry
	if err == nil {
		home, e, err = findSession(words, func(e sessions.Entry) bool { return e.State == sessions.Running }, notRunning("no session runs in this workspace"))
	}
	if err == nil && e.State != sessions.Running {
		err = notRunning("session " + e.ID + ": it does not run: " + string(e.State))
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

func notRunning(text string) error {
	return hint.Errorf("pccrun ps lists the running sessions", "exec: %s", text)
}
