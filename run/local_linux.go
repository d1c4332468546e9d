package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/homes"
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

// onMachine is what a run has beside the rest if its provider is this machine.
type onMachine struct {
	local   providers.LocalPlan // nil: it is elsewhere
	machine providers.LocalRun  // once it has pid 1
	stood   map[string][]string // names in the home, by directory, before the command

	watched *survey.Guarded // what the command may write of this machine's
	home    *homes.Home     // nil: it is not persistent

	agentDirs workspace.MadeDirs
	undecided undecided.Findings
}

// found takes a survey in: what the command may write.
func (f *prepared) found(s *survey.Survey) {
	f.mountUndecided(s)
	f.watched = &survey.Guarded{
		Policy: f.policy, Trees: append([]survey.Tree{{Query: s.Query, Found: s.Workspace}}, s.Trees...),
		Writes: func(path string) bool { return f.policy.Decide(path).Access == profiles.Write },
	}
}

// who returns the owner of the files that the command writes.
func who() (uid, gid int) {
	id := namespaces.WhoAmI()
	return id.HostUID, id.HostGID
}

// native reports whether the provider is this machine, and meets the flow at more points than others.
func (f *request) native() bool { return f.Name == providers.Native }

// linuxNumber is a signal's number on Linux, by which providers know it.
func linuxNumber(sig unix.Signal) int { return int(sig) }

func (f *flow) takeTerminal(s *providers.Stdio) error { return f.relayTerminal(s) }

func (f *prepared) isLocal() bool { return f.local != nil }

// examine asks the provider what the plan has to know.
func (f *prepared) examine(s *providers.Survey, c providers.Command) (providers.Facts, error) {
	if local, is := f.place.(providers.LocalProvider); is {
		return local.ExamineFor(f.policy, s, c, f.host())
	}
	return f.ask()
}

// prepareHere takes a plan in, and makes what it needs in the home.
func (f *prepared) prepareHere() error {
	local, is := f.plan.(providers.LocalPlan)
	if !is {
		return nil
	}
	f.local = local
	f.watched = local.Guarded()
	if err := f.prepareHome(); err != nil {
		return err
	}
	return local.JudgeDescriptors()
}

// close takes away what is left of a run that has ended.
func (f *request) close() {
	if local, is := f.place.(providers.LocalProvider); is {
		local.Close()
	}
}

// open makes what a run on this machine needs of its session.
func (f *flow) open() error {
	uid, gid := who()
	if f.kept != nil && f.uid == 0 {
		if err := f.kept.file.Chown(uid, gid); err != nil {
			return err
		}
	}
	if err := f.makeUpper(); err != nil || f.uid != 0 {
		return err
	}
	return f.session.Hand(uid, gid) // what the launcher still writes there, it writes as the identity
}

// localStdio adds what the provider of this machine takes, which has the descriptors of this
// process.
func (f *flow) localStdio(s *providers.Stdio) error {
	s.Terminal = &providers.Terminal{Relay: f.relay}
	if f.kept != nil {
		s.Log = f.kept
	}
	s.Session.Path = f.session.Path()
	if f.home != nil {
		s.Session.HomeSize = f.home.Usage
	}
	if !f.upper {
		return nil
	}
	var err error
	s.Changes, err = f.session.Dir()
	return err
}

// makeUpper makes the directories that the plan's overlays need.
func (f *flow) makeUpper() error {
	layers := f.local.Layers()
	if len(layers) == 0 {
		return nil
	}
	session, err := f.session.Want(KeepUpper) // also if we are killed
	if err != nil {
		return err
	}
	record := &changes.Record{Workspace: f.policy.Workspace, Protect: f.watched.OverlayProtect(), Started: changes.Clock(), Layers: layers}
	var snapshot *os.Root
	if f.req.From != "" {
		if snapshot, err = OpenSnapshot(f.req.From); err != nil {
			return err
		}
		defer snapshot.Close()
	}
	if err := changes.CreateUpper(session, record, snapshot); err != nil {
		_ = changes.RemoveUpper(session) // the session may be kept for something else, on a disk that is full
		return fmt.Errorf("session %s: %w", f.session.ID(), err)
	}
	f.lower = func(layer int) (*os.Root, error) { return os.OpenRoot(layers[layer].Path) } // until it is bound
	f.upper, f.summarized = true, sync.OnceValues(f.summarizeUpper)
	return nil
}

// showsDenials reports whether the command has a file in which it reads of refusals.
func (f *prepared) showsDenials() bool { return f.local != nil && f.local.ShowsDenials() }

