//go:build unix

package run

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// This is what a run says of itself: why it was refused, what it is exiting with,
// and its events.

// maxSaid bounds the lines on stderr of each kind.
const maxSaid = 10

const notChecked = "post-run check of a killed run: "

// The exit statuses of a run that are not the command's own.
const (
	timedOut      = 124
	notExecutable = 126
	notFound      = 127
)

// PrintRefusal prints why a command is not run, and returns the exit status that says so.
func PrintRefusal(err error) int {
	var several providers.MissingErrors
	if errors.As(err, &several) {
		last := len(several) - 1
		for _, one := range several[:last] {
			messages.Fail(messages.InWords(one))
		}
		return messages.Fail(messages.InWords(several[last]), several.Hint()) // one hint for all
	}
	for _, one := range profiles.Mistakes(err) {
		fix := profiles.Hint(one)
		switch {
		case fix != "":
		case errors.Is(one, state.ErrUnsafe):
			fix = UnsafeHint
		case errors.Is(one, unix.EMFILE):
			fix = pinnedHint
		}
		messages.Fail(messages.InWords(one), fix)
	}
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	switch {
	case errors.As(err, &absent):
		return execStatus(absent.Err)
	case errors.As(err, &exec):
		return execStatus(exec.Err)
	}
	return messages.Refused
}

// pinnedHint is for a launch that had no descriptor left.
const pinnedHint = "raise the hard limit of open files (ulimit -Hn): a launch opens each file that it protects"

// refuse ends a run whose command has not run, or of whose end nothing is known: it prints why, unless a signal ends the
// run, by which pccrun then goes, writes that to the events, and returns the exit status.
func (f *flow) refuse(err error) int {
	var interrupted *interruptedError
	code := 0
	if f.session != nil {
		f.session.Drop(sessions.KeepDetached) // who waits for the start hears it
	}
	if !errors.As(err, &interrupted) {
		code = PrintRefusal(err)
	} else if code = 128 + int(interrupted.signal); f.session != nil {
		f.session.Drop(sessions.LogName) // nothing was printed
	}
	if f.log == nil {
		if f.session != nil {
			_ = f.session.End(code) // it had begun: on a busy machine it is there by now
		}
		f.request.writeRefusal(code, err)
	} else {
		f.logPlan()
		f.log.Emit(refusedEvent(err))
		f.refusal = err.Error()
		code = (&ended{flow: f}).finish(code)
	}
	if interrupted != nil {
		closePlace(f.place)
		f.planner.removeAgentDirs()
		endBy(interrupted.signal)
	}
	return code
}

// discard ends the session of a run that another provider takes over, which says what is wrong
// there.
func (f *flow) discard() {
	if f.session == nil {
		return
	}
	f.session.Drop(sessions.LogName)
	f.session.Drop(sessions.KeepDetached)
	f.upper.kept = false
	f.upper.report()
	if f.log != nil {
		_ = f.log.Close(time.Second)
	}
	_ = errors.Join(f.session.Decide(), f.session.End(messages.Refused))
}

func refusedEvent(err error) events.Refused {
	e := events.Refused{Cause: err.Error(), Hint: profiles.Hint(err)}
	var missing *providers.MissingError
	if errors.As(err, &missing) {
		e.Guarantee = string(missing.Answer.Guarantee)
	}
	var uncounted *spending.UncountedError
	e.Uncounted = errors.As(err, &uncounted)
	return e
}

// refuse is the same before there is a session.
func (q *request) refuse(err error) int {
	code := PrintRefusal(err)
	q.writeRefusal(code, err)
	return code
}

// writeRefusal writes to the events that were asked for why the command is not run.
func (q *request) writeRefusal(code int, err error) {
	if q.req.Events == "" || q.req.DryRun {
		return
	}
	sink, bad := events.Target(q.req.Events, q.workspace)
	if bad != nil {
		return // which is the error that was printed, or the lesser one
	}
	log := events.NewLog(sessions.NewID(time.Now()), sink)
	log.Emit(events.Start{Version: q.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Provider: q.Name})
	log.Emit(refusedEvent(err))
	log.Emit(events.Exit{Code: code})
	if bad := log.Close(time.Second); bad != nil {
		messages.Say(bad.Error())
	}
}

