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

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/state"
)

// This is what a run says of itself: why it was refused, what it is exiting with,
// and its events.

// The exit statuses of a run that are not the command's own.
const (
	timedOut      = 124
	notExecutable = 126
	notFound      = 127
)

// hinter is an error that knows what mends it.
type hinter interface{ Hint() string }

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
	hint := ""
	var h hinter
	if errors.As(err, &h) {
		hint = h.Hint()
	}
	var absent *native.ErrNotFound
	var exec *namespaces.ExecError
	code := messages.Refused
	switch {
	case errors.As(err, &absent):
		code = execStatus(absent.Err)
	case errors.As(err, &exec):
		code = execStatus(exec.Errno)
	case hint == "" && errors.Is(err, state.ErrUnsafe):
		hint = UnsafeHint
	case hint == "" && errors.Is(err, unix.EMFILE):
		hint = pinnedHint
	case hint == "":
		// What a kernel that is no good for a launch says may be anything.
		if err = namespaces.Unfit(err); !errors.As(err, &h) {
			return messages.FailWith(err)
		}
		hint = h.Hint()
	}
	messages.Fail(messages.InWords(err), hint)
	return code
}

// pinnedHint is for a launch that had no descriptor left.
const pinnedHint = "a higher hard limit of open files (ulimit -Hn): a launch holds one for each file that it pins"

// failed ends a launch that has made something: it takes that away, and says why, but
// where a signal ends it, by which it then goes.
func (l *launch) failed(err error) int {
	if e := l.run.Release(); e != nil {
		err = errors.Join(err, e)
	}
	var interrupted *interruptedError
	if !errors.As(err, &interrupted) {
		return l.refused(FailRun(err), err)
	}
	l.session.Drop(sessions.LogName) // nothing was printed
	code := l.refused(128+int(interrupted.signal), err)
	endBy(interrupted.signal)
	return code
}

