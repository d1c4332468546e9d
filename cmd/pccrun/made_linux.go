package main

import (
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/providers/native"
)

// made has what the command made for the user, where nothing stood on the host,
// carried over when it is dead: by the guard, which first sets aside what is
// protected, or by nobody less where nothing is.
func (l *launch) made(s *native.Started) {
	list, copied, err := s.Made()
	if err != nil {
		say(inWords(err))
	}
	if g := l.guarded.guard; g != nil {
		g[0].Made = list
		l.sorts(copied)
		return
	}
	for _, k := range copied {
		unix.Close(k.Dir) // nobody sorts it: what was changed there is gone
	}
	for _, c := range list {
		done, err := c.Carry(l.session.Dir)
		unix.Close(c.Dir)
		if err != nil {
			say("lost: " + c.Path + ", which did not exist: " + err.Error())
			say("hint: mkdir -m 700 " + shell.Quote(c.Path) + ", and it is kept")
		}
		if done {
			l.carried([]string{c.Path})
		}
	}
}

// carried says what has come to be on the host.
func (l *launch) carried(paths []string) {
	for _, path := range paths {
		l.log.Emit(events.Changed{Path: path, Kind: "made", What: "new", Why: l.policy.Decide(path).Rule.Origin.String()})
		if !l.req.Quiet {
			say("kept: " + path + ", which did not exist before (write, " + l.policy.Decide(path).Rule.Origin.String() + ")")
		}
	}
}