func execStatus(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return notFound
	}
	return notExecutable
}

// report says how the command ended, ends the session, and returns the exit status.
func (e *ended) report() int {
	f := e.flow
	switch {
	case e.cause != nil && e.came == unguarded:
		return e.finish(messages.Fail(messages.InWords(e.cause)))
	case e.cause != nil:
		return f.refuse(e.cause)
	}
	code := e.status()
	e.survivors()
	if f.output.asker != nil && f.output.asker.Failed() != nil {
		messages.Say("flag --ask: the answer was not saved: " + f.output.asker.Failed().Error())
	}
	e.withheld()
	e.sayHidden()
	if relay := f.caught.relay.Load(); relay != nil && relay.Clipped() && !f.req.Quiet {
		messages.Say("clipboard: what the command wrote to it was filtered; select the text on the screen instead")
	}
	code = e.finish(code)
	f.home.giveBack(f.isLocal())
	if interrupted := e.killed || e.result.Signal == int(unix.SIGINT); interrupted && f.isLocal() && code == 128+int(unix.SIGINT) {
		closePlace(f.place)
		f.caught.endBy(unix.SIGINT) // a shell that runs us in a loop goes by that, and not by the status
	}
	return code
}

// status is what pccrun exits with.
func (e *ended) status() int {
	f, end := e.flow, e.result
	if end.Outlived() {
		messages.Fail(fmt.Sprintf("out of memory: the limit is %s, and the kernel killed %d processes", messages.SizeText(f.policy.Resources.Memory.Value), end.Kills), "--memory SIZE sets the limit")
	}
	for _, key := range end.Spent {
		switch key {
		case "disk":
			if !end.DiskFull {
				messages.Fail(fmt.Sprintf("disk full: private directories were full (the limit is %s)", messages.SizeText(f.policy.Resources.Disk.Value)), "--disk SIZE sets the limit")
			}
		case "pids":
			messages.Fail(fmt.Sprintf("out of processes: the limit of %d was reached", f.policy.Resources.Pids.Value), "--pids COUNT sets the limit")
		}
	}
	switch {
	case end.OOM && !end.Outlived():
		messages.Fail(fmt.Sprintf("out of memory: the limit is %s, and pccrun ended the sandbox", messages.SizeText(f.policy.Resources.Memory.Value)), "--memory SIZE sets the limit")
		return 128 + int(unix.SIGKILL)
	case end.DiskFull:
		messages.Fail("disk full: overlays, private directories and the home exceeded --disk, and pccrun ended the sandbox", "--disk SIZE sets the limit; the changes are kept")
		return 128 + int(unix.SIGKILL)
	case f.spent.over.Load() != nil:
		messages.Say("budget spent: " + *f.spent.over.Load())
		return timedOut
	case end.TimedOut:
		messages.Say("timed out after " + cmp.Or(f.policy.Resources.Deadline(), end.Wall.Round(time.Second)).String())
		return timedOut
	case e.killed:
		return 128 + int(unix.SIGINT)
	case end.Signal != 0:
		return 128 + end.Signal
	}
	return end.Code
}

// openLog makes the log of events. Nothing is written before the command runs.
func (f *flow) openLog() error {
	sinks := []events.Sink{f.session.Events()}
	if f.req.Events != "" {
		sink, err := events.Target(f.req.Events, f.policy.Workspace)
		if err != nil {
			return err
		}
		sinks = append(sinks, sink)
	}
	sinks = append(sinks, f.denialsSink()...)
	f.log = events.NewLog(f.session.ID(), sinks...)
	start := events.Start{
		Version: f.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Workspace: f.policy.Workspace, WorkDir: f.workDir,
		Profile: f.policy.Profile, Provider: f.Name, Without: profiles.Words(f.policy.Without), AllowMissing: profiles.Words(f.policy.AllowMissing),
	}
	f.log.Emit(start)
	return nil
}

// changeList is what the run changed, once it was looked at.
type changeList struct {
	changes sync.Mutex // over left while the command runs
	left    []events.Change
}