// refused tells the events why the command was not run, and returns the status.
func (l *launch) refused(code int, err error) int {
	e := events.Refused{Cause: err.Error(), Hint: profiles.Hint(err)}
	var h hinter
	if errors.As(err, &h) {
		e.Hint = h.Hint()
	}
	var missing *providers.MissingError
	if errors.As(err, &missing) {
		e.Guarantee = string(missing.Answer.Guarantee)
	}
	if l.log != nil {
		l.tellPlan()
		l.log.Emit(e)
		l.told = err.Error()
		return l.ended(code, nil)
	}
	if l.session != nil {
		_ = l.session.End(code) // it had begun: on a busy machine it is there by now
	}
	if l.req.Events == "" || l.req.DryRun {
		return code
	}
	workspace := l.req.Host.Cwd
	if l.policy != nil {
		workspace = l.policy.Workspace
	}
	sink, bad := events.Target(l.req.Events, workspace)
	if bad != nil {
		return code // which is the error that was told, or the lesser one
	}
	log := events.NewLog(sessions.NewID(time.Now()), sink)
	log.Emit(events.Start{Version: l.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Provider: "native"})
	log.Emit(e)
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
func (l *launch) status(end *native.End, killed bool) int {
	if end.Outlived() {
		messages.Fail(fmt.Sprintf("out of memory: more than %s was wanted, and the kernel killed %d of the processes", messages.Mebibytes(end.Limit), end.Kills), "--memory SIZE sets the limit")
	}
	switch {
	case end.OOM && !end.Outlived():
		messages.Fail(fmt.Sprintf("out of memory: more than %s was used, and the sandbox was ended", messages.Mebibytes(end.Limit)), "--memory SIZE sets the limit")
		return 128 + int(unix.SIGKILL)
	case end.Full:
		messages.Fail("disk full: the overlays and private directories took more than --disk allows, and the sandbox was ended", "--disk SIZE sets the limit; what was changed is kept")
		return 128 + int(unix.SIGKILL)
	case end.TimedOut:
		messages.Say("timed out after " + l.policy.Resources.Deadline().String())
		return timedOut
	case killed:
		return 128 + int(unix.SIGINT)
	case end.Status.Signaled():
		return 128 + int(end.Status.Signal())
	}
	return end.Status.ExitStatus()
}

// openLog makes the log of events. Nothing is written before the command runs.
func (l *launch) openLog() error {
	sinks := []events.Sink{l.session.Events()}
	if l.req.Events != "" {
		sink, err := events.Target(l.req.Events, l.policy.Workspace)
		if err != nil {
			return err
		}
		sinks = append(sinks, sink)
	}
	if l.run.Tells() {
		sink := events.Denials(nil)
		sink.Wanted = func() bool { return l.denials != nil }
		sink.Open = func() (io.WriteCloser, error) {
			if l.denials == nil {
				return nil, events.ErrNotWanted
			}
			return l.denials, nil
		}
		sinks = append(sinks, sink)
	}
	l.log = events.NewLog(l.session.ID(), sinks...)
	start := events.Start{
		Version: l.program.Version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Workspace: l.policy.Workspace, WorkDir: l.run.Plan.Command.Dir,
		Profile: l.policy.Profile, Provider: "native", Without: layerNames(l.policy.Without), AllowMissing: guaranteeNames(l.policy.AllowMissing),
	}
	l.log.Emit(start)
	return nil
}

// tellPlan writes down what is kept of the policy, once: when the sandbox stands,
// since all of it is known only then.
func (l *launch) tellPlan() {
	if l.planTold {
		return
	}
	l.planTold = true
	plan := events.Plan{}
	for _, a := range l.run.Answers {
		plan.Guarantees = append(plan.Guarantees, events.Guarantee{Name: string(a.Guarantee), State: a.State.String(), Mechanism: a.Mechanism, Cause: a.Cause})
	}
	l.log.Emit(plan)
	for _, w := range append(slices.Clip(l.policy.Warnings), l.run.Warnings...) {
		l.log.Emit(events.Warning{Text: w})
	}
}

// What is said of connections that were reset because there were too many.
const (
	crowded     = "more connections at once than can be served: those beyond are reset"
	crowdedHint = "a higher hard limit of open files (ulimit -Hn): half of them can be connections, and no more than 10000"
)

// decided turns what the proxy did into events.
func (l *launch) decided(e netproxy.Event) {
	if e.Kind == netproxy.Full {
		if l.crowded.Add(1) == 1 {
			l.log.Emit(events.Warning{Text: crowded, Hint: crowdedHint})
			l.log.Start()
		}
		return
	}
	l.missed.heard(e)
	v := e.Verdict
	address := ""
	if v.Addr.IsValid() {
		address = v.Addr.String()
	}
	defer l.log.Start()
	if e.Kind == netproxy.Closed {
		closed := events.NetClosed{Host: v.Host, Port: int(v.Port), Address: address, Via: e.Protocol, Up: e.Up, Down: e.Down, DurationMS: e.Duration.Milliseconds()}
		if e.Err != nil { // nobody was there to read its requests
			closed.Error = e.Err.Error()
		}
		l.log.Emit(closed)
		return
	}
	d := events.NetDecision{
		Allowed: e.Kind != netproxy.Denied, Host: v.Host, Port: int(v.Port), Address: address, Upstream: e.Upstream, Via: e.Protocol, Request: e.Request, Rule: v.Rule, Hint: v.AllowWith,
	}
	if !d.Allowed {
		d.Guarantee = string(profiles.NetAllowlist)
		if e.Protocol == "dns" {
			d.Guarantee = string(profiles.NetDNS)
		}
		if d.Address != "" && d.Request == "" {
			d.Guarantee = string(profiles.NetAddress)
		}
		if v.Detail != "" && d.Rule == "" {
			d.Rule = v.Detail
		}
	}
	if e.Kind != netproxy.Failed || e.Request == "" { // a request was told of before it was sent
		l.log.Emit(d)
	}
	if e.Kind == netproxy.Failed {
		l.log.Emit(events.NetClosed{Host: d.Host, Port: d.Port, Address: address, Via: d.Via, DurationMS: time.Since(e.Time).Milliseconds(), Error: e.Err.Error()})
	}
}

// ended writes the last events, tells what was denied, and ends the session.
func (l *launch) ended(code int, end *native.End) int {
	l.survivors(end)
	l.attempts.end(end)
	l.learning.end(end)
	l.left = append(l.left, l.look()...) // of a run that was ended before it was followed
	if l.guarded.failed {
		code = messages.Refused // a promise was not kept: no status of the command's says that
	}
	if l.upper && end != nil {
		if _, err := l.noted(); err != nil {
			code = messages.Refused // the same: settleUpper says why
		}
	}
	l.paid()
	total, distinct := l.log.Denied()
	exit := events.Exit{Code: code, Denials: total, Changed: l.left}
	if end != nil {
		exit.TimedOut, exit.OOM, exit.WallMS = end.TimedOut, end.OOM, end.Wall.Milliseconds()
		exit.UserMS = time.Duration(end.Usage.Utime.Nano()).Milliseconds()
		exit.SystemMS = time.Duration(end.Usage.Stime.Nano()).Milliseconds()
		exit.MaxMemory = max(end.Peak, int64(end.Usage.Maxrss)<<10)
		exit.ReadBytes, exit.WriteBytes, exit.IOBy = end.Read, end.Written, end.IOBy
		exit.Processes = end.Tasks
		if end.Status.Signaled() {
			exit.Signal = unix.SignalName(end.Status.Signal())
		}
		if end.OOM {
			l.log.Emit(events.OOM{Limit: end.Limit, Kills: max(1, end.Kills)})
		}
		if end.TimedOut {
			l.log.Emit(events.Timeout{AfterMS: l.policy.Resources.Deadline().Milliseconds()})
		}
	}
	if l.asker != nil && l.asker.failed != nil {
		messages.Say("flag --ask: the answer is not written: " + l.asker.failed.Error())
	}
	if total > 0 {
		l.session.Keep("denials")
		if !l.req.Quiet {
			sayDenied(distinct)
		}
	}
	if !l.req.Quiet {
		l.missed.say()
	}
	l.sayHidden(code, end)
	if n := l.crowded.Load(); n > 0 && !l.req.Quiet {
		messages.Say(fmt.Sprintf("%s (%d times)", crowded, n))
		messages.Say("hint: " + crowdedHint)
	}
	l.attempts.withheld(end)
	l.log.Emit(exit)
	l.settleUpper()
	err := errors.Join(l.session.Settle(), l.log.Close(time.Second), l.session.End(code))
	l.run.Tidy()
	if err != nil && !l.req.Quiet {
		told := l.told // what kept the session from being written is found by each who ends it
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); line != told {
				messages.Say(line)
			}
			told = line
		}
	}
	return code
}

