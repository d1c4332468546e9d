package main

import "github.com/pccrun/pccrun/sessions"

const discardUsage = `usage: pccrun discard [flags]

Drops what a run changed in its overlays. An apply that was killed half-way
through is taken back, so that the host's files are as they were before it.

  --session ID    of this session
` + lastRunHelp

func discardVerb(args []string) int {
	session := ""
	words, err := options(args, func(name string, value func() string) bool {
		if name != "--session" {
			return false
		}
		session = value()
		return true
	})
	if err == nil && len(words) > 0 {
		err = &usageError{"unexpected argument " + quote(words[0]), "discard drops everything; apply takes paths"}
	}
	if err != nil {
		return failSession(err)
	}
	c, err := openChanges(session)
	if err != nil && c != nil && c.entry.State != sessions.Running && c.unapplied() {
		// The workspace is gone. There is nothing to take back.
		if err = c.drop(); err == nil {
			return 0
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
	if err := c.drop(); err != nil {
		return failChanges(err)
	}
	return 0
}
