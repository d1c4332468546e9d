package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/netproxy"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/state"
	"github.com/pccrun/pccrun/terminal"
)

// The exit statuses of a run that are not the command's own.
const (
	timedOut      = 124
	notExecutable = 126
	notFound      = 127
)

// runVerb runs what the request asks for and returns the status to exit with.
func runVerb(req profiles.Request) int {
	if req.Provider != "" && req.Provider != "native" && req.Provider != "auto" {
		return fail("provider "+quote(req.Provider)+": not built yet", "--provider native")
	}
	// The order is the launch's: what the command will hold is judged before
	// anything is cloned, and the kernel makes the namespaces while the
	// policy is read. Flags that change the namespaces wait for the policy.
	if req.From != "" {
		if err := fromSnapshot(&req); err != nil {
			return failUsage(err)
		}
	}
	if err := namespaces.JudgePassed(req.PassFDs); err != nil {
		return fail(err.Error())
	}
	stdio, err := namespaces.JudgeStdio(req.Log)
	if err != nil {
		return fail(err.Error())
	}
	r := &launch{req: &req, stdio: stdio}
	if why := r.cannotAsk(); req.Ask && why != "" {
		return fail(why, "--allow RULE names what may be reached")
	}
	var box *namespaces.Sandbox
	if !req.DryRun && !req.Nested && len(req.Without) == 0 && os.Getuid() != 0 {
		if box, err = namespaces.Begin(namespaces.Shell{Identity: namespaces.WhoAmI()}); err != nil {
			return fail(err.Error())
		}
	}
	if code := r.plan(); code != 0 || req.DryRun {
		if box != nil {
			box.Close()
		}
		return code
	}
	if slices.Contains(r.policy.Without, profiles.LayerTTY) {
		stdio.HandIn()
	}
	if box != nil && (r.run.Plan.Nested || r.run.Born()) {
		box.Close()
		box = nil
	}
	if err := r.prepare(box); err != nil {
		if box != nil {
			box.Close()
		}
		return r.refused(failRun(err), err)
	}
	if box == nil {
		shell, err := r.run.Shell()
		if err == nil {
			box, err = namespaces.Begin(shell)
		}
		if err != nil {
			err = errors.Join(err, r.run.Release())
			return r.refused(failRun(err), err)
		}
	}
	return r.start(box)
}

// launch is one run, from the request to the exit status.
type launch struct {
	req      *profiles.Request
	stdio    *namespaces.Stdio
	policy   *profiles.Policy
	run      *native.Run
	dirs     state.Dirs
	session  *sessions.Session
	log      *events.Log
	secrets  *native.Secrets
	asker    *asker
	denials  *os.File
	guarded  guarded
	kept     *transcript     // of what the command prints, if that is wanted
	left     []events.Change // what the run changed, once it was looked at
	attempts attempts
	learning learning
	tries    int
	upper    bool // the session holds what overlays change
}

// plan reads the policy and plans the run, and says what the user should hear.
func (l *launch) plan() int {
	policy, err := profiles.Resolve(*l.req)
	if err != nil {
		return l.refused(failWith(err), err)
	}
	l.policy = policy
	if l.req.Learn {
		policy.Attempts = false // its traces stand where the command would find nothing
	}
	if l.dirs, err = state.Find(l.req.Host.Getenv, policy.Home); err != nil {
		return fail(err.Error())
	}
	for _, dir := range [...]string{l.dirs.State, l.dirs.Cache} {
		if err := state.Outside(dir, policy.Workspace); err != nil {
			return fail(err.Error())
		}
	}
	settle(sessions.In(l.dirs.State))
	if !l.req.DryRun {
		for _, dir := range policy.Own {
			root, err := state.Open(dir, policy.Workspace)
			if err != nil {
				return fail(err.Error())
			}
			root.Close()
		}
	}
	if !l.req.DryRun {
		l.secrets = new(native.Secrets)
	}
	if l.req.Ask {
		l.asker = &asker{profile: policy.Profile, config: l.dirs.Config, work: policy.Workspace, root: os.Getuid() == 0, ready: make(chan struct{})}
	}
	if err := l.survey(nil); err != nil {
		return l.refused(failRun(err), err)
	}
	if l.req.DryRun {
		return printPlan(l.run, l.req.JSON)
	}
	for _, w := range policy.Without {
		say("layer " + string(w) + " is off: --without")
	}
	for _, g := range policy.AllowMissing {
		say("guarantee " + string(g) + " may be missing: --allow-missing")
	}
	if l.req.Quiet {
		return 0
	}
	for _, w := range policy.Warnings {
		say(w)
	}
	for _, w := range l.run.Warnings {
		say(w)
	}
	if l.req.Verbose || policy.PickedBy != "default" || policy.Workspace != policy.WorkDir {
		say("profile " + policy.Profile + " (" + policy.PickedBy + "), workspace " + policy.Workspace)
	}
	return 0
}