// carryOut carries the plan out: on this machine in stages, see [providers.LocalPlan].
func (f *flow) carryOut(ctx context.Context, stdio providers.Stdio) (result providers.Result, err error) {
	if f.local == nil {
		return f.plan.(providers.Runner).Run(ctx, stdio, observer{f})
	}
	bound, err := f.local.Bind(stdio, observer{f})
	if err != nil {
		return result, err
	}
	var last interface{ Close() error } = bound
	defer func() {
		if last != nil {
			if failed := last.Close(); failed != nil {
				err = errors.Join(err, failed)
			}
		}
	}()
	f.lower = bound.Lower
	if err = f.record(bound.Guarded()); err != nil {
		return result, err
	}
	run, err := bound.Clone()
	if err != nil {
		return result, err
	}
	f.machine, last = run, run
	pid, groups := run.Process()
	if err = cmp.Or(f.addToRecord(strconv.Itoa(pid)+"\n"), ctx.Err()); err != nil {
		return result, err
	}
	answers, err := run.Connect()
	if err != nil {
		return result, err
	}
	if err = run.Go(); err != nil {
		return result, err
	}
	f.unguarded = true // the command may run
	f.weakened(answers)
	warnings, err := run.Attend()
	for _, w := range warnings {
		observer{f}.Warning(w)
	}
	if err == nil {
		f.denials = run.Denials()
		err = f.guard(run)
	}
	if err != nil {
		return result, err
	}
	f.unguarded = false
	f.watchHere(pid, groups)
	alone := run.Follow(ctx, f.signals)
	f.killed = f.stop() // from here on the signals are for the post-run check
	patience := time.Duration(0)
	if !alone || f.killed { // whoever wanted the end does not wait for a reader that takes nothing
		messages.Hurry()
		patience = time.Second
	}
	if err := run.Drain(patience); err != nil {
		observer{f}.Warning(events.Warning{Text: messages.InWords(err)})
	}
	f.checkHere(run)
	last = nil
	result, notes, err := run.Result()
	for _, e := range notes {
		f.log.Emit(e)
	}
	return result, err
}

// record writes down what stands where the command may write, while pid 1 may be at work already.
func (f *flow) record(g *survey.Guarded) error {
	f.watched = g // as root it has descriptors by now
	if err := f.recordUnfinished(); err != nil {
		return err
	}
	if err := f.makeStubs(); err != nil {
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

// watchHere begins what goes on beside a command that is guarded.
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
	f.kept.tell()
	f.guarded.refused = run.Refused()
	f.left = f.lookBack()
	f.leaveHome()
	f.lost(run)
	f.removeAgentDirs()
	if f.upper {
		_, _ = f.summarized() // what goes wrong settleUpper says
	}
	f.settled()
}

// maxWithheld bounds the variables that are named at exit.
const maxWithheld = 10

// withheld names the variables that look like secrets and were not passed, where the policy wants
// to hear of attempts. Whether the command looked for them nobody can tell: it reads its memory.
func (f *flow) withheld() {
	if f.local == nil || !f.policy.Attempts {
		return
	}
	names := f.policy.Withheld(f.req.Host.Environ)
	if len(names) == 0 {
		return
	}
	more := ""
	if n := len(names) - maxWithheld; n > 0 {
		names, more = names[:maxWithheld], fmt.Sprintf(" and %d more", n)
	}
	text := "withheld from the environment: " + strings.Join(names, ", ") + more
	f.log.Emit(events.Warning{Text: text, Hint: "--env NAME passes one"})
	if !f.req.Quiet {
		messages.Say(text)
	}
}

// sayHidden prints which services of this machine the command has asked for, and what one that has failed could not see
// of what it names.
func (f *flow) sayHidden(end *providers.Result) {
	if f.local == nil {
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
	for i, h := range list {
		f.tell(h)
		if strings.HasPrefix(h.What, "connect ") {
			f.session.Keep("denials") // pccrun logs --denied shows it
		}
		switch {
		case f.req.Quiet, f.req.Learn, i > maxSaid: // learn prints all of them
		case i == maxSaid:
			messages.Say(fmt.Sprintf("hidden: %d more, see pccrun logs", len(list)-maxSaid))
		default:
			messages.Say(messages.Allow("hidden: "+h.What, h.Hint))
		}
	}
	// A refused open leaves no trace. Who has learned that once need not be told at each test that fails.
	refused, _ := f.log.Denied()
	if failed && end.Signal == 0 && refused == 0 && len(list) == 0 && f.uid != 0 && !f.req.Quiet && !f.req.Learn && sessions.In(f.dirs.State).Once(f.policy.Workspace) {
		messages.Say("no run records which files it was refused: pccrun learn -- COMMAND names them")
	}
}
