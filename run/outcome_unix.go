//go:build unix

package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// This is what a run says of itself: why it was refused, what it is exiting with,
// and its events.

// maxSaid bounds the lines on stderr of each kind.
const maxSaid = 10

const unsettled = "post-run check of a killed run: "

// The exit statuses of a run that are not the command's own.
const (
	timedOut      = 124
	notExecutable = 126
	notFound      = 127
)

// FailRun prints why a run did not begin, and returns the status that says so.
func FailRun(err error) int {
	var several providers.MissingErrors
	if errors.As(err, &several) {
		last := len(several) - 1
		for _, one := range several[:last] {
			messages.Fail(messages.InWords(one))
		}
		return messages.Fail(messages.InWords(several[last]), several.Hint()) // one hint for all
	}
	hint := profiles.Hint(err)
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	code := messages.Refused
	switch {
	case errors.As(err, &absent):
		code = execStatus(absent.Err)
	case errors.As(err, &exec):
		code = execStatus(exec.Err)
	case hint == "" && errors.Is(err, state.ErrUnsafe):
		hint = UnsafeHint
	case hint == "" && errors.Is(err, unix.EMFILE):
		hint = pinnedHint
	case hint == "":
		return messages.FailWith(err)
	}
	messages.Fail(messages.InWords(err), hint)
	return code
}

// pinnedHint is for a launch that had no descriptor left.
const pinnedHint = "raise the hard limit of open files (ulimit -Hn): a launch opens each file that it protects"

// refused writes to the events why the command was not run, and returns the status.
func (f *flow) refused(code int, err error) int {
	if f.log != nil {
		f.logPlan()
		f.log.Emit(refusedEvent(err))
		f.refusal = err.Error()
		return f.finish(code, nil)
	}
	if f.session != nil {
		_ = f.session.End(code) // it had begun: on a busy machine it is there by now
	}
	return f.request.refused(code, err)
}

func refusedEvent(err error) events.Refused {
	e := events.Refused{Cause: err.Error(), Hint: profiles.Hint(err)}
	var missing *providers.MissingError
	if errors.As(err, &missing) {
		e.Guarantee = string(missing.Answer.Guarantee)
	}
	return e
}

// refused is the same before there is a session.
func (q *request) refused(code int, err error) int {
	if q.req.Events == "" || q.req.DryRun {
		return code
	}
	sink, bad := events.Target(q.req.Events, q.workspace)
	if bad != nil {
		return code // which is the error that was printed, or the lesser one
	}
	log := events.NewLog(sessions.NewID(time.Now()), sink)
	log.Emit(events.Start{Version: q.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Provider: q.Name})
	log.Emit(refusedEvent(err))
	log.Emit(events.Exit{Code: code})
	if bad := log.Close(time.Second); bad != nil {
		messages.Say(bad.Error())
	}
	return code
}

func execStatus(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return notFound
	}
	return notExecutable
}

