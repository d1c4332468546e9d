package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/askgit"
	"github.com/pccrun/pccrun/run/undecided"
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// onMachine is what only a plan for this machine has.
type onMachine struct {
	local     providers.LocalPlan // nil: it is elsewhere
	watched   *survey.Guarded     // what the command may write of this machine's
	undecided undecided.Findings
}

// ranHere is what only a run on this machine has.
type ranHere struct {
	machine providers.LocalRun // nil until nothing of it runs any more
	denials *os.File           // in which the command reads of refusals, once it may run
}

// madeDirs are directories that a run makes in the workspace for itself.
type madeDirs = workspace.MadeDirs

// found takes a survey in: what the command may write.
func (l *planner) found(p *planned, s *survey.Survey) {
	l.mountUndecided(p, s)
	p.watched = &survey.Guarded{
		Policy: l.policy, Trees: append([]survey.Tree{{Query: s.Query, Found: s.Workspace}}, s.Trees...),
		Writes: func(path string) bool { return l.policy.Decide(path).Access == profiles.Write },
	}
}

// who returns the owner of the files that the command writes.
func who() (uid, gid int) {
	id := namespaces.WhoAmI()
	return id.HostUID, id.HostGID
}

// native reports whether the provider is this machine, and meets the flow at more points than others.
func (q *request) native() bool { return q.Name == providers.Native }

// linuxNumber is a signal's number on Linux, by which providers know it.
func linuxNumber(sig unix.Signal) int { return int(sig) }

func (o *output) takeTerminal(s *providers.Stdio) error { return o.relayTerminal(s) }

func (p *planned) isLocal() bool { return p.local != nil }

// examine asks the provider what the plan has to know.
func (l *planner) examine(s *providers.Survey, c providers.Command) (providers.Facts, error) {
	if local, is := l.place.(providers.LocalProvider); is {
		return local.ExamineFor(l.policy, s, c, l.host())
	}
	return l.ask()
}

// prepareHere takes in what a plan says of this machine.
func (l *planner) prepareHere(p *planned) error {
	local, is := p.plan.(providers.LocalPlan)
	if !is {
		return nil
	}
	p.local, p.watched = local, local.Guarded()
	return local.JudgeDescriptors()
}

// closePlace takes away what is left of a run that has ended.
func closePlace(place providers.Provider) {
	if local, is := place.(providers.LocalProvider); is {
		local.Close()
	}
}

// openHere makes what a run on this machine needs of its session.
func openHere(f *flow) error {
	uid, gid := who()
	if kept := f.output.kept; kept != nil && f.uid == 0 {
		if err := kept.file.Chown(uid, gid); err != nil {
			return err
		}
	}
	if err := f.upper.make(f.planned); err != nil || f.uid != 0 {
		return err
	}
	return f.session.Hand(uid, gid) // what the launcher still writes there, it writes as the identity
}

// localStdio is what the provider of this machine takes, which has the descriptors of this process.
func (f *flow) localStdio(s *providers.Stdio) (err error) {
	s.Terminal = &providers.Terminal{Relay: f.output.relay}
	if f.output.kept != nil {
		s.Log = f.output.kept
	}
	s.Session.Path = f.session.Path()
	if f.home.kept != nil {
		s.Session.HomeSize = f.home.kept.Usage
	}
	if f.upper.kept {
		s.Changes, err = f.session.Dir()
	}
	return err
}

// make makes the directories that a plan's overlays need.
func (u *overlays) make(p *planned) error {
	layers := p.local.Layers()
	if len(layers) == 0 {
		return nil
	}
	session, err := u.session.Want(KeepUpper) // also if we are killed
	if err != nil {
		return err
	}
	record := &changes.Record{Workspace: u.policy.Workspace, Protect: p.watched.OverlayProtect(), Started: changes.Clock(), Layers: layers}
	var snapshot *os.Root
	if u.req.From != "" {
		if snapshot, err = OpenSnapshot(u.req.From); err != nil {
			return err
		}
		defer snapshot.Close()
	}
	if err := changes.CreateUpper(session, record, snapshot); err != nil {
		_ = changes.RemoveUpper(session) // the session may be kept for something else, on a disk that is full
		return fmt.Errorf("session %s: %w", u.session.ID(), err)
	}
	u.lower = func(layer int) (*os.Root, error) { return os.OpenRoot(layers[layer].Path) } // until it is bound
	u.kept, u.summarized = true, sync.OnceValues(u.summarize)
	return nil
}