// maxTries bounds how often a launch begins anew because what it had found was
// gone, or another file, by the time that it was needed.
const maxTries = 8

// survey plans the run, after what went wrong before, if anything did. Somebody
// else works in the same place, a second run perhaps, which sets things aside:
// what was found may be gone the next moment. An error that is not of that kind
// is returned, and so is any once the session says what the overlays lie on.
func (l *launch) survey(before error) error {
	err := before
	for err == nil || stale(err) && l.tries < maxTries && !l.upper {
		if err != nil {
			l.tries++
			time.Sleep(time.Duration(l.tries) * time.Millisecond)
		}
		var run *native.Run
		run, err = native.New(l.policy, native.Host{Environ: l.req.Host.Environ, IndexDir: l.dirs.Cache, StateDir: l.dirs.State, Secrets: l.secrets, Ask: l.ask(), Learn: l.hear()}, l.req.Command)
		if err == nil {
			l.run = run // else the run before, if there was one, is what has to be ended
			return l.run.Plan.AddPassed(l.req.PassFDs)
		}
	}
	return err
}

// stale reports whether an error says that a path is not what it was.
func stale(err error) bool {
	var absent *native.ErrNotFound
	var exec *namespaces.ExecError
	if errors.As(err, &absent) || errors.As(err, &exec) {
		return false
	}
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESTALE) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// prepare does what only root may, if that is who we are, and stops being
// root: everything that the run will need must be open by then. A sandbox that
// was begun gets the plan as soon as it is whole.
func (l *launch) prepare(box *namespaces.Sandbox) error {
	l.session = sessions.In(l.dirs.State).Begin(sessions.Info{
		Version: version, Argv: os.Args, Workspace: l.policy.Workspace, Profile: l.policy.Profile, Provider: "native",
		Without: layerNames(l.policy.Without), AllowMissing: guaranteeNames(l.policy.AllowMissing),
	})
	if err := l.openLog(); err != nil {
		return err
	}
	if err := l.keepOutput(); err != nil {
		return err
	}
	if err := l.run.StartInspector(wholeProgram); err != nil {
		return err
	}
	if err := l.makeUpper(); err != nil {
		return err
	}
	if !l.run.Plan.Identity.Root {
		if box != nil {
			box.Feed(l.run.Plan, l.stdio)
		}
		return l.owe()
	}
	// What the launcher still writes there, it writes as the identity.
	id := l.run.Plan.Identity
	if err := l.session.Hand(id.HostUID, id.HostGID); err != nil {
		return err
	}
	err := l.run.Donate()
	for err != nil {
		if err := l.survey(err); err != nil {
			return err
		}
		err = l.run.Donate()
	}
	if err := l.handUpper(id); err != nil {
		return err
	}
	if err := l.owe(); err != nil {
		return err
	}
	return l.run.Shed(l.session.Path())
}

// hinter is an error that knows what mends it.
type hinter interface{ Hint() string }

// failRun prints why a run did not begin, and returns the status that says so.
func failRun(err error) int {
	hint := ""
	var h hinter
	if errors.As(err, &h) {
		hint = h.Hint()
	}
	var absent *native.ErrNotFound
	var exec *namespaces.ExecError
	code := refused
	switch {
	case errors.As(err, &absent):
		code = execStatus(absent.Err)
	case errors.As(err, &exec):
		code = execStatus(exec.Errno)
	case hint == "":
		// What a kernel that is no good for a launch says may be anything.
		if err = namespaces.Unfit(err); !errors.As(err, &h) {
			return failWith(err)
		}
		hint = h.Hint()
	}
	fail(err.Error(), hint)
	return code
}

