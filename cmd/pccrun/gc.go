//go:build !launcher

package main

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/providers/filesync"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/run/leftovers"
)

func gcVerb(args []string) int {
	o := sessions.GCOptions{}
	asJSON := false
	words, err := options(args, flags{"--all": &o.All, "--dry-run": &o.DryRun, "--json": &asJSON})
	if err = cmp.Or(err, unexpected(words, 0, "see pccrun help gc")); err != nil {
		return failSession(err)
	}
	home, err := run.Sessions()
	if err != nil {
		return failSession(err)
	}
	o.Crashed = func(e sessions.Entry) error { return leftovers.ClearCrashed(thisProgram(), home, e) }
	defer slow("removing")()
	var rest error
	if !o.DryRun {
		if rest = leftovers.DropRest(home); errors.Is(rest, state.ErrUnsafe) {
			return failSession(rest) // nothing is cleared away there
		}
	}
	removed, err := home.GC(o)
	err = errors.Join(rest, err)
	if !o.DryRun {
		err = errors.Join(err, leftovers.RemoveLeftovers(), filesync.RemoveStale("."))
	}
	orphans, unasked, e := leftovers.Orphans(thisProgram(), home, o.DryRun, o.All)
	err = errors.Join(err, e)
	var gone []string
	if dirs, e := run.Dirs(); e == nil && !o.DryRun {
		var list []homes.Entry
		list, e = homes.Collect(dirs.State, homes.Default, time.Now())
		for _, h := range list {
			gone = append(gone, h.Record.Workspace.Path)
		}
		err = errors.Join(err, e)
	}
	if asJSON {
		printJSON(object{{"removed", removed}, {"homes", gone}, {"sandboxes", orphans}, {"not_asked", unasked}, {"dry_run", o.DryRun}})
	} else {
		verb := "removed"
		if o.DryRun {
			verb = "would remove"
		}
		for i, list := range [...][]string{removed, gone, orphans} {
			for _, name := range list {
				printf("%s %s %s\n", verb, [...]string{"session", "the home of", "the sandbox"}[i], printable(name))
			}
		}
	}
	var clouds []string
	for _, u := range unasked {
		clouds = append(clouds, u.Provider+" ("+u.Why+")")
	}
	if len(clouds) > 0 {
		say("not asked for sandboxes: " + strings.Join(clouds, ", "))
	}
	list, e := home.List()
	for _, one := range list {
		if one.Standing && !o.All {
			say("session " + one.ID + ": its sandbox is kept until " + one.Resource.Until.Local().Format("15:04") + "; pccrun kill " + one.ID + " destroys it")
		}
		if one.Unfetched && !(o.All && o.DryRun) {
			fail("session "+one.ID+": the changes at "+one.Resource.Provider+" were not downloaded: the session and its sandbox are kept", "pccrun download "+one.ID+" downloads them; pccrun kill "+one.ID+" --no-download destroys them")
		}
	}
	if err = errors.Join(err, e); err != nil {
		return failSession(err)
	}
	return 0
}
