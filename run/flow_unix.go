//go:build unix

package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/ask"
	"github.com/pccrun/pccrun/workspace/changes"
)

// Run runs what the request asks for and returns the status to exit with.
func Run(req profiles.Request, program Program) int {
	if text, hint := starved(); text != "" {
		return messages.Fail(text, hint)
	}
	c, err := choose(&req)
	if err != nil {
		return messages.Fail(messages.InWords(err), profiles.Hint(err))
	}
	if (req.Runtime != "" || req.DockerImage != "" || req.DockerNetwork != "") && c.Name != "docker" {
		return messages.Fail("flags --runtime, --docker-image and --docker-network: the provider is "+c.Name, "--provider docker")
	}
	if req.Keep != 0 && !c.Cloud {
		return messages.Fail("flag --keep: the provider is "+c.Name+", which has no sandbox to be kept", "--provider e2b")
	}
	if c.Name != providers.Native && program.Become != nil {
		return program.Become()
	}
	if req.From != "" && c.Name == providers.Native {
		if err := fromSnapshot(&req); err != nil {
			return messages.FailUsage(err)
		}
	}
	first := newRequest(&req, program, c)
	code, passed := first.run()
	if passed == nil {
		return code
	}
	// Its choice was --provider auto: the first other of this machine is taken that keeps what
	// is required, and can start. It is never a cloud: no file leaves by surprise.
	if program.Become != nil {
		return program.Become()
	}
	why := []string{"provider native: " + messages.InWords(passed)}
	for _, k := range providers.Known() {
		if k.Name == providers.Native || k.Cloud {
			continue
		}
		next := *first
		next.place, next.choice = nil, choice{Kind: k, by: "--provider auto: " + strings.Join(why, "; "), auto: true}
		code, failed := next.run()
		if failed == nil {
			return code
		}
		text := messages.InWords(failed)
		if named := "provider " + k.Name + ": "; !strings.HasPrefix(text, named) {
			text = named + text
		}
		why = append(why, text)
	}
	for _, text := range why[1:] {
		messages.Say(text)
	}
	return first.refused(FailRun(passed), passed)
}

// A run goes through stages. Each has what those before it have found out, and what is made from it is the next:
//
//	request   what is asked for, and the provider
//	resolved  the policy, and pccrun's own directories
//	prepared  the plan, for what this machine was found to be
//	flow      the session: the command is started, followed and looked after
//	ended     how the command ended: it is reported, and the session is closed
type request struct {
	choice
	program Program
	req     *profiles.Request
	place   providers.Provider
	uid     int // whose this process was at first

	workspace string // until the policy is known, the current directory
}

type resolved struct {
	*request
	policy  *profiles.Policy
	dirs    state.Dirs
	helpers *programs.Finder // of what pccrun executes on this machine
	workDir string           // where the command starts
	holds   bool             // earlier runs in this workspace may have left what nobody has decided about
}

type prepared struct {
	*resolved
	onMachine
	plan      providers.Plan
	answers   []profiles.Answer
	warnings  []string
	homeNotes []string          // what the user should hear of the home
	seeds     map[string]string // what a home begins with that is gone at exit, by path
	writes    []string          // what the command may change of this machine's
	label     string            // of what the provider makes
	tries     int               // see decide
	asker     *ask.Asker
}

type flow struct {
	*prepared
	session *sessions.Session
	log     *events.Log
	caught  *catcher
	signals chan int // for the command
	stop    func() (killed bool)
	cancel  func() // kills the run
	attached
	terminal *relayedTerminal // nil: the command has no terminal, or the provider has taken the user's

	running   atomic.Bool // the command
	killed    bool        // by a second Ctrl-C
	late      atomic.Bool // the provider did not keep the time
	unguarded bool        // the command may run, and nobody looks after it
	denials   *os.File
	guarded   guarded
	overlays
	copied
	changeList
	printed
	unreached unreached
}