// refused tells the events why the command was not run, and returns the status.
func (l *launch) refused(code int, err error) int {
	e := events.Refused{Cause: err.Error()}
	var h hinter
	if errors.As(err, &h) {
		e.Hint = h.Hint()
	}
	var missing *native.MissingError
	if errors.As(err, &missing) {
		e.Guarantee = string(missing.Answer.Guarantee)
	}
	if l.log != nil {
		l.log.Emit(e)
		return l.ended(code, nil)
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
	log.Emit(events.Start{Version: version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Provider: "native"})
	log.Emit(e)
	log.Emit(events.Exit{Code: code})
	if bad := log.Close(time.Second); bad != nil {
		say(bad.Error())
	}
	return code
}

func execStatus(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return notFound
	}
	return notExecutable
}

// start sets the run going and follows it to its end.
func (l *launch) start(box *namespaces.Sandbox) int {
	started, err := l.begin(box)
	for err != nil && stale(err) && !l.run.Plan.Identity.Root {
		l.paid()
		l.run.Abandon()
		if err = l.survey(err); err != nil {
			break
		}
		if err = l.owe(); err != nil {
			break
		}
		if err = l.run.StartInspector(wholeProgram); err != nil {
			break
		}
		var shell namespaces.Shell
		if shell, err = l.run.Shell(); err != nil {
			break
		}
		if box, err = namespaces.Begin(shell); err != nil {
			break
		}
		started, err = l.begin(box)
	}
	if err != nil {
		return l.refused(failRun(err), err)
	}
	if a, is := started.Weaker(); is && !l.req.Quiet {
		say("guarantee " + string(a.Guarantee) + ": " + a.State.String() + ": " + a.Cause)
	}
	if started.Unreported && !l.req.Quiet {
		say("refused writes are not reported: system calls have a supervisor already, around this pccrun")
	}
	if l.run.Tells() {
		// The file must be there before the command can look; the log is
		// written to it as it grows.
		if f, err := started.Create(native.DenialsPath); err == nil {
			l.denials = f
		} else {
			say(err.Error())
		}
	}
	drain := l.stdio.Run()
	relay, err := l.relay(started)
	if err == nil && relay != nil && l.asker != nil {
		l.asker.relay = relay
		close(l.asker.ready)
	}
	if err == nil {
		err = l.guard(started)
	}
	if err != nil {
		started.Kill()
		started.Wait(func(unix.Signal) {})
		return l.ended(fail(err.Error()), nil)
	}
	stop := l.forward(started, relay)
	l.session.Update(func(i *sessions.Info) {
		i.Sandbox = sessions.Process{Pid: started.Pid}
		i.Cgroups = started.Cgroups()
	})
	killed := false
	started.Gone = func(r *namespaces.Result) {
		killed = stop()
		if relay != nil {
			relay.Wait()
			relay.Close()
		}
		// Whoever wanted the end does not wait for a reader that takes nothing.
		patience := time.Duration(0)
		if killed || r.TimedOut || r.Status.Signaled() {
			patience = time.Second
		}
		if err := drain(patience); err != nil {
			say(err.Error())
		}
		l.kept.tell()
		l.left = l.look()
		l.paid()
	}
	end, err := started.Wait(func(sig unix.Signal) { l.stopped(started, relay, sig) })
	if err != nil {
		return l.refused(failRun(err), err)
	}
	return l.ended(l.status(end, killed), end)
}

// begin starts the run in a sandbox that was begun.
func (l *launch) begin(box *namespaces.Sandbox) (*native.Started, error) {
	if d := l.guarded.debt; d != nil {
		box.Cloned = func(pid int) error { return d.Add(strconv.Itoa(pid) + "\n") }
	}
	l.attempts.begin(l)
	l.learning.begin(l)
	return l.run.Start(box, l.stdio, l.decided)
}

// relay joins the command's terminal to the host's, if it has one.
func (l *launch) relay(s *native.Started) (*terminal.Relay, error) {
	if s.Master == nil {
		return nil, nil
	}
	return terminal.Start(terminal.Options{Terminal: l.stdio.Host, Master: s.Master, Lazy: l.stdio.Background, Log: l.stdio.Log})
}

// stopped is called when the command was stopped, by Ctrl-Z or because it
// wants the keys.
func (l *launch) stopped(s *native.Started, relay *terminal.Relay, sig unix.Signal) {
	switch {
	case relay == nil, l.guarded.frozen.Load():
		return
	case sig == unix.SIGTTIN || sig == unix.SIGTTOU:
		if relay.Foreground() != nil {
			return
		}
	case relay.Suspend() != nil:
		return
	}
	s.Resume(relay.Active())
}