// denialsSink is the file in which the command reads of refusals, if it has one.
func (f *flow) denialsSink() []events.Sink {
	if f.local == nil || !f.local.ShowsDenials() {
		return nil
	}
	sink := events.Denials(nil)
	sink.Wanted = func() bool { return f.denials != nil }
	sink.Open = func() (io.WriteCloser, error) {
		if f.denials == nil {
			return nil, events.ErrNotWanted
		}
		return f.denials, nil
	}
	return []events.Sink{sink}
}

// carryOut carries the plan out: on this machine in stages, see [providers.LocalPlan].
func (f *flow) carryOut(ctx context.Context, stdio providers.Stdio) (result providers.Result, came progress, err error) {
	if f.local == nil {
		return f.carryOutElsewhere(ctx, stdio)
	}
	bound, err := f.local.Bind(stdio, observer{f})
	if err != nil {
		return result, notStarted, err
	}
	var last interface{ Close() error } = bound
	defer func() {
		if last != nil {
			if failed := last.Close(); failed != nil {
				err = errors.Join(err, failed)
			}
		}
	}()
	f.upper.lower = bound.Lower
	if err = f.record(bound); err != nil {
		return result, notStarted, err
	}
	run, err := bound.Clone()
	if err != nil {
		return result, notStarted, err
	}
	last = run
	pid, groups := run.Process()
	if err = cmp.Or(f.guard.addToRecord(strconv.Itoa(pid)+"\n"), ctx.Err()); err != nil {
		return result, notStarted, err
	}
	answers, err := run.Connect()
	if err != nil {
		return result, notStarted, err
	}
	if err = run.Go(); err != nil {
		return result, notStarted, err
	}
	f.weakened(answers)
	warnings, err := run.Attend()
	for _, w := range warnings {
		f.warn(w, w.Text)
	}
	if err == nil {
		f.denials = run.Denials()
		err = f.guard.watch(run)
	}
	if err != nil {
		return result, unguarded, err
	}
	f.watchHere(pid, groups)
	alone := run.Follow(ctx, f.signals)
	patience := time.Duration(0)
	killed := f.stop()    // from here on the signals are for the post-run check
	if killed || !alone { // whoever wanted the end does not wait for a reader that takes nothing
		messages.Hurry()
		patience = stuck
	}
	if err := run.Drain(patience); err != nil {
		f.warn(events.Warning{Text: messages.InWords(err)}, messages.InWords(err))
	}
	f.checkHere(run)
	last = nil
	result, notes, err := run.Result()
	for _, e := range notes {
		f.log.Emit(e)
	}
	f.machine = run
	return result, followed, err
}

// record writes down what stands where the command may write, while pid 1 may be at work already, and makes the directories
// on which the plan mounts what is undecided.
func (f *flow) record(bound providers.Bound) error {
	f.guard.watched = bound.Guarded() // as root it has descriptors by now
	if err := f.guard.recordUnfinished(); err != nil {
		return err
	}
	if err := f.undecided.MakeStubs(f.guard.addToRecord); err != nil {
		f.planner.held = errors.Is(err, unix.EEXIST) // then another run has it, which the next plan sees
		return err
	}
	return f.caught.interrupted()
}

