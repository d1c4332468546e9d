//go:build !launcher

package main

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
)

func psVerb(args []string) int {
	all, here, asJSON := false, false, false
	words, err := options(args, flags{"--all": &all, "-a": &all, "--here": &here, "--json": &asJSON})
	if err = cmp.Or(err, unexpected(words, 0, "see pccrun help ps")); err != nil {
		return failSession(err)
	}
	home, err := run.Sessions()
	if err != nil {
		return failSession(err)
	}
	list, err := home.List()
	if err != nil {
		return failSession(err)
	}
	tasks := tasksAt()
	shown := list[:0]
	for _, e := range list {
		if here && !standsIn(e.Workspace) && !standsIn(tasks[e.Workspace].repository) {
			continue
		}
		if all || e.State == sessions.Running || e.State == sessions.Crashed || e.Standing {
			shown = append(shown, e)
		}
	}
	if asJSON {
		printJSON(object{{"sessions", each(shown, func(e sessions.Entry) object { return append(sessionObject(e), newDoing(home, e, tasks).fields()...) })}})
		return 0
	}
	if len(shown) == 0 {
		return 0
	}
	var rows table
	rows.row("SESSION", "STATE", "AGE", "LEFT", "COST", "PID", "PROFILE", "WORKSPACE", "COMMAND")
	for _, e := range shown {
		if e.State == sessions.Unknown {
			rows.row(e.ID, string(e.State), "", "", "", "", "", "", e.Cause)
			continue
		}
		doing := newDoing(home, e, tasks)
		rows.row(e.ID, sessionStatus(e), ago(time.Since(e.Started)), doing.left(), doing.cost(), strconv.Itoa(e.Launcher.Pid), e.Profile, e.Workspace, doing.what())
	}
	return rows.print()
}

// sessionStatus is how a session stands, in a few words.
func sessionStatus(e sessions.Entry) string {
	status := string(e.State)
	switch {
	case e.Standing:
		return "kept until " + e.Resource.Until.Local().Format("15:04")
	case e.State == sessions.Ended:
		status += " " + strconv.Itoa(e.Code)
	case e.State == sessions.Crashed && e.Launcher.Rebooted():
		status += " at a reboot"
	}
	if e.Unfetched {
		status += ", not downloaded"
	}
	return status
}

// commandLine shows an argv in one line of bounded length.
func commandLine(argv []string) string {
	var words []string
	for _, a := range argv {
		if a == "" || strings.ContainsAny(a, " \"'\\$`") || printable(a) != a {
			a = quote(a)
		}
		words = append(words, a)
	}
	line := []rune(strings.Join(words, " "))
	return cut(line)
}

// commandMost bounds what a row says of a command, characters.
const commandMost = 100

func cut(line []rune) string {
	if len(line) > commandMost {
		return string(line[:commandMost]) + "…"
	}
	return string(line)
}
