package main

import (
	"fmt"

	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/sessions"
)

const discardUsage = `usage: pccrun discard [flags]

Drops what a run changed in its overlays. An apply that was killed half-way
through is taken back, so that the host's files are as they were before it.

  --json          say what was done as JSON
  --session ID    of this session
` + lastRunHelp

func discardVerb(args []string) int {
	session, asJSON := "", false
	words, err := options(discardUsage, args, func(name string, value func() string) bool {
		switch name {
		case "--json":
			asJSON = true
		case "--session":
			session = value()
		default:
			return false
		}
		return true
	})
	if err == nil && len(words) > 0 {
		err = &usageError{"unexpected argument " + quote(words[0]), "discard drops everything; apply takes paths"}
	}
	if err != nil {
		return failSession(err)
	}
	if home, err := run.Sessions(); err == nil {
		if err := dropRest(home); err != nil {
			say(inWords(err))
		}
	}
	c, err := openChanges(session)
	if err != nil && c != nil && c.entry.State != sessions.Running && c.unapplied() {
		// The workspace is gone. There is nothing to take back.
		if err = c.drop(); err == nil {
			return c.discarded(c.count(), asJSON)
		}
	}
	if err != nil {
		return failChanges(err)
	}
	defer c.upper.Close()
	if err := c.begin(); err != nil {
		return failLocked(err)
	}
	defer slow("removing what was changed")()
	if err := c.upper.TakeBack(); err != nil {
		return failChanges(err)
	}
	c.record = &c.upper.Record // an apply that had come to its end has left less
	n := c.count()
	if err := c.drop(); err != nil {
		return failChanges(err)
	}
	return c.discarded(n, asJSON)
}

// count is how many changes are kept, -1 if nobody can say: those of a run that was
// killed are told by comparing, which needs the workspace.
func (c *kept) count() int {
	if c.record.Ended {
		return len(c.record.Stood)
	}
	if c.upper == nil {
		return -1
	}
	sets, err := c.upper.Changes()
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
func (c *kept) discarded(n int, asJSON bool) int {
	switch {
	case asJSON && n < 0:
		printJSON(object{{"session", c.entry.ID}, {"discarded", nil}})
	case asJSON:
		printJSON(object{{"session", c.entry.ID}, {"discarded", n}})
	case n < 0:
		say("discarded: what session " + c.entry.ID + " changed")
	default:
		say(fmt.Sprintf("%d discarded, none left in the overlay", n))
	}
	return 0
}
