package run

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/review"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// lost prints what was made outside the workspace in directories of the sandbox's own, which
// end with it: the command had no error. The session keeps it.
func (f *flow) lost(run providers.LocalRun) {
	p := f.policy
	kept := f.home.keepAgentDirs(run)
	items, err := run.Lost()
	if err != nil {
		messages.Say(messages.InWords(err))
	}
	if len(items) == 0 {
		return
	}
	session, err := f.session.Want(KeepLost)
	if err == nil {
		items, err = quarantine.KeepLost(session, items, run.OpenLost)
	}
	if err != nil {
		messages.Say("not saved: " + messages.InWords(err))
	}
	var lines []string
	fetch, keep := "", ""
	for i, one := range items {
		f.log.Emit(events.Changed{Path: one.Path, Kind: "lost", What: "new", Why: review.LostSize(one)})
		if i < maxSaid {
			where := " is outside the workspace"
			if strings.HasPrefix(one.Path, p.Workspace+"/") {
				where = " is in a private directory"
			}
			size, files := one.Path+" ("+review.LostSize(one)+")", 0
			for path := range kept {
				if survey.Below(path, one.Path) {
					files++
				}
			}
			if files >= one.Files && !one.More {
				lines = append(lines, "saved only for runs in a sandbox here: "+size)
			} else {
				lines = append(lines, "not saved: "+size+where)
			}
		}
		if one.Kept != "" && fetch == "" {
			fetch = "pccrun review --save " + f.session.ID() + " " + shell.Quote(one.Path) + " DEST copies it"
		}
		// Nothing of the host's is to be given away for a name that the command has chosen,
		// and nothing that the host would execute.
		var st unix.Stat_t
		r, protected := p.Protected(one.Path)
		if flag := p.DirFlag(one.Path, r); keep == "" && protected && one.Dir && flag != "" {
			keep = flag + " keep it the next time"
		}
		if keep == "" && !protected && !strings.Contains(strings.TrimPrefix(one.Path, p.Home), "/.") && unix.Lstat(one.Path, &st) == unix.ENOENT {
			make := "touch "
			if one.Dir {
				make = "mkdir "
			}
			keep = make + shell.Quote(one.Path) + " before the run and --write " + shell.Quote(one.Path) + " keeps it the next time"
		}
	}
	if more := len(items) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("not saved: %d more, see pccrun review %s", more, f.session.ID()))
	}
	w := events.Warning{Text: strings.Join(lines, "; ")}
	w.Hint = strings.TrimPrefix(strings.TrimSuffix(fetch+"; "+keep, "; "), "; ")
	f.warn(w, lines...)
}