// status is what pccrun exits with.
func (l *launch) status(end *native.End, killed bool) int {
	if end.Outlived() {
		fail(fmt.Sprintf("out of memory: more than %s was wanted, and the kernel killed %d of the processes", mebibytes(end.Limit), end.Kills), "--memory SIZE sets the limit")
	}
	switch {
	case end.OOM && !end.Outlived():
		say(fmt.Sprintf("out of memory: more than %s was used, and the sandbox was ended", mebibytes(end.Limit)))
		fail("--memory SIZE sets the limit")
		return 128 + int(unix.SIGKILL)
	case end.Full:
		fail("disk full: the overlays and private directories took more than --disk allows, and the sandbox was ended", "--disk SIZE sets the limit; what was changed is kept")
		return 128 + int(unix.SIGKILL)
	case end.TimedOut:
		say("timed out after " + l.policy.Resources.Deadline().String())
		return timedOut
	case killed:
		return 128 + int(unix.SIGINT)
	case end.Status.Signaled():
		return 128 + int(end.Status.Signal())
	}
	return end.Status.ExitStatus()
}

func mebibytes(n int64) string { return strconv.FormatInt(n>>20, 10) + " MiB" }

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
		Version: version, Pid: os.Getpid(), Argv: events.Redact(os.Args), Workspace: l.policy.Workspace, WorkDir: l.run.Plan.Command.Dir,
		Profile: l.policy.Profile, Provider: "native", Without: layerNames(l.policy.Without), AllowMissing: guaranteeNames(l.policy.AllowMissing),
	}
	l.log.Emit(start)
	plan := events.Plan{}
	for _, a := range l.run.Answers {
		plan.Guarantees = append(plan.Guarantees, events.Guarantee{Name: string(a.Guarantee), State: a.State.String(), Mechanism: a.Mechanism, Cause: a.Cause})
	}
	l.log.Emit(plan)
	for _, w := range append(slices.Clip(l.policy.Warnings), l.run.Warnings...) {
		l.log.Emit(events.Warning{Text: w})
	}
	return nil
}

// decided turns what the proxy did into events.
func (l *launch) decided(e netproxy.Event) {
	if e.Kind == netproxy.Full {
		return
	}
	v := e.Verdict
	address := ""
	if v.Addr.IsValid() {
		address = v.Addr.String()
	}
	defer l.log.Start()
	if e.Kind == netproxy.Closed {
		l.log.Emit(events.NetClosed{Host: v.Host, Port: int(v.Port), Address: address, Via: e.Protocol, Up: e.Up, Down: e.Down, DurationMS: e.Duration.Milliseconds()})
		return
	}
	d := events.NetDecision{
		Allowed: e.Kind != netproxy.Denied, Host: v.Host, Port: int(v.Port), Address: address, Via: e.Protocol, Request: e.Request, Rule: v.Rule, Hint: v.AllowWith,
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
		code = refused // a promise was not kept: no status of the command's says that
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
		say("flag --ask: the answer is not written: " + l.asker.failed.Error())
	}
	if total > 0 {
		l.session.Keep("denials")
		if !l.req.Quiet {
			sayDenied(total, distinct)
		}
	}
	l.attempts.withheld(end)
	l.log.Emit(exit)
	err := errors.Join(l.settleUpper(), l.session.Settle())
	err = errors.Join(err, l.log.Close(time.Second), l.session.End(code))
	l.run.Tidy()
	if err != nil && !l.req.Quiet {
		told := "" // what kept the session from being written is found by each who ends it
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); line != told {
				say(line)
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
func sayDenied(total int64, distinct []events.DenialCount) {
	const most = 10
	distinct = slices.DeleteFunc(distinct, func(d events.DenialCount) bool { return strings.HasPrefix(d.What, "keep ") }) // told as set aside
	for i, d := range distinct {
		if i == most {
			say(fmt.Sprintf("denied: %d more, see pccrun logs", len(distinct)-most))
			break
		}
		text := "denied: " + d.What
		if d.Count > 1 {
			text += fmt.Sprintf(" (%d times)", d.Count)
		}
		if d.Hint != "" {
			text += ", allowed by " + d.Hint
		}
		say(text)
	}
	_ = total
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
