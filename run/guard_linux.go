package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A guarded run has what is quarantined of what it leaves.
type guarded struct {
	standing   []*workspace.Standing // of the workspace, and what else the command may write
	unfinished *sessions.Unfinished
	guard      workspace.Guards
	refused    []workspace.Refusal // by what the run itself tells of
	failed     bool                // the post-run check was not finished
}

// owe writes down what stands in the workspace and beside it, before the command can change
// it: if this launcher is killed, the next pccrun looks in its place.
func (f *flow) recordUnfinished() error {
	if !survey.Guards(f.policy) {
		return nil
	}
	f.guarded.standing = f.watched.Standing(f.session.ID())
	err := f.meet()
	if err != nil {
		return noRecord(err)
	}
	var record []byte
	for _, standing := range f.guarded.standing {
		record = standing.Append(record)
	}
	if f.guarded.unfinished, err = sessions.In(f.dirs.State).WriteUnfinished(f.session.ID(), record); err != nil {
		if slices.Contains(f.policy.AllowMissing, profiles.FSProtect) {
			f.guarded.standing = nil
			return nil
		}
		return noRecord(err)
	}
	return nil
}

// meet takes out of what stood the names that runs in the same place have made
// and will quarantine, and the repositories that they have made. Nothing is read for it
// but where one of those is younger than the earliest of all runs.
func (f *flow) meet() error {
	home := sessions.In(f.dirs.State)
	since := home.Earliest()
	if since.IsZero() {
		return nil
	}
	young := slices.DeleteFunc(slices.Clone(f.guarded.standing), func(s *workspace.Standing) bool { return !s.Young(since) })
	if len(young) == 0 {
		return nil
	}
	return home.EachUnfinished(func(_, text string) error {
		others, _, err := workspace.ParseStandings(text)
		if workspace.Unfinished(err) {
			return nil // its command has not started
		}
		if err != nil {
			return err
		}
		for _, standing := range young {
			for _, other := range others {
				if err := standing.Without(other); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// guard begins to quarantine what appears.
func (f *flow) guard(run providers.Local) error {
	g := &f.guarded
	if g.standing == nil {
		return nil
	}
	var err error
	stubs := workspace.NewStubs()
	if run != nil {
		stubs = run.Stubs()
	}
	stubs.Foreign = func(dev, ino uint64) bool { return hasStub(sessions.In(f.dirs.State), dev, ino) }
	stubs.Note = func(dev, ino uint64) error { return f.oweAlso(stubLine(dev, ino)) }
	stubs.Taken = func(path string) {
		observer{f}.Warning(events.Warning{Text: Within(f.policy.Workspace, path) + ": empty for the command: another run in this workspace has it in quarantine"})
	}
	stubs.Full = func(path string) {
		observer{f}.Warning(events.Warning{Text: Within(f.policy.Workspace, path) + ": not there for the command, as what follows: 64 such directories are"})
	}
	f.eachStub(func(u *undecided, dir int, name string) {
		fd, err := beneath.Open(dir, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			fd = -1
		}
		stubs.Knows(u.dev, u.ino, fd)
	})
	g.guard, err = f.watched.Guard(g.standing, &workspace.Stash{Open: f.stash, Staged: stubs.Staged}, f.changed)
	if err != nil {
		return err
	}
	g.guard[0].AskGit = f.git().ask
	g.guard.Stubs(stubs)
	if run != nil {
		g.guard[0].Configs = run.Configs(f.session.ID())
	}
	g.guard.Watch()
	return nil
}

// stubLine is the line of an unfinished-run record that tells of a stub, by device and inode.
func stubLine(dev, ino uint64) string { return fmt.Sprintf("stub %d %d\n", dev, ino) }

// hasStub reports whether a run that goes on has made a stub. One of which that cannot be read is none.
func hasStub(home sessions.Home, dev, ino uint64) (has bool) {
	line := "\n" + stubLine(dev, ino)
	err := home.EachUnfinished(func(_, text string) error {
		_, lines, err := workspace.ParseStandings(text) // a name in these may look like such a line
		has = has || err == nil && strings.Contains("\n"+lines, line)
		return nil
	})
	return has && err == nil
}

// killedStubs are the stubs that the record of a killed run tells of, behind who held the run.
func killedStubs(lines []string) *workspace.Stubs {
	stubs := workspace.NewStubs()
	for _, line := range lines {
		var dev, ino uint64
		if n, _ := fmt.Sscanf(line, "stub %d %d", &dev, &ino); n == 2 {
			stubs.Knows(dev, ino, -1)
		}
	}
	return stubs
}

// stash is the session's directory, for what is quarantined, and noted as wanted before
// anything is.
func (f *flow) stash() (*os.Root, error) {
	if os.Getuid() == f.uid { // else root was given up, and may not write there
		if err := sessions.In(f.dirs.State).Hold(f.policy.Workspace, true); err != nil {
			messages.Say(messages.InWords(err))
		}
	}
	return f.session.Want(KeepChanges)
}

// checkedBy says which paths a run checks that has this record.
func checkedBy(text string) (func(path string) bool, error) {
	s, _, err := workspace.ParseStandings(text)
	if workspace.Unfinished(err) { // its command has not started
		err = nil
	}
	return func(path string) bool {
		return slices.ContainsFunc(s, func(one *workspace.Standing) bool { return one.Overlaps(path) })
	}, err
}

// unguarded leaves the record of a run that began, and that nobody could look after:
// the next pccrun does, as if this one had been killed.
func (f *flow) unguarded() {
	if g := &f.guarded; g.guard == nil && g.unfinished != nil {
		g.unfinished, g.failed = nil, true
		messages.Say("the next pccrun checks what the command did")
	}
}

// changed turns what the guard did into events.
func (f *flow) changed(c workspace.Finding) {
	f.log.Emit(events.Changed{Path: c.Path, Kind: string(c.Kind), What: c.What, Why: c.Why})
	if c.Protected() {
		f.log.Emit(events.Denial{Guarantee: string(profiles.FSProtect), What: "keep " + c.Path, Rule: "protect " + c.Why, Hint: f.policy.NewFlag(c.Why)})
	}
	f.log.Start()
}

// lookBack looks a last time, when all of the run is dead, and says what was found.
func (f *flow) lookBack() []events.Change {
	g := &f.guarded
	guard, refused := g.guard, g.refused
	if g.guard, g.refused = nil, nil; guard == nil {
		f.unchanged(guard.Refused(refused)) // of an overlay
		return nil
	}
	guard[0].TreeLost = f.treeLost
	if !f.req.Quiet {
		defer messages.Slow("checking what the run left in " + f.policy.Workspace)()
	}
	found, err := guard.Finish()
	refused = guard.Refused(refused)
	guard.Close()
	if err != nil {
		// The record stays: the next pccrun tries again.
		messages.Say("post-run check: " + messages.InWords(err))
		f.log.Emit(events.Warning{Text: messages.InWords(err)})
		g.unfinished, g.failed = nil, true
	}
	f.unchanged(refused)
	held := f.stillHeld()
	if len(found) > 0 && !f.req.Quiet {
		sayFindings(found, f.policy, f.policy.Workspace, f.session.ID())
	}
	if !f.req.Quiet {
		f.sayDeleted(slices.Concat(held, found))
	}
	if len(found) == 0 {
		f.session.Drop(KeepChanges)
		return nil
	}
	f.session.Keep(KeepChanges)
	list := make([]events.Change, 0, min(len(found), maxTold))
	for _, c := range found[:min(len(found), maxTold)] {
		list = append(list, events.Change{Path: Within(f.policy.Workspace, c.Path), Kind: string(c.Kind)})
	}
	return list
}

// treeLost reports whether a working tree that the command has made is deleted now. Another run in the same
// place may have made it and go on: the last of them finds it.
func (f *flow) treeLost(tree, admin string) bool {
	access := f.policy.Decide(tree).Access
	if access != profiles.Private && (access != profiles.Persist || !f.policy.FreshHome) {
		return false
	}
	return sessions.In(f.dirs.State).EachUnfinished(func(_, text string) error {
		if overlaps, err := checkedBy(text); err != nil || overlaps(admin) {
			return errors.New("another run goes on")
		}
		return nil
	}) == nil
}

// unchanged says what is pinned and somebody has tried to change.
func (f *flow) unchanged(refused []workspace.Refusal) {
	for i, r := range refused {
		flags := "--review " + shell.Quote(r.Why)
		f.log.Emit(events.Denial{Guarantee: string(profiles.FSProtect), What: "change " + r.Path, Rule: "protect " + r.Why, Hint: flags})
		if i < maxSaid && !f.req.Quiet {
			messages.Say(messages.Allow("denied: change "+Within(f.policy.Workspace, r.Path), flags))
		}
	}
	if more := len(refused) - maxSaid; more > 0 && !f.req.Quiet {
		messages.Say(fmt.Sprintf("denied: change %d more files, see pccrun logs --denied %s", more, f.session.ID()))
	}
}

// maxTold bounds the findings of an event.
const maxTold = 256

func settleUnfinished(home sessions.Home, program Program, id, text string) error {
	records, rest, err := workspace.ParseStandings(text)
	if workspace.Unfinished(err) {
		return nil // its command never started
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(records, func(r *workspace.Standing) bool { return r.Session != id }) {
		return errors.New("the unfinished-run record names another run")
	}
	defer messages.Slow("checking session " + id + ", which was killed")()
	record := records[0]
	records = slices.DeleteFunc(records, func(r *workspace.Standing) bool {
		_, err := os.Lstat(r.Root)
		return errors.Is(err, os.ErrNotExist) // it is gone, and what it held
	})
	if len(records) == 0 {
		return nil
	}
	held, more, _ := strings.Cut(rest, "\n")
	if strings.HasPrefix(held, unfinishedBy) {
		if err := endAt(home, program, id); err != nil {
			return err
		}
	} else if pid, err := strconv.Atoi(held); err == nil {
		if err := sessions.AwaitEnd(pid, record.Start, 5*time.Second); err != nil {
			return err
		}
	}
	stash := &workspace.Stash{Open: func() (*os.Root, error) { return home.Inherit(id) }}
	var guards workspace.Guards
	defer func() { guards.Close() }()
	for _, r := range records {
		guard, err := workspace.NewGuard(r, nil, nil, stash, func(workspace.Finding) {})
		if err != nil {
			return err
		}
		guards = append(guards, guard)
	}
	if dir, err := home.Open(id); err == nil {
		guards[0].Configs, err = workspace.SavedConfigs(record, dir)
		dir.Close()
		if err != nil {
			return err
		}
	}
	guards[0].AskGit = askGit(record.Root)
	guards.Stubs(killedStubs(strings.Split(more, "\n")))
	found, err := workspace.Together(guards...).Finish()
	if err != nil {
		return err
	}
	workspace.RemoveMade(record.Root, profiles.EveryMadeDir())
	quarantine.SweepStaging(filepath.Join(home.State(), quarantine.StagingName), "")
	return reportKilled(home, id, record.Root, record.Start, found)
}
