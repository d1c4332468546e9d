package run

import (
	"fmt"
	"os"
	"slices"
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
	"github.com/pccrun/pccrun/workspace"
	"github.com/pccrun/pccrun/workspace/changes"
)

// onMachine is what a run has beside the rest if its provider is this machine.
type onMachine struct {
	local   providers.LocalPlan // nil: it is elsewhere
	machine providers.Local     // once it runs
	stood   map[string][]string // names in the home, by directory, before the command

	watched *survey.Guarded // what the command may write of this machine's
	home    *homes.Home     // nil: it is not persistent

	agentDirs workspace.MadeDirs
	undecided []undecided
}

// found takes a survey in: what the command may write.
func (f *flow) found(s *survey.Survey) {
	f.hold(s)
	f.watched = &survey.Guarded{
		Policy: f.policy, Trees: append([]survey.Tree{{Query: s.Query, Found: s.Workspace}}, s.Trees...),
		Writes: func(path string) bool { return f.policy.Decide(path).Access == profiles.Write },
	}
}

// who is whose the files are that the command may write.
func who() (uid, gid int) {
	id := namespaces.WhoAmI()
	return id.HostUID, id.HostGID
}

// native reports whether the provider is this machine, and meets the flow at more points than others.
func (f *flow) native() bool { return f.Name == providers.Native }

// linuxNumber is a signal's number on Linux, by which providers know it.
func linuxNumber(sig unix.Signal) int { return int(sig) }

func (f *flow) takeTerminal(s *providers.Stdio) error { return f.takeSeat(s) }

func (f *flow) isLocal() bool { return f.local != nil }

// hasty reports whether nothing is made that would be left before [observer.Opened].
func (f *flow) hasty() bool {
	return f.local != nil && f.req.Events == "" && !f.req.Log && f.local.Bare()
}

// examine asks the provider what the plan has to know.
func (f *flow) examine(s *providers.Survey, c providers.Command) (providers.Facts, error) {
	if local, is := f.place.(providers.LocalProvider); is {
		return local.ExamineFor(f.policy, s, c, f.host())
	}
	return f.ask()
}

// furnish takes a plan in, and makes what it needs in the home.
func (f *flow) furnish() error {
	local, is := f.plan.(providers.LocalPlan)
	if !is {
		return nil
	}
	f.local, f.tells = local, local.Tells()
	f.watched = local.Guarded()
	if err := f.furnishHome(); err != nil {
		return err
	}
	return local.Judge()
}

// close takes away what is left of a run that has ended.
func (f *flow) close() {
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
	f.lower, f.upper, f.noted = f.local.Lower, true, sync.OnceValues(f.noteUpper)
	return nil
}

// Note writes an event down.
func (o observer) Note(e events.Event) {
	o.log.Emit(e)
	if w, is := e.(events.Warning); is && w.Hint != "" {
		o.log.Start()
	}
}

// Opened writes down what stands, while a copy of this process may be at work already.
func (o observer) Opened(g *survey.Guarded) error {
	f := o.flow
	f.watched = g // as root the plan has descriptors by now
	if f.caught == nil {
		f.caught = catch()
	}
	if err := f.recordUnfinished(); err != nil {
		return err
	}
	if err := f.makeStubs(); err != nil {
		return err
	}
	return f.caught.interrupted()
}

// Settled says how the place is less than was planned, if it is.
func (o observer) Settled(answers []profiles.Answer) {
	f := o.flow
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
	f.unlooked = true // until it is guarded: the command may run
	f.tellPlan()
}

// Running begins to look after the command.
func (o observer) Running(run providers.Local) error {
	f := o.flow
	f.machine = run
	f.denials = run.Denials()
	if err := f.guard(run); err != nil {
		return err
	}
	f.unlooked = false
	if f.req.Events != "" {
		f.log.Start() // who reads them learns from the first which session this is
	}
	time.AfterFunc(logAfter, f.log.Start) // so that pccrun logs shows a run in which nothing has happened
	time.AfterFunc(restAfter, rest)
	f.begun(f.caught.relay.Load() == nil)
	pid, groups := run.Process()
	_ = f.session.Update(func(i *sessions.Info) {
		i.Sandbox = sessions.Process{Pid: pid}
		i.Cgroups = groups
	})
	return nil
}

// Ended leaves the signals to whoever looks back. Whoever wanted the end does not wait for a
// reader that takes nothing.
func (o observer) Ended(alone bool) (patience time.Duration) {
	if o.flow.killed = o.stop(); alone && !o.flow.killed {
		return 0
	}
	messages.Hurry()
	return time.Second
}

// Gone looks at what the run left.
func (o observer) Gone() {
	f := o.flow
	f.kept.tell()
	f.guarded.refused = f.machine.Refused()
	f.left = f.lookBack()
	f.leaveHome()
	f.lost(f.machine)
	f.removeAgentDirs()
	if f.upper {
		_, _ = f.noted() // what goes wrong settleUpper says
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
	list := f.local.Hidden(failed)
	if failed && f.uid != 0 { // root's rights are gone by now
		for _, name := range taken(f.policy.Workspace, f.workDir, f.local.Unreadable()) {
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
