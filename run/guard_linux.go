package run

import (
	"errors"
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

// A guarded run is one whose protected names are quarantined as they appear. What stood before is written down, so that the
// next pccrun makes the post-run check if this one is killed.
type guarded struct {
	*opened
	*planned
	watched    *survey.Guarded       // what the command may write, as root with descriptors of it
	standing   []*workspace.Standing // what stood before, in each tree that the command may write: the workspace first
	unfinished *sessions.Unfinished  // the record
	guard      workspace.Guards
	failed     bool // the post-run check was not finished
}

func newGuarded(o *opened, p *planned) guarded {
	return guarded{opened: o, planned: p, watched: p.watched}
}

// recordUnfinished records what stands where the command may write, before it can change that.
func (g *guarded) recordUnfinished() error {
	if !survey.Guards(g.policy) {
		return nil
	}
	g.standing = g.watched.Standing(g.session.ID())
	records, err := sessions.In(g.dirs.State).OpenRecords()
	if err == nil {
		defer records.Close()
		if err := g.excludeOtherRuns(records.Earliest()); err != nil {
			return noRecord(err)
		}
		var record []byte
		for _, standing := range g.standing {
			record = standing.Append(record)
		}
		g.unfinished, err = records.Write(g.session.ID(), record)
	}
	if err != nil {
		if slices.Contains(g.policy.AllowMissing, profiles.FSProtect) {
			g.standing = nil
			return nil
		}
		return noRecord(err)
	}
	return nil
}

// excludeOtherRuns removes from what stood the protected names and repositories that runs which go on have made in
// the same place: those runs will quarantine them. Other runs' records are read only where something that stands is
// younger than the earliest of them, which began at since.
func (g *guarded) excludeOtherRuns(since time.Time) error {
	if since.IsZero() {
		return nil
	}
	young := slices.DeleteFunc(slices.Clone(g.standing), func(s *workspace.Standing) bool { return !s.Young(since) })
	if len(young) == 0 {
		return nil
	}
	return sessions.In(g.dirs.State).EachUnfinished(func(_, text string) error {
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

// watch begins to quarantine protected names as they appear; run is nil where the provider is not this machine.
func (g *guarded) watch(run providers.LocalRun) error {
	if g.standing == nil {
		return nil
	}
	var err error
	stubs := workspace.NewStubs()
	if run != nil {
		stubs = run.Stubs()
	}
	note := func(path, text string) {
		text = messages.Within(g.policy.Workspace, path) + text
		g.warn(events.Warning{Text: text}, text)
	}
	stubs.Foreign = func(dev, ino uint64) bool { return undecided.HasStub(sessions.In(g.dirs.State), dev, ino) }
	stubs.Note = func(dev, ino uint64) error { return g.addToRecord(undecided.StubLine(dev, ino)) }
	stubs.Taken = func(path string) {
		note(path, ": empty for the command: another run in this workspace has it in quarantine")
	}
	stubs.Full = func(path string) {
		note(path, ": not there for the command, as what follows: 64 such directories are")
	}
	g.undecided.AddTo(stubs)
	g.guard, err = g.watched.Guard(g.standing, &workspace.Stash{Open: g.stash, Staged: stubs.Staged}, g.changed)
	if err != nil {
		return err
	}
	g.guard[0].AskGit = g.git().Ask
	g.guard.Stubs(stubs)
	if run != nil {
		g.guard[0].Configs = run.Configs(g.session.ID())
	}
	g.guard.Watch()
	return nil
}

// stash returns the session's directory, which holds what is quarantined. The session is marked to be kept before
// anything is moved there.
func (g *guarded) stash() (*os.Root, error) {
	if os.Getuid() == g.uid { // else root was given up, and may not write there
		if err := sessions.In(g.dirs.State).Hold(g.policy.Workspace, true); err != nil {
			messages.Say(messages.InWords(err))
		}
	}
	return g.session.Want(KeepChanges)
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
func (g *guarded) leaveRecord() {
	if g.unfinished != nil {
		g.unfinished, g.failed = nil, true
		messages.Say("the next pccrun checks what the command did")
	}
}

// changed emits the events of a finding.
func (g *guarded) changed(c workspace.Finding) {
	g.log.Emit(events.Changed{Path: c.Path, Kind: string(c.Kind), What: c.What, Why: c.Why})
	if c.Protected() {
		g.log.Emit(events.Denial{Guarantee: string(profiles.FSProtect), What: "keep " + c.Path, Rule: "protect " + c.Why, Hint: g.policy.NewFlag(c.Why)})
	}
	g.log.Start()
}

// check makes the post-run check, once all processes of the run are dead, and reports what it found. refused are changes that
// the sandbox has refused.
func (g *guarded) check(refused []workspace.Refusal) []events.Change {
	if g.guard == nil {
		g.unchanged(g.guard.Refused(refused)) // of an overlay
		return nil
	}
	g.guard[0].TreeLost = g.treeLost
	if !g.req.Quiet {
		defer messages.Slow("checking what the run left in " + g.policy.Workspace)()
	}
	found, err := g.guard.Finish()
	refused = g.guard.Refused(refused)
	g.guard.Close()
	if err != nil {
		// The record stays: the next pccrun tries again.
		messages.Say("post-run check: " + messages.InWords(err))
		g.log.Emit(events.Warning{Text: messages.InWords(err)})
		g.unfinished, g.failed = nil, true
	}
	g.unchanged(refused)
	held, line := g.undecided.StillQuarantined(KeepChanges)
	if !g.req.Quiet {
		if line != "" {
			messages.Say(line)
		}
		if len(found) > 0 {
			sayFindings(found, g.policy, g.policy.Workspace, g.session.ID())
		}
		if left := slices.Concat(held, found); len(left) > 0 && os.Getuid() == g.uid { // who was root cannot start a sandbox any more
			for _, line := range undecided.Deleted(g.policy.Workspace, left, g.standing[0].Start) {
				messages.Say(line)
			}
		}
	}
	if len(found) == 0 {
		g.session.Drop(KeepChanges)
		return nil
	}
	g.session.Keep(KeepChanges)
	list := make([]events.Change, 0, min(len(found), maxTold))
	for _, c := range found[:min(len(found), maxTold)] {
		list = append(list, events.Change{Path: messages.Within(g.policy.Workspace, c.Path), Kind: string(c.Kind)})
	}
	return list
}

// treeLost reports whether a working tree that the command has made is deleted by now, with its private place. Another
// run in the same place may have made it and go on: the last of these finds it.
func (g *guarded) treeLost(tree, admin string) bool {
	access := g.policy.Decide(tree).Access
	if access != profiles.Private && (access != profiles.Persist || !g.policy.FreshHome) {
		return false
	}
	checking, err := Checking(sessions.In(g.dirs.State))
	return err == nil && checking(admin) == ""
}

// unchanged reports which pinned files the command has tried to change.
func (g *guarded) unchanged(refused []workspace.Refusal) {
	var lines []string
	for _, r := range refused {
		flags := "--review " + shell.Quote(r.Why)
		g.log.Emit(events.Denial{Guarantee: string(profiles.FSProtect), What: "change " + r.Path, Rule: "protect " + r.Why, Hint: flags})
		lines = append(lines, messages.Allow("denied: change "+messages.Within(g.policy.Workspace, r.Path), flags))
	}
	if !g.req.Quiet {
		sayFew(lines, "denied: change %d more files, see pccrun logs --denied "+g.session.ID())
	}
}

// maxTold bounds the findings of an event.
const maxTold = 256

// checkUnfinished makes the check that the record of a killed run asks for.
func checkUnfinished(home sessions.Home, program Program, id, text string) error {
	records, rest, err := workspace.ParseStandings(text)
	if workspace.CutShort(err) {
		return nil // its command never started
	}
	if workspace.OtherVersion(err) {
		return sessions.ErrOtherVersion
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
	for _, gate := range quarantine.Gates(record.Root) {
		quarantine.SweepStaging(filepath.Join(record.Root, gate), quarantine.Prefix)
	}
	return reportKilled(home, id, record.Root, record.Start, found)
}
