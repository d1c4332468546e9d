package run

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/namespaces/inside"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/survey"
	"github.com/pccrun/pccrun/terminal"
)

// Run runs what the request asks for and returns the status to exit with.
func Run(req profiles.Request, program Program) int {
	if text, hint := starved(); text != "" {
		return messages.Fail(text, hint)
	}
	// The order is the launch's: what the command will hold is judged before
	// anything is cloned, and the kernel makes the namespaces while the
	// policy is read. Flags that change the namespaces wait for the policy.
	c, err := choose(&req)
	if err != nil {
		return messages.Fail(messages.InWords(err), Hint(err))
	}
	if (req.Runtime != "" || req.DockerImage != "") && c.Name != "docker" {
		return messages.Fail("flags --runtime and --docker-image: the provider is "+c.Name, "--provider docker")
	}
	if c.Name != providers.Native {
		if program.Become != nil {
			return program.Become()
		}
		code, _ := runElsewhere(&req, program, c)
		return code
	}
	if req.From != "" {
		if err := fromSnapshot(&req); err != nil {
			return messages.FailUsage(err)
		}
	}
	if err := namespaces.JudgePassed(req.PassFDs); err != nil {
		return messages.Fail(messages.InWords(err))
	}
	stdio, err := namespaces.JudgeStdio(req.Log)
	if err != nil {
		return messages.Fail(messages.InWords(err))
	}
	r := &launch{flow: flow{program: program, req: &req, provider: providers.Native}, stdio: stdio}
	if why := r.cannotAsk(); req.Ask && why != "" {
		return messages.Fail(why, "--allow RULE names what may be reached")
	}
	var box *namespaces.Sandbox
	if !req.DryRun && !req.Nested && len(req.Without) == 0 && os.Getuid() != 0 {
		if box, err = namespaces.Begin(namespaces.Shell{Identity: namespaces.WhoAmI()}); err != nil {
			return messages.Fail(messages.InWords(err))
		}
	}
	r.auto = c.auto
	defer r.removeAgentDirs()
	if code := r.plan(); code != 0 || req.DryRun || r.passed != nil {
		if box != nil {
			box.Close()
		}
		if r.passed != nil {
			return r.next()
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
		return r.failed(err)
	}
	if box == nil {
		shell, err := r.run.Shell()
		if err == nil {
			box, err = namespaces.Begin(shell)
		}
		if err != nil {
			return r.failed(err)
		}
	}
	return r.start(box)
}

// launch is one run on this machine, from the request to the exit status.
type launch struct {
	flow
	stdio    *namespaces.Stdio
	run      *native.Run
	stood    map[string][]string // names in the home, by directory, before the command
	caught   *catcher
	secrets  *native.Secrets
	asker    *asker
	attempts attempts
	learning learning
	tries    int
	auto     bool  // another provider may be taken
	passed   error // why this machine is not
}

// plan reads the policy and plans the run, and says what the user should hear.
func (l *launch) plan() int {
	if code := l.resolve(); code != 0 {
		return code
	}
	policy := l.policy
	if !l.req.DryRun {
		l.secrets = new(native.Secrets)
	}
	if l.req.Ask {
		l.asker = &asker{profile: policy.Profile, config: l.dirs.Config, work: policy.Workspace, root: os.Getuid() == 0, ready: make(chan struct{})}
	}
	switch { // a launch is not slow, or gives up, but where others have to be asked
	case l.req.DryRun:
		defer messages.Slow("looking through " + policy.Workspace)()
	case slices.ContainsFunc(policy.Network.Allow, func(r profiles.NetRule) bool { return strings.HasPrefix(r.Text, "@") }):
		defer messages.Slow("asking package managers for their hosts")()
	}
	if err := l.openHome(); err != nil {
		return l.refused(FailRun(err), err)
	}
	l.makeAgentDirs()
	if err := l.survey(nil); err != nil {
		if l.auto && isMissing(err) {
			l.passed = err
			return 0
		}
		return l.refused(FailRun(err), err)
	}
	if l.req.DryRun {
		return PrintPlan(l.run, l.req.JSON)
	}
	l.announce()
	return 0
}

// next takes the first other provider of this machine that keeps what the policy requires,
// since this machine itself does not. It never takes a cloud: no file leaves by surprise.
func (l *launch) next() int {
	if l.program.Become != nil {
		return l.program.Become()
	}
	why := []string{"provider native: " + messages.InWords(l.passed)}
	for _, k := range providers.Known() {
		if k.Name == providers.Native || k.Cloud {
			continue
		}
		if _, err := l.program.build(k, l.req, providers.Host{Environ: l.req.Host.Environ, StateDir: l.dirs.State, CacheDir: l.dirs.Cache}); err != nil {
			why = append(why, messages.InWords(err))
			continue
		}
		code, passed := runElsewhere(l.req, l.program, choice{Kind: k, by: "--provider auto: " + strings.Join(why, "; "), auto: true})
		if passed == nil {
			return code
		}
		why = append(why, "provider "+k.Name+": "+messages.InWords(passed))
	}
	for _, text := range why[1:] {
		messages.Say(text)
	}
	return l.refused(FailRun(l.passed), l.passed)
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
		var looked *survey.Survey
		var paths []string
		if looked, paths, err = l.look(l.req.Ask || l.req.Learn); err != nil {
			continue
		}
		host := native.Host{Environ: l.req.Host.Environ, StateDir: l.dirs.State, Secrets: l.secrets, Ask: l.ask(), Learn: l.hear()}
		if run, err = native.New(l.policy, looked, paths, host, l.req.Command); err == nil {
			l.run = run // else the run before, if there was one, is what has to be ended
			l.watched, l.answers, l.warnings, l.workDir, l.tells = run.Guarded(), run.Answers, run.Warnings, run.Plan.Command.Dir, run.Tells()
			if err := l.furnish(); err != nil {
				return err
			}
			if err := l.run.Plan.JudgeHanded(l.stdio); err != nil {
				return err
			}
			return l.run.Plan.AddPassed(l.req.PassFDs)
		}
	}
	return err
}

