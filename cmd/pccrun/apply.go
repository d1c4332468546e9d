//go:build !launcher

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

func applyVerb(args []string) int {
	session, asJSON, sel := "", false, run.Selection{}
	words, err := options(args, flags{"--force": &sel.Force, "--json": &asJSON, "--session": &session})
	if err != nil {
		return failSession(err)
	}
	c, err := leftovers.OpenChanges(session)
	if err != nil {
		return failSession(err)
	}
	defer c.Upper.Close()
	sel.Paths = c.Paths(words)
	if err := c.Begin(thisProgram()); err != nil {
		return failLocked(err)
	}
	done := slow("writing the changes to the host")
	out, err := c.Upper.Apply(sel)
	done()
	var conflict *run.ConflictError
	if errors.As(err, &conflict) {
		if asJSON {
			printJSON(applied(c, &run.Outcome{Left: len(c.Upper.Record.Stood)}, nil, conflict))
		}
		for _, change := range conflict.Changes {
			say("conflict: " + messages.Within(c.Entry.Workspace, filepath.Join(conflict.Root, change.Path)) + ": " + change.Conflict)
		}
		say("nothing was applied")
		say("hint: " + conflict.Hint())
		return failed
	}
	if err != nil {
		return failSession(err)
	}
	if out.Left == 0 {
		if err := c.Drop(); err != nil {
			return failSession(err)
		}
	}
	var withheld []string
	for _, change := range out.Withheld {
		withheld = append(withheld, change.Path)
	}
	if asJSON {
		printJSON(applied(c, out, withheld, nil))
	} else {
		say(fmt.Sprintf("%d applied, %d left in the overlay", len(out.Applied), out.Left))
		for i, f := range out.Committed {
			if i == maxCommitted {
				say(fmt.Sprintf("and %d more", len(out.Committed)-i))
				break
			}
			say(f.What + ": " + messages.Within(c.Entry.Workspace, f.Path) + " (review " + f.Why + ")")
		}
	}
	for _, change := range out.Withheld {
		why := change.Protect
		if why == "" {
			why = "something in it is"
		}
		fail("not applied: "+change.Path+": protected ("+why+")", "")
	}
	if len(withheld) > 0 {
		say("hint: a host tool would execute it: read it with pccrun diff, then run pccrun apply PATH")
		return failed
	}
	if len(sel.Paths) > 0 && len(out.Applied) == 0 {
		say("no changes at that path")
		return failed
	}
	return 0
}

// maxCommitted bounds how many protected names of commits are said.
const maxCommitted = 10

// applied is what became of an apply, as --json shows it.
func applied(c *leftovers.Kept, out *run.Outcome, withheld []string, conflict *run.ConflictError) object {
	conflicts := []object{}
	if conflict != nil {
		conflicts = each(conflict.Changes, func(change run.Change) object {
			return object{{"path", filepath.Join(conflict.Root, change.Path)}, {"conflict", change.Conflict}}
		})
	}
	committed := []object{}
	for _, f := range out.Committed {
		committed = append(committed, object{{"path", f.Path}, {"what", f.What}, {"why", f.Why}})
	}
	return object{{"session", c.Entry.ID}, {"applied", out.Applied}, {"withheld", withheld}, {"left", out.Left}, {"conflicts", conflicts}, {"committed", committed}}
}

func failLocked(err error) int {
	if errors.Is(err, state.ErrLocked) {
		fail("another pccrun is changing it: " + inWords(err))
		return failed
	}
	return failSession(err)
}