// status is what pccrun exits with.
func (f *flow) status(end *providers.Result, killed bool) int {
	if end.Outlived() {
		messages.Fail(fmt.Sprintf("out of memory: the limit is %s, and the kernel killed %d processes", messages.Mebibytes(f.policy.Resources.Memory.Value), end.Kills), "--memory SIZE sets the limit")
	}
	for _, key := range end.Spent {
		switch key {
		case "disk":
			if !end.DiskFull {
				messages.Fail(fmt.Sprintf("disk full: private directories were full (the limit is %s)", messages.Mebibytes(f.policy.Resources.Disk.Value)), "--disk SIZE sets the limit")
			}
		case "pids":
			messages.Fail(fmt.Sprintf("out of processes: the limit of %d was reached", f.policy.Resources.Pids.Value), "--pids COUNT sets the limit")
		}
	}
	switch {
	case end.OOM && !end.Outlived():
		messages.Fail(fmt.Sprintf("out of memory: the limit is %s, and pccrun ended the sandbox", messages.Mebibytes(f.policy.Resources.Memory.Value)), "--memory SIZE sets the limit")
		return 128 + int(unix.SIGKILL)
	case end.DiskFull:
		messages.Fail("disk full: overlays, private directories and the home exceeded --disk, and pccrun ended the sandbox", "--disk SIZE sets the limit; the changes are kept")
		return 128 + int(unix.SIGKILL)
	case end.TimedOut:
		messages.Say("timed out after " + f.policy.Resources.Deadline().String())
		return timedOut
	case killed:
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
	if f.showsDenials() {
		sink := events.Denials(nil)
		sink.Wanted = func() bool { return f.denials != nil }
		sink.Open = func() (io.WriteCloser, error) {
			if f.denials == nil {
				return nil, events.ErrNotWanted
			}
			return f.denials, nil
		}
		sinks = append(sinks, sink)
	}
	f.log = events.NewLog(f.session.ID(), sinks...)
	start := events.Start{
		Version: f.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Workspace: f.policy.Workspace, WorkDir: f.workDir,
		Profile: f.policy.Profile, Provider: f.Name, Without: profiles.Words(f.policy.Without), AllowMissing: profiles.Words(f.policy.AllowMissing),
	}
	f.log.Emit(start)
	return nil
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
	for _, w := range f.allWarnings() {
		f.log.Emit(events.Warning{Text: w})
	}
}

// finish writes the last events, prints what was denied, and ends the session.
func (f *flow) finish(code int, end *providers.Result) int {
	f.left = append(f.left, f.lookBack()...) // of a run that was ended before it was followed
	if f.guarded.failed {
		code = messages.Refused // a promise was not kept: no status of the command's says that
	}
	if f.upper && end != nil {
		if _, err := f.summarized(); err != nil {
			code = messages.Refused // the same: settleUpper says why
		}
	}
	f.settled()
	total, distinct := f.log.Denied()
	exit := events.Exit{Code: code, Denials: total, Changed: f.left}
	if end != nil {
		exit.TimedOut, exit.OOM, exit.WallMS = end.TimedOut, end.OOM, end.Wall.Milliseconds()
		exit.UserMS, exit.SystemMS, exit.MaxMemory = end.User.Milliseconds(), end.System.Milliseconds(), end.Memory
		exit.ReadBytes, exit.WriteBytes, exit.IOBy = end.Read, end.Written, end.IOBy
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
			f.sayDenied(distinct)
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
	f.settleUpper()
	err := errors.Join(f.session.Settle(), f.log.Close(time.Second), f.session.End(code))
	if err != nil && !f.req.Quiet {
		last := f.refusal // what kept the session from being written is found by each who ends it
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); line != last {
				messages.Say(line)
			}
			last = line
		}
	}
	f.sayResume()
	return code
}

// survivors makes a refusal of each process that wanted to outlive the command.
// Where a signal has ended the command it is about to end the others too.
func (f *flow) survivors(end *providers.Result) {
	if end == nil || end.Signal != 0 || end.Code > 128 {
		return
	}
	for _, name := range end.Survivors {
		f.log.Emit(events.Denial{Guarantee: string(profiles.ProcNoSurvivors), What: atExit + name})
	}
}

// sayDenied sums the refusals up, each with what would allow it.
func (f *flow) sayDenied(distinct []events.DenialCount) {
	const most = 10
	distinct = slices.DeleteFunc(distinct, func(d events.DenialCount) bool { return PrintedApart(d.Denial) })
	for i, d := range distinct {
		if i == most {
			messages.Say(fmt.Sprintf("denied: %d more, see pccrun logs --denied", len(distinct)-most))
			break
		}
		if text := DeniedText(d.Denial, d.Count); f.printedDenial.Load() == nil || text != *f.printedDenial.Load() {
			messages.Say(text)
		}
	}
}