// survivors makes a refusal of each process that wanted to outlive the command.
// Where a signal has ended the command it is about to end the others too.
func (l *launch) survivors(end *native.End) {
	if end == nil || end.Status.Signaled() || end.Status.ExitStatus() > 128 {
		return
	}
	for _, name := range end.Survivors {
		l.log.Emit(events.Denial{Guarantee: string(profiles.ProcNoSurvivors), What: "leave behind the process " + name})
	}
}

// sayDenied sums the refusals up, each with what would allow it.
func sayDenied(distinct []events.DenialCount) {
	const most = 10
	distinct = slices.DeleteFunc(distinct, func(d events.DenialCount) bool {
		return strings.HasPrefix(d.What, "keep ") || strings.HasPrefix(d.What, "change ") // told as set aside, or as not changed
	})
	for i, d := range distinct {
		if i == most {
			messages.Say(fmt.Sprintf("denied: %d more, see pccrun denials", len(distinct)-most))
			break
		}
		text := "denied: " + d.What
		if d.Count > 1 {
			text += fmt.Sprintf(" (%d times)", d.Count)
		}
		if d.Hint != "" {
			text += ", allowed by " + d.Hint
		}
		messages.Say(text)
	}
}

func layerNames(list []profiles.Layer) []string {
	names := make([]string, len(list))
	for i, l := range list {
		names[i] = string(l)
	}
	return names
}

func guaranteeNames(list []profiles.Guarantee) []string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = string(g)
	}
	return names
}