// copied is what becomes of the command's output beside the user's terminal.
type copied struct {
	kept *transcript // of what the command prints, if that is wanted
	tail *tail       // see overhear
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

type ended struct {
	flow   *flow
	result providers.Result
	cause  error // why nothing is known of the end, or nobody has looked after the command
}

func newRequest(req *profiles.Request, program Program, c choice) *request {
	return &request{choice: c, program: program, req: req, uid: os.Getuid(), workspace: req.Host.Cwd}
}

// run does it all. With an error, which is for [Run] alone, the command has not run and nothing
// was said: another provider may be taken.
func (q *request) run() (code int, passed error) {
	if text, hint := q.unsupported(); text != "" {
		err := &profiles.Error{Cause: "provider " + q.Name + ": " + text, Hint: hint}
		if q.auto {
			return 0, err
		}
		return messages.Fail(err.Error(), hint), nil
	}
	// The order is the launch's: this machine judges what the command will hold before anything
	// is made, and begins while the policy is read. The others want to know of directories.
	native := q.native()
	if native {
		if err := q.build(q.host()); err != nil {
			return q.refuse(err, q.auto && mayMove(err))
		}
		defer q.close()
	}
	r, code := q.resolve()
	if code != 0 {
		return code, nil
	}
	if !native {
		if err := q.build(r.host()); err != nil {
			return r.refuse(err, q.auto)
		}
		defer q.close()
	}
	p, err := r.prepare()
	defer p.removeAgentDirs()
	if err != nil {
		return r.refuse(err, q.auto && (!native || isMissing(err)))
	}
	if q.req.DryRun {
		return p.print(), nil
	}
	if !native && !q.req.Quiet {
		messages.Say("provider " + q.Name + " (" + q.by + ")")
	}
	p.announce()
	f, err := p.begin()
	var end *ended
	if err == nil {
		end, err = f.follow()
	}
	if err != nil {
		return f.refuse(err, q.auto && mayMove(err) && os.Getuid() == q.uid)
	}
	return end.report(), nil
}

// refuse ends a run that has no session, or passes it on to another provider.
func (q *request) refuse(err error, passes bool) (int, error) {
	if passes {
		return 0, err
	}
	return q.refused(FailRun(err), err), nil
}

// refuse ends a run whose command has not run, or passes it on.
func (f *flow) refuse(err error, passes bool) (int, error) {
	if passes {
		f.giveUp()
		return 0, err
	}
	return f.failed(err), nil
}

// mayMove reports whether another provider may do better than one that has not started.
func mayMove(err error) bool {
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	var interrupted *interruptedError
	var caller *providers.CallerError
	return !errors.As(err, &caller) && !errors.As(err, &absent) && !errors.As(err, &exec) && !errors.As(err, &interrupted)
}

// failed ends a run that did not start, or of whose end nothing is known: it says why, but
// where a signal ends it, by which pccrun then goes.
func (f *flow) failed(err error) int {
	var interrupted *interruptedError
	if !errors.As(err, &interrupted) {
		return f.refused(FailRun(err), err)
	}
	if f.session != nil {
		f.session.Drop(sessions.LogName) // nothing was printed
	}
	code := f.refused(128+int(interrupted.signal), err)
	f.close()
	f.removeAgentDirs()
	endBy(interrupted.signal)
	return code
}

// giveUp ends the session of a run that another provider takes over, which says what is wrong
// there.
func (f *flow) giveUp() {
	if f.session == nil {
		return
	}
	f.lookBack()
	f.settled()
	f.session.Drop(sessions.LogName)
	f.upper = false
	f.settleUpper()
	if f.log != nil {
		_ = f.log.Close(time.Second)
	}
	_ = errors.Join(f.session.Settle(), f.session.End(messages.Refused))
	f.session, f.log = nil, nil
}

// unsupported names what a request asks for that only a run on this machine has.
func (q *request) unsupported() (text, hint string) {
	if q.native() {
		return "", ""
	}
	switch req := q.req; {
	case len(req.PassFDs) > 0:
		return "flag --pass-fd: this provider cannot pass descriptors", "--provider native"
	case req.Learn:
		return "learn: only the native provider reports what a command tries", "--provider native"
	case req.From != "":
		return "flag --from: only the native provider starts from a snapshot", "--provider native"
	case len(req.Without) > 0:
		return "flag --without: only the native provider has layers", "--provider native"
	}
	return "", ""
}

// build makes the provider.
func (q *request) build(host providers.Host) (err error) {
	q.place, err = q.program.build(q.Kind, q.req, host)
	return err
}

// host is what a provider may take from this process.
func (q *request) host() providers.Host {
	return providers.Host{Environ: q.req.Host.Environ, Launcher: launcherFile(), Whole: q.program.Whole, Ask: q.program.ask}
}

func (r *resolved) host() providers.Host {
	host := r.request.host()
	host.StateDir, host.CacheDir, host.Programs, host.Git = r.dirs.State, r.dirs.Cache, r.helpers, r.git().Run
	return host
}

// resolve reads the policy, finds pccrun's own directories, and looks after runs that were
// killed, before anything is looked at in their workspaces. A code that is not 0 is the exit status.
func (q *request) resolve() (*resolved, int) {
	policy, err := profiles.Resolve(*q.req)
	if err != nil {
		return nil, q.refused(messages.FailWith(err), err)
	}
	r := &resolved{request: q, policy: policy, workDir: providers.StartDir(policy)}
	q.workspace = policy.Workspace
	if r.dirs, err = state.Find(q.req.Host.Getenv, policy.Home); err != nil {
		return nil, messages.Fail(messages.InWords(err))
	}
	for _, dir := range [...]struct{ path, variable string }{{r.dirs.State, "XDG_STATE_HOME"}, {r.dirs.Cache, "XDG_CACHE_HOME"}} {
		if err := state.Outside(dir.path, policy.Workspace); err != nil {
			return nil, messages.Fail(messages.InWords(err), dir.variable+"=DIR names another directory")
		}
	}
	r.helpers = Programs(&q.req.Host, r.dirs.State)
	if err := r.ownDirs(); err != nil {
		return nil, messages.Fail(messages.InWords(err), "set HOME, XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_CACHE_HOME to other directories")
	}
	if r.holds, err = settleIn(policy.Workspace, sessions.In(r.dirs.State), q.program); errors.Is(err, state.ErrUnsafe) {
		return nil, messages.Fail(messages.InWords(err), UnsafeHint) // the unfinished-run record could not be written there either
	} else if err != nil {
		messages.Say(unsettled + messages.InWords(err))
	}
	if !q.req.DryRun {
		for _, dir := range policy.Own {
			root, err := state.Open(dir, policy.Workspace)
			if err != nil {
				return nil, messages.Fail(messages.InWords(err), "set XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_CACHE_HOME to other directories")
			}
			root.Close()
		}
	}
	return r, 0
}

// prepare surveys this machine, asks the provider what it is, and plans the run.
func (r *resolved) prepare() (*prepared, error) {
	f := &prepared{resolved: r}
	if f.req.Ask {
		f.asker = ask.New(f.policy.Profile, f.dirs.Config, f.policy.Workspace, f.uid == 0)
	}
	switch { // a launch is not slow, or gives up, but where others have to be asked
	case f.req.DryRun:
		defer messages.Slow("scanning " + f.policy.Workspace)()
	case slices.ContainsFunc(f.policy.Network.Allow, func(r profiles.NetRule) bool { return strings.HasPrefix(r.Text, "@") }):
		defer messages.Slow("asking package managers for their hosts")()
	case !f.req.Quiet:
		defer messages.Slow("looking at " + f.policy.Workspace)()
	}
	if err := f.openHome(); err != nil {
		return f, err
	}
	f.makeAgentDirs()
	if !f.req.DryRun && !f.native() {
		f.label = strings.ToLower(rand.Text())
	}
	return f, f.decide(nil)
}

// maxTries bounds how often a launch begins anew because what it had found was
// gone, or another file, by the time that it was needed.
const maxTries = 8

// decide plans the run, after what went wrong before, if anything did. Somebody
// else works in the same place, a second run perhaps, which sets things aside:
// what was found may be gone the next moment. An error that is not of that kind
// is returned.
func (f *prepared) decide(before error) error {
	err := before
	for err == nil || stale(err) && f.tries < maxTries {
		if err != nil {
			f.tries++
			time.Sleep(time.Duration(f.tries) * time.Millisecond)
		}
		var looked *providers.Survey
		if looked, err = f.look(); err != nil {
			continue
		}
		command := providers.Command{Argv: f.req.Command, Env: f.policy.Environ(f.req.Host.Environ), Dir: f.workDir, Label: f.label, Keep: f.req.Keep, Ask: f.req.Ask}
		var facts providers.Facts
		if facts, err = f.examine(looked, command); err != nil {
			continue
		}
		var plan providers.Plan
		if plan, err = f.place.Plan(f.policy, looked, facts, command); err != nil {
			continue
		}
		f.plan, f.answers, f.warnings = plan, plan.Answers(), nil
		warnings, err := providers.Check(f.policy, f.answers)
		for _, w := range slices.Concat(plan.Warnings(), warnings) {
			if !slices.Contains(f.warnings, w) {
				f.warnings = append(f.warnings, w)
			}
		}
		if err != nil {
			return err
		}
		return f.prepareHere()
	}
	return err
}

// stale reports whether an error says that a path is not what it was.
func stale(err error) bool {
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	if errors.As(err, &absent) || errors.As(err, &exec) {
		return false
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// examineWithin bounds how long an engine or a cloud may take to say what it is.
const examineWithin = 30 * time.Second

// look surveys this machine, and finds the files that the command's name stands for.
func (f *prepared) look() (*providers.Survey, error) {
	host := &f.req.Host
	o := survey.Options{
		IndexDir: f.dirs.Cache, Own: f.dirs.State, Home: f.homeDir(), Earliest: sessions.In(f.dirs.State).Earliest,
		Getenv: host.Getenv, Environ: host.Environ, Network: f.req.Ask || f.req.Learn || f.program.ask != nil, Launch: !f.req.DryRun,
	}
	paths, absent := survey.Programs(f.policy, f.req.Command[0], host.Environ)
	if absent != nil && !f.Cloud && f.req.DockerImage == "" { // which have programs of their own
		return nil, absent
	}
	o.Command = paths
	found, err := survey.Look(f.policy, o)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(f.seeds)) {
		found.Places = append(found.Places, survey.Place{Path: path, Node: survey.File, Access: profiles.Read, Copied: true, Text: f.seeds[path], Why: "what a home begins with"})
	}
	for _, p := range found.Places {
		if p.Kept {
			if err := f.home.GitConfig(p.Text); err != nil {
				return nil, err
			}
		}
	}
	f.found(found)
	f.writes = []string{f.policy.Workspace} // and what pccrun keeps of runs
	for _, name := range [...]string{homes.DirName, "sessions", "snapshots"} {
		f.writes = append(f.writes, f.dirs.State+"/"+name)
	}
	for i := range found.Places {
		if p := &found.Places[i]; p.Access >= profiles.Overlay && !p.Scratch && !p.Copied && (p.Node == survey.File || p.Node == survey.Directory) {
			f.writes = append(f.writes, p.Path)
		}
	}
	s := &providers.Survey{Places: found.Places, Seeds: f.seeds, Command: paths, Notes: found.Notes, Machine: found}
	s.UID, s.GID = who()
	for _, v := range found.Env {
		s.Env = append(s.Env, v.Entry)
	}
	return s, nil
}

// ask asks a provider what it is.
func (f *resolved) ask() (providers.Facts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), examineWithin)
	defer cancel()
	return f.place.Examine(ctx)
}