// weakened prints which answers are less than was planned.
func (f *flow) weakened(answers []profiles.Answer) {
	for i, a := range answers {
		if a == f.answers[i] || f.req.Quiet {
			continue
		}
		state := a.State.String()
		if a.Mechanism != "" {
			state += ", by " + a.Mechanism
		}
		messages.Say("guarantee " + string(a.Guarantee) + ": " + state + ": " + a.Cause)
	}
	f.answers = answers
	f.logPlan()
}

// watchHere begins what goes on while a guarded command runs.
func (f *flow) watchHere(pid int, groups []string) {
	if f.req.Events != "" {
		f.log.Start() // who reads them learns from the first which session this is
	}
	time.AfterFunc(logAfter, f.log.Start) // so that pccrun logs shows a run in which nothing has happened
	time.AfterFunc(restAfter, rest)
	f.begun(f.caught.relay.Load() == nil)
	_ = f.session.Update(func(i *sessions.Info) {
		i.Sandbox = sessions.Process{Pid: pid}
		i.Cgroups = groups
	})
}

// checkHere checks what the run left, while what is private to it still stands.
func (f *flow) checkHere(run providers.LocalRun) {
	f.output.kept.tell()
	f.left = append(f.left, f.guard.check(run.Refused())...)
	if text, hint := f.home.left(f.local.HomeNeeds()); text != "" {
		f.warn(events.Warning{Text: text, Hint: hint}, text)
	}
	f.lost(run)
	f.planner.removeAgentDirs()
	if f.upper.kept {
		_, _ = f.upper.summarized() // what goes wrong report says
	}
	f.guard.removeRecord()
}

// maxWithheld bounds the variables that are named at exit.
const maxWithheld = 10

// withheld names the variables that look like secrets and were not passed, where the policy wants
// to hear of attempts. Whether the command looked for them nobody can tell: it reads its memory.
func (e *ended) withheld() {
	f := e.flow
	if f.local == nil || !f.policy.Attempts {
		return
	}
	names := f.policy.Withheld(f.req.Host.Environ)
	if len(names) == 0 {
		return
	}
	text := "withheld from the environment: " + messages.Few(names, maxWithheld)
	f.log.Emit(events.Warning{Text: text, Hint: "--env NAME passes one"})
	if !f.req.Quiet {
		messages.Say(text)
	}
}

// sayHidden prints which services of this machine the command has asked for, and what one that has failed could not see
// of what it names.
func (e *ended) sayHidden() {
	f, end := e.flow, e.result
	if f.machine == nil {
		return
	}
	failed := end.Code != 0 && !end.TimedOut && !end.Killed
	list := f.machine.Hidden(failed)
	if failed && f.uid != 0 { // root's rights are gone by now
		for _, name := range askgit.Names(f.policy.Workspace, f.workDir, f.machine.Unreadable(), "ls-files", "--others", "--exclude-standard", "--full-name") {
			hint := "echo " + shell.Quote("/"+name) + ` >> "$(git rev-parse --git-path info/exclude)"`
			if what := "read " + f.policy.Workspace + "/" + name; !slices.ContainsFunc(list, func(h events.Hidden) bool { return h.What == what }) {
				list = append(list, events.Hidden{What: what + ", which git would add", Hint: hint})
			}
		}
	}
	var lines []string
	for _, h := range list {
		f.tell(h)
		if strings.HasPrefix(h.What, "connect ") {
			f.session.Keep("denials") // pccrun logs --denied shows it
		}
		lines = append(lines, messages.Allow("hidden: "+h.What, h.Hint))
	}
	if !f.req.Quiet && !f.req.Learn { // learn prints all of them
		sayFew(lines, "hidden: %d more, see pccrun logs")
	}
	// A refused open leaves no trace. Who has learned that once need not be told at each test that fails.
	refused, _ := f.log.Denied()
	if failed && end.Signal == 0 && refused == 0 && len(list) == 0 && f.uid != 0 && !f.req.Quiet && !f.req.Learn && sessions.In(f.dirs.State).Once(f.policy.Workspace) {
		messages.Say("no run records which files it was refused: pccrun learn -- COMMAND names them")
	}
}
