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

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/undecided"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// A guarded run is one whose protected names are quarantined as they appear.
type guarded struct {
	standing   []*workspace.Standing // what stood before, in each tree that the command may write: the workspace first
	unfinished *sessions.Unfinished  // the record
	guard      workspace.Guards
	refused    []workspace.Refusal // changes that the sandbox refused
	failed     bool                // the post-run check was not finished
}

// recordUnfinished records what stands where the command may write, before it can change that: if this
// launcher is killed, the next pccrun makes the post-run check.
func (f *flow) recordUnfinished() error {
	if !survey.Guards(f.policy) {
		return nil
	}
	f.guarded.standing = f.watched.Standing(f.session.ID())
	err := f.excludeOtherRuns()
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

// excludeOtherRuns removes from what stood the protected names and repositories that runs which go on have made in
// the same place: those runs will quarantine them. Other runs' records are read only where something that stands is
// younger than the earliest of them.
func (f *flow) excludeOtherRuns() error {
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
		if workspace.CutShort(err) {
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

// guard begins to quarantine protected names as they appear.
func (f *flow) guard(run providers.LocalRun) error {
	g := &f.guarded
	if g.standing == nil {
		return nil
	}
	var err error
	stubs := workspace.NewStubs()
	if run != nil {
		stubs = run.Stubs()
	}
	stubs.Foreign = func(dev, ino uint64) bool { return undecided.HasStub(sessions.In(f.dirs.State), dev, ino) }
	stubs.Note = func(dev, ino uint64) error { return f.addToRecord(undecided.StubLine(dev, ino)) }
	stubs.Taken = func(path string) {
		observer{f}.Warning(events.Warning{Text: Within(f.policy.Workspace, path) + ": empty for the command: another run in this workspace has it in quarantine"})
	}
	stubs.Full = func(path string) {
		observer{f}.Warning(events.Warning{Text: Within(f.policy.Workspace, path) + ": not there for the command, as what follows: 64 such directories are"})
	}
	f.undecided.AddTo(stubs)
	g.guard, err = f.watched.Guard(g.standing, &workspace.Stash{Open: f.stash, Staged: stubs.Staged}, f.changed)
	if err != nil {
		return err
	}
	g.guard[0].AskGit = f.git().Ask
	g.guard.Stubs(stubs)
	if run != nil {
		g.guard[0].Configs = run.Configs(f.session.ID())
	}
	g.guard.Watch()
	return nil
}

// stash returns the session's directory, which holds what is quarantined. The session is marked to be kept before
// anything is moved there.
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
	if workspace.CutShort(err) { // its command has not started
		err = nil
	}
	return func(path string) bool {
		return slices.ContainsFunc(s, func(one *workspace.Standing) bool { return one.Overlaps(path) })
	}, err
}

// leaveRecord leaves the record of a run that began and could not be guarded: the next pccrun makes the post-run check,
// as if this one had been killed.
func (f *flow) leaveRecord() {
	if g := &f.guarded; g.guard == nil && g.unfinished != nil {
		g.unfinished, g.failed = nil, true
		messages.Say("the next pccrun checks what the command did")
	}
}

// changed emits the events of a finding.
func (f *flow) changed(c workspace.Finding) {
	f.log.Emit(events.Changed{Path: c.Path, Kind: string(c.Kind), What: c.What, Why: c.Why})
	if c.Protected() {
		f.log.Emit(events.Denial{Guarantee: string(profiles.FSProtect), What: "keep " + c.Path, Rule: "protect " + c.Why, Hint: f.policy.NewFlag(c.Why)})
	}
	f.log.Start()
}

// lookBack makes the post-run check, when all processes of the run are dead, and reports what it found.
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
	held, line := f.undecided.StillQuarantined(KeepChanges)
	if !f.req.Quiet {
		if line != "" {
			messages.Say(line)
		}
		if len(found) > 0 {
			sayFindings(found, f.policy, f.policy.Workspace, f.session.ID())
		}
		if left := slices.Concat(held, found); len(left) > 0 && os.Getuid() == f.uid { // who was root cannot start a sandbox any more
			for _, line := range undecided.Deleted(f.policy.Workspace, left, f.guarded.standing[0].Start) {
				messages.Say(line)
			}
		}
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

// treeLost reports whether a working tree that the command has made is deleted by now, with its private place. Another
// run in the same place may have made it and go on: the last of these finds it.
func (f *flow) treeLost(tree, admin string) bool {
	access := f.policy.Decide(tree).Access
	if access != profiles.Private && (access != profiles.Persist || !f.policy.FreshHome) {
		return false
	}
	checking, err := Checking(sessions.In(f.dirs.State))
	return err == nil && checking(admin) == ""
}

// unchanged reports which pinned files the command has tried to change.
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
	if workspace.CutShort(err) {
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
	dir, err := home.Open(id)
	if err == nil {
		guards[0].Configs, err = workspace.SavedConfigs(record, dir)
		dir.Close()
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a run that was over soon has no directory
		return err
	}
	guards[0].AskGit = AskGit(record.Root)
	guards.Stubs(undecided.KilledStubs(more))
	found, err := workspace.Together(guards...).Finish()
	if err != nil {
		return err
	}
	workspace.RemoveMade(record.Root, profiles.EveryMadeDir())
	quarantine.SweepStaging(filepath.Join(home.State(), quarantine.StagingName), "")
	return reportKilled(home, id, record.Root, record.Start, found)
}