// copies reports whether the command works on a copy of the workspace: nothing of this
// machine's changes then while it runs.
func (f *prepared) copies() bool {
	return slices.ContainsFunc(f.answers, func(a profiles.Answer) bool { return a.Guarantee == profiles.SyncUp })
}

// allWarnings are those of the policy, of the home and of the plan.
func (f *prepared) allWarnings() []string {
	return slices.Concat(f.policy.Warnings, f.homeNotes, f.warnings)
}

// announce says what the user should hear before the command starts.
func (f *prepared) announce() {
	policy := f.policy
	for _, w := range policy.Without {
		messages.Say("layer " + string(w) + " is off: --without")
	}
	for _, g := range policy.AllowMissing {
		messages.Say("guarantee " + string(g) + " may be missing: --allow-missing")
	}
	if f.req.Quiet {
		return
	}
	for _, w := range f.allWarnings() {
		messages.Say(w)
	}
	f.sayUndecided()
	if f.req.Verbose || policy.PickedBy != "default" || policy.Workspace != policy.WorkDir {
		messages.Say("profile " + policy.Profile + " (" + policy.PickedBy + "), workspace " + policy.Workspace)
	}
}

// begin makes the session, which says what will have to be found at the provider, before
// anything is made there.
func (p *prepared) begin() (*flow, error) {
	f := &flow{prepared: p, signals: make(chan int, 16)}
	return f, f.begin()
}