// printed is what was reported already, and is not reported again.
type printed struct {
	printedDenial atomic.Pointer[string] // the first refusal of the network, as it was printed when it happened; "" if it was not
	planLogged    bool                   // see logPlan
	refusal       string                 // why the run was refused
}

// logPlan writes down what is kept of the policy, once: when the sandbox stands,
// since all of it is known only then.
func (f *flow) logPlan() {
	if f.planLogged {
		return
	}
	f.planLogged = true
	plan := events.Plan{}
	for _, a := range f.answers {
		plan.Guarantees = append(plan.Guarantees, events.Guarantee{Name: string(a.Guarantee), State: a.State.String(), Mechanism: a.Mechanism, Cause: a.Cause})
	}
	f.log.Emit(plan)
	for _, w := range f.said {
		f.log.Emit(events.Warning{Text: w})
	}
}

// finish writes the last events, prints what was denied, and ends the session.
func (e *ended) finish(code int) int {
	f, end := e.flow, e.result
	if f.guard.failed {
		code = messages.Refused // a promise was not kept: no status of the command's says that
	}
	if f.upper.kept && end != nil {
		if _, err := f.upper.summarized(); err != nil {
			code = messages.Refused // the same: report says why
		}
	}
	total, distinct := f.log.Denied()
	exit := events.Exit{Code: code, Denials: total, Changed: f.left}
	if end != nil {
		exit.TimedOut, exit.OOM, exit.WallMS = end.TimedOut, end.OOM, end.Wall.Milliseconds()
		exit.UserMS, exit.SystemMS, exit.MaxMemory = end.User.Milliseconds(), end.System.Milliseconds(), end.Memory
		exit.ReadBytes, exit.WriteBytes, exit.IOBy, exit.PriceUSD = end.Read, end.Written, end.IOBy, end.Price
		exit.Processes = end.Processes
		if end.Signal != 0 {
			exit.Signal = unix.SignalName(unix.Signal(end.Signal))
		}
		if end.OOM {
			f.log.Emit(events.OOM{Limit: f.policy.Resources.Memory.Value, Kills: max(1, end.Kills)})
		}
		if end.TimedOut {
			f.log.Emit(events.Timeout{AfterMS: f.policy.Resources.Deadline().Milliseconds()})
		}
	}
	if total > 0 {
		f.session.Keep("denials")
		if !f.req.Quiet && !f.req.Learn { // which prints all of them
			sayDenied(distinct, f.printedDenial.Load())
		}
	}
	for i, line := range f.unreached.lines() {
		if i == 0 {
			f.session.Keep("unreached") // pccrun logs --net shows it
		}
		if !f.req.Quiet {
			messages.Say(line)
		}
	}
	f.log.Emit(exit)
	f.upper.report()
	err := errors.Join(f.session.Decide(), f.log.Close(time.Second), f.session.End(code))
	if err != nil && !f.req.Quiet {
		last := f.refusal // what kept the session from being written is found by each who ends it
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); line != last {
				messages.Say(line)
			}
			last = line
		}
	}
	f.output.sayResume()
	return code
}

// survivors makes a refusal of each process that wanted to outlive the command.
// Where a signal has ended the command it is about to end the others too.
func (e *ended) survivors() {
	end := e.result
	if end.Signal != 0 || end.Code > 128 {
		return
	}
	for _, name := range end.Survivors {
		e.flow.log.Emit(events.Denial{Guarantee: string(profiles.ProcNoSurvivors), What: atExit + name})
	}
}

// sayDenied sums the refusals up, each with what would allow it, but for the one that was printed already.
func sayDenied(distinct []events.DenialCount, printed *string) {
	var lines []string
	for _, d := range distinct {
		if text := DeniedText(d.Denial, d.Count); !PrintedApart(d.Denial) && (printed == nil || text != *printed) {
			lines = append(lines, text)
		}
	}
	sayFew(lines, "denied: %d more, see pccrun logs --denied")
}

// sayFew prints lines, and of more than maxSaid how many there are more, by a format for the number.
func sayFew(lines []string, more string) {
	for _, line := range lines[:min(len(lines), maxSaid)] {
		messages.Say(line)
	}
	if n := len(lines) - maxSaid; n > 0 {
		messages.Say(fmt.Sprintf(more, n))
	}
}
