package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/sessions"
)

const downloadUsage = `usage: pccrun download [--json] [SESSION]
       pccrun download --to DIR [--all] [--filter GLOB]… [--json] [SESSION]

Downloads what a command changed at a cloud, after its run could not, or after
pccrun was killed, and destroys the sandbox. Nothing changes on the host: pccrun
diff, apply and discard go on from there. With --to it writes a copy to a
directory, also while the command runs, and leaves the sandbox as it is.

  --to DIR       write changed files to DIR, which is empty or new, and outside
                 of the workspace
  --all          with --to: unchanged and ignored files, too
  --filter GLOB  with --to: only what the pattern selects, a line as in
                 .gitignore (may be repeated; !GLOB leaves out)
  --json         print the result as JSON

SESSION is an id from pccrun ps, or the start of one. The default is the newest
session of the current workspace that has something left there or, with --to,
runs there.
`

func downloadVerb(args []string) int {
	asJSON, c := false, providers.Copy{}
	words, err := options(downloadUsage, args, flags{"--json": &asJSON, "--to": &c.Dir, "--all": &c.All,
		"--filter": func(glob string) error { c.Filter = append(c.Filter, glob); return nil }})
	if err == nil && c.Dir == "" && (c.All || c.Filter != nil) {
		err = misuse("download: --all and --filter go with --to", "--to DIR writes the files to a directory")
	}
	if err != nil {
		return failSession(err)
	}
	if become != nil {
		return become()
	}
	home, e, err := findSession(words)
	if len(words) == 0 && home != (sessions.Home{}) {
		var found bool
		e, found, err = home.Newest(func(e sessions.Entry) bool {
			return standsIn(e.Workspace) && (e.Unfetched || c.Dir != "" && e.State == sessions.Running && e.Resource != nil)
		})
		if err == nil && !found {
			err = errors.New("nothing is left to be downloaded in this workspace")
		}
	}
	if err != nil {
		return failSession(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	var n int
	if c.Dir != "" {
		n, err = run.CopyOut(ctx, thisProgram(), home, e, c, run.ShowProgress(), warned{})
	} else {
		n, err = run.Download(ctx, thisProgram(), home, e, run.ShowProgress(), warned{})
	}
	if err != nil {
		fail(inWords(err), run.Hint(err))
		return failed
	}
	switch {
	case asJSON && c.Dir != "":
		printJSON(object{{"session", e.ID}, {"paths", n}})
	case asJSON:
		printJSON(object{{"session", e.ID}, {"changed", n}})
	case c.Dir != "":
		say(c.Dir + ": " + strconv.Itoa(n) + " paths from session " + e.ID)
	case n > 0:
		say(run.PathsChanged(n) + ": pccrun diff, apply or discard")
	default:
		say("nothing changed")
	}
	return 0
}

// warned prints what a download says on its way, which is all that it says.
type warned struct{ providers.Observer }

func (warned) Warning(w events.Warning) { say(w.Text) }