func (f *flow) begin() error {
	if err := f.cover(); err != nil {
		return err
	}
	f.caught = catch() // before anything is made that would be left: on a busy machine the session's directory is made before the command is
	info := sessions.Info{
		Version: f.program.Version, Argv: os.Args, Workspace: f.policy.Workspace, Profile: f.policy.Profile, Provider: f.Name,
		Without: profiles.Words(f.policy.Without), AllowMissing: profiles.Words(f.policy.AllowMissing),
	}
	if f.label != "" {
		info.Resource = &sessions.Resource{Provider: f.Name, Labels: map[string]string{providers.LabelKey: f.label}}
	}
	f.session = sessions.In(f.dirs.State).Begin(info)
	if err := f.openLog(); err != nil {
		return err
	}
	if f.label != "" { // what is not processes of this machine is looked for by the record alone
		f.logPlan()
		if _, err := f.session.Dir(); err != nil {
			return err
		}
	}
	if err := f.keepOutput(); err != nil {
		return err
	}
	if f.isLocal() {
		return f.open()
	}
	if f.copies() {
		return nil
	}
	if err := f.recordUnfinished(); err != nil {
		return err
	}
	if err := f.addToRecord(unfinishedBy + f.Name + "\n"); err != nil {
		return err
	}
	return f.guard(nil)
}