// stale reports whether an error says that a path is not what it was.
func stale(err error) bool {
	var absent *survey.ErrNotFound
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
	if !l.bare() {
		l.caught = catch() // before anything is made that would be left
	}
	l.session = sessions.In(l.dirs.State).Begin(sessions.Info{
		Version: l.program.Version, Argv: os.Args, Workspace: l.policy.Workspace, Profile: l.policy.Profile, Provider: l.provider,
		Without: layerNames(l.policy.Without), AllowMissing: guaranteeNames(l.policy.AllowMissing),
	})
	if err := l.openLog(); err != nil {
		return err
	}
	if err := l.keepOutput(); err != nil {
		return err
	}
	if l.kept != nil {
		l.stdio.Log = l.kept
		if id := l.run.Plan.Identity; id.Root {
			if err := l.kept.file.Chown(id.HostUID, id.HostGID); err != nil {
				return err
			}
		}
	}
	if err := l.run.StartInspector(l.program.Whole); err != nil {
		return err
	}
	if err := l.makeUpper(); err != nil {
		return err
	}
	if !l.run.Plan.Identity.Root {
		if box != nil {
			box.Feed(l.run.Plan, l.stdio)
		}
		if l.caught == nil { // which starts a thread, while the copy is at work
			l.caught = catch()
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

// bare reports whether nothing is made that would be left before a copy has its plan.
func (l *launch) bare() bool {
	return !l.run.Plan.Identity.Root && l.req.Events == "" && !l.req.Log && !l.run.Inspects() && len(l.run.Plan.Overlays()) == 0
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
		if err = l.run.StartInspector(l.program.Whole); err != nil {
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
		return l.failed(err)
	}
	if a, is := started.Weaker(); is && !l.req.Quiet {
		state := a.State.String()
		if a.Mechanism != "" {
			state += ", by " + a.Mechanism
		}
		messages.Say("guarantee " + string(a.Guarantee) + ": " + state + ": " + a.Cause)
	}
	if started.SharesKeyring {
		l.log.Emit(events.Warning{Text: sharedKeyring})
		if l.req.Verbose {
			messages.Say(sharedKeyring)
		}
	}
	if started.Unreported && !l.req.Quiet {
		messages.Say("refused writes are not reported: system calls have a supervisor already, around this pccrun")
	}
	if l.run.Tells() {
		// The file must be there before the command can look; the log is
		// written to it as it grows.
		if f, err := started.Create(native.DenialsPath); err == nil {
			l.denials = f
		} else {
			messages.Say(messages.InWords(err))
		}
	}
	l.tellHidden()
	drain := l.stdio.Run()
	relay, err := l.relay(started)
	if err == nil && relay != nil && l.asker != nil {
		l.asker.relay = relay
		close(l.asker.ready)
	}
	if err == nil {
		l.watched = l.run.Guarded() // as root the plan has descriptors by now
		err = l.guard(started)
	}
	if err != nil {
		started.Kill()
		started.Wait(func(unix.Signal) {})
		l.unguarded()
		return l.ended(messages.Fail(messages.InWords(err)), nil)
	}
	if l.req.Events != "" {
		l.log.Start() // who reads them learns from the first which session this is
	}
	time.AfterFunc(logAfter, l.log.Start) // so that pccrun logs shows a run in which nothing has happened
	time.AfterFunc(restAfter, rest)
	stop := l.forward(started, relay)
	l.session.Update(func(i *sessions.Info) {
		i.Sandbox = sessions.Process{Pid: started.Pid}
		i.Cgroups = started.Cgroups()
	})
	killed := false
	started.Gone = func(r *namespaces.Result) {
		killed = stop()
		// Whoever wanted the end does not wait for a reader that takes nothing.
		patience := time.Duration(0)
		if killed || r.TimedOut || r.Status.Signaled() {
			patience = time.Second
			messages.Hurry()
		}
		if relay != nil {
			relay.Wait(patience)
			relay.Close(patience)
		}
		if err := drain(patience); err != nil {
			messages.Say(messages.InWords(err))
		}
		l.kept.tell()
		l.guarded.refused = started.Refused()
		if service := started.Unsigned(); service != "" {
			l.log.Emit(events.Denial{Guarantee: string(profiles.IPCUnix), What: "sign a commit, as your git does", Hint: "--use " + service})
		}
		l.left = l.lookBack()
		l.leaveHome()
		l.lost(started)
		l.removeAgentDirs()
		if l.upper {
			_, _ = l.noted() // what goes wrong settleUpper says
		}
		l.paid()
	}
	end, err := started.Wait(func(sig unix.Signal) { l.stopped(started, relay, sig) })
	if err != nil {
		return l.refused(FailRun(err), err)
	}
	code := l.ended(l.status(end.Told(), killed), end)
	l.giveBack()
	if interrupted := killed || end.Status.Signaled() && end.Status.Signal() == unix.SIGINT; interrupted && code == 128+int(unix.SIGINT) {
		l.caught.endBy(unix.SIGINT) // a shell that runs us in a loop goes by that, and not by the status
	}
	return code
}

// sharedKeyring is said where the floor alone keeps keys from the command.
const sharedKeyring = "the session keyring is the user's own, whose keys are all taken; the floor refuses whatever asks for a key"

// begin starts the run in a sandbox that was begun, unless a signal wants the launch to
// end: from here on it is the command's.
func (l *launch) begin(box *namespaces.Sandbox) (*native.Started, error) {
	if err := l.caught.interrupted(); err != nil {
		box.Close()
		return nil, err
	}
	if d := l.guarded.debt; d != nil {
		box.Cloned = func(pid int) error { return d.Add(strconv.Itoa(pid) + "\n") }
	}
	l.attempts.begin(l)
	l.learning.begin(l)
	l.run.Settled = func() {
		l.answers = l.run.Answers
		l.tellPlan()
	}
	return l.run.Start(box, l.stdio, l.decided)
}

// relay joins the command's terminal to the host's, if it has one.
func (l *launch) relay(s *native.Started) (*terminal.Relay, error) {
	if s.Master == nil {
		return nil, nil
	}
	relay, err := terminal.Start(terminal.Options{Terminal: l.stdio.Host, Master: s.Master, Lazy: l.stdio.Background, Log: l.stdio.Log})
	l.caught.relay.Store(relay)
	return relay, err
}

// stopped is called when the command was stopped, by Ctrl-Z or because it
// wants the keys. If the terminal is gone when we go on, nobody is left to continue
// the command: it gets what the kernel gives to a stopped group whose terminal goes,
// setpgid(2), HUP and CONT.
func (l *launch) stopped(s *native.Started, relay *terminal.Relay, sig unix.Signal) {
	if relay == nil {
		return
	}
	halt := relay.Suspend
	if sig == unix.SIGTTIN || sig == unix.SIGTTOU {
		halt = relay.Foreground
	}
	if halt() != nil {
		s.Signal(unix.SIGHUP, inside.ToGroup)
	}
	s.Resume(relay.Active())
}
