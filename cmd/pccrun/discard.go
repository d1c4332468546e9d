//go:build !launcher

package main

import (
	"cmp"
	"fmt"

	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

func discardVerb(args []string) int {
	session, asJSON := "", false
	words, err := options(args, flags{"--json": &asJSON, "--session": &session})
	if err = cmp.Or(err, unexpected(words, 0, "discard deletes all changes; apply takes paths")); err != nil {
		return failSession(err)
	}
	if home, err := run.Sessions(); err == nil {
		if err := leftovers.DropRest(home); err != nil {
			say(inWords(err))
		}
	}
	c, err := leftovers.OpenChanges(session)
	if err != nil && c != nil && c.Entry.State != sessions.Running && c.Unapplied() {
		// The workspace is gone. There is nothing to take back.
		if err = c.Drop(); err == nil {
			return discarded(c, count(c), asJSON)
		}
	}
	if err != nil {
		return failSession(err)
	}
	defer c.Upper.Close()
	if err := c.Begin(thisProgram()); err != nil {
		return failLocked(err)
	}
	defer slow("deleting the changes")()
	if err := c.Upper.TakeBack(); err != nil {
		return failSession(err)
	}
	c.Record = &c.Upper.Record // an apply that had come to its end has left less
	n := count(c)
	if err := c.Drop(); err != nil {
		return failSession(err)
	}
	return discarded(c, n, asJSON)
}

// count is how many changes are kept, -1 if nobody can say: those of a run that was
// killed are told by comparing, which needs the workspace.
func count(c *leftovers.Kept) int {
	if c.Record.Ended {
		return len(c.Record.Stood)
	}
	if c.Upper == nil {
		return -1
	}
	sets, err := c.Upper.Changes()
	if err != nil {
		return -1
	}
	n := 0
	for _, set := range sets {
		n += len(set.Changes)
	}
	return n
}

// discarded says what has gone.
func discarded(c *leftovers.Kept, n int, asJSON bool) int {
	if n < 0 {
		return result(asJSON, object{{"session", c.Entry.ID}, {"discarded", nil}}, say, "discarded: what session "+c.Entry.ID+" changed")
	}
	return result(asJSON, object{{"session", c.Entry.ID}, {"discarded", n}}, say, fmt.Sprintf("%d discarded, none left in the overlay", n))
}