// graceful is how much longer than its time a run may last before it is ended from here.
const graceful = 15 * time.Second

// follow starts the command and follows it to its end. An error says that it has not run.
func (f *flow) follow() (*ended, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.cancel = cancel
	if !f.isLocal() {
		f.caught.ends(cancel)
	}
	if limit := f.policy.Resources.Deadline(); limit > 0 && !f.isLocal() {
		// The provider keeps the time; where it does not, the run ends all the same.
		timer := time.AfterFunc(limit+graceful, func() {
			f.late.Store(true)
			cancel()
		})
		defer timer.Stop()
	}
	stdio, err := f.stdio()
	if err != nil {
		return nil, err
	}
	result, err := f.carryOut(ctx, stdio)
	for err != nil && stale(err) && f.tries < maxTries && f.isLocal() && !f.upper && !f.running.Load() && !f.unguarded && os.Getuid() == f.uid {
		f.settled()
		if err = f.decide(err); err == nil {
			result, err = f.carryOut(ctx, stdio)
		}
	}
	if f.stop != nil {
		f.killed = f.stop()
	}
	f.endAttached()
	f.terminal.close()
	if !f.isLocal() {
		f.kept.tell()
	}
	var stays interface{ Stays() }
	if errors.As(err, &stays) {
		f.session.Keep(KeepUnfetched)
	}
	if stdio.Changes != nil && !f.upper {
		f.upper, f.summarized = changes.Stands(stdio.Changes), sync.OnceValues(f.summarizeUpper)
	}
	if err != nil {
		switch err = cmp.Or(f.interruption(), err); {
		case !f.running.Load() && !f.unguarded:
			return nil, err
		case f.unguarded, f.isLocal(), ctx.Err() == nil:
			return &ended{flow: f, cause: err}, nil
		}
		result = providers.Result{} // it was ended from here, and nobody counted
		if !errors.Is(err, context.Canceled) {
			messages.Say(messages.InWords(err))
		}
	}
	result.Killed = result.Killed || f.killed
	result.TimedOut = result.TimedOut || f.late.Load()
	return &ended{flow: f, result: result}, nil
}

