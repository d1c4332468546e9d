package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/sessions"
)

const downloadUsage = `usage: pccrun download [--json] [SESSION]

Downloads what a command changed at a cloud, after its run could not, or after
pccrun was killed, and destroys the sandbox. Nothing changes on the host: pccrun
diff, apply and discard go on from there.

  --json  print the result as JSON

SESSION is an id from pccrun ps, or the start of one. The default is the newest
session of the current workspace that has something left there.
`

func downloadVerb(args []string) int {
	asJSON := false
	words, err := options(downloadUsage, args, flags{"--json": &asJSON})
	if err != nil {
		return failSession(err)
	}
	if become != nil {
		return become()
	}
	home, e, err := findSession(words)
	if len(words) == 0 && home != (sessions.Home{}) {
		var found bool
		e, found, err = home.Newest(func(e sessions.Entry) bool { return standsIn(e.Workspace) && e.Unfetched })
		if err == nil && !found {
			err = errors.New("nothing is left to be downloaded in this workspace")
		}
	}
	if err != nil {
		return failSession(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	n, err := run.Download(ctx, thisProgram(), home, e, run.ShowProgress(), warned{})
	if err != nil {
		fail(inWords(err), run.Hint(err))
		return failed
	}
	if asJSON {
		printJSON(object{{"session", e.ID}, {"changed", n}})
		return 0
	}
	if n > 0 {
		say(run.PathsChanged(n) + ": pccrun diff, apply or discard")
	} else {
		say("nothing changed")
	}
	return 0
}

// warned prints what a download says on its way, which is all that it says.
type warned struct{ providers.Observer }

func (warned) Warning(w events.Warning) { say(w.Text) }