// report says how the command ended, ends the session, and returns the exit status.
func (e *ended) report() int {
	f, result := e.flow, &e.result
	switch {
	case e.cause != nil && f.unguarded:
		f.leaveRecord()
		return f.finish(messages.Fail(messages.InWords(e.cause)), nil)
	case e.cause != nil:
		return f.failed(e.cause)
	}
	code := f.status(result, f.killed)
	f.survivors(result)
	if f.asker != nil && f.asker.Failed() != nil {
		messages.Say("flag --ask: the answer was not saved: " + f.asker.Failed().Error())
	}
	f.withheld()
	f.sayHidden(result)
	if relay := f.caught.relay.Load(); relay != nil && relay.Clipped() && !f.req.Quiet {
		messages.Say("clipboard: what the command wrote to it was filtered; select the text on the screen instead")
	}
	code = f.finish(code, result)
	f.giveBack()
	if interrupted := f.killed || result.Signal == int(syscall.SIGINT); interrupted && f.isLocal() && code == 128+int(syscall.SIGINT) {
		f.close()
		f.caught.endBy(syscall.SIGINT) // a shell that runs us in a loop goes by that, and not by the status
	}
	return code
}

// interruption is the signal that wanted the end before the command ran.
func (f *flow) interruption() error {
	if f.caught == nil || f.running.Load() { // nil: the run was refused before it began
		return nil
	}
	return f.caught.interrupted()
}

// unfinishedBy begins the line after the records of an unfinished-run record that says at which provider the run has
// something: no word of a record begins so.
const unfinishedBy = "at "

// endAt ends what a killed run left at another provider, before anybody looks at what it did.
func endAt(home sessions.Home, program Program, id string) error {
	e, err := home.Find(id)
	if errors.Is(err, sessions.ErrNoSession) {
		return nil // it ended in order, but for this
	}
	if err != nil || e.Resource == nil {
		return err
	}
	return Destroy(program, e.Resource)
}

// Inquire asks a provider what it would keep of the default policy in the current directory,
// for doctor: nothing is made there. The error says why it cannot be used, or what it misses.
func Inquire(program Program, k providers.Kind) ([]profiles.Answer, error) {
	req := &profiles.Request{Host: profiles.ThisHost(), Command: []string{"/bin/true"}, DryRun: true}
	r := &resolved{request: newRequest(req, program, choice{Kind: k})}
	if _, err := program.build(k, req, providers.Host{Environ: req.Host.Environ}); err != nil {
		return nil, err // without a look at the workspace
	}
	var err error
	if r.policy, err = profiles.Resolve(*req); err != nil {
		return nil, err
	}
	if r.dirs, err = state.Find(req.Host.Getenv, r.policy.Home); err != nil {
		return nil, err
	}
	r.workDir, r.helpers = providers.StartDir(r.policy), Programs(&req.Host, r.dirs.State)
	if err = r.build(r.host()); err != nil {
		return nil, err
	}
	p, err := r.prepare()
	return p.answers, err
}
