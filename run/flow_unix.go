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
	if req.History != 0 && !c.Cloud {
		return messages.Fail("flag --history: the provider is "+c.Name+", where the repository itself is shown", "--provider e2b")
	}
	if c.Name != providers.Native && program.Become != nil {
		return program.Become()
	}
	if req.From != "" && c.Name == providers.Native {
		if err := fromSnapshot(&req); err != nil {
			return messages.FailUsage(err)
		}
	}
	first := newFlow(&req, program, c)
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
		next := newFlow(&req, program, choice{Kind: k, by: "--provider auto: " + strings.Join(why, "; "), auto: true})
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
	return first.failed(passed)
}

// flow is one run, from the request to the exit status, wherever its command runs: the provider
// is asked for facts, a plan and a result, and for nothing else. What a run on this machine has
// beside that is in onMachine.
type flow struct {
	choice
	program Program
	req     *profiles.Request
	place   providers.Provider
	policy  *profiles.Policy
	dirs    state.Dirs
	helpers *programs.Finder // of what pccrun executes on this machine
	writes  []string         // what the command may change of this machine's
	session *sessions.Session
	log     *events.Log
	uid     int // whose this process was at first

	// What is known once the run is planned.
	plan     providers.Plan
	answers  []profiles.Answer
	warnings []string
	workDir  string            // where the command starts
	seeds    map[string]string // what a home begins with that is gone at exit, by path
	label    string            // of what the provider makes
	tries    int               // see decide

	onMachine
	caught  *catcher
	signals chan int // for the command
	stop    func() (killed bool)
	cancel  func() // kills the run
	asker   *asker
	inquiries
	seat *seat // nil: the command has no terminal, or the provider has taken the user's

	holds    bool        // earlier runs in this workspace may have left what nobody has decided about
	tells    bool        // the command has a file that tells it of refusals
	running  atomic.Bool // the command
	killed   bool        // by a second Ctrl-C
	late     atomic.Bool // the provider did not keep the time
	aborted  error       // why the launch was ended from here
	unlooked bool        // the command runs, and nobody could look after it
	denials  *os.File
	guarded  guarded
	kept     *transcript     // of what the command prints, if that is wanted
	tail     *tail           // see overhear
	changes  sync.Mutex      // over left while the command runs
	left     []events.Change // what the run changed, once it was looked at
	missed   unreached

	early    atomic.Pointer[string]            // the first refusal of the network, as it was printed when it happened; "" if it was not
	planTold bool                              // see tellPlan
	told     string                            // why the run was refused
	upper    bool                              // the session holds what overlays change, or a copy
	lower    func(layer int) (*os.Root, error) // opens what an overlay lies on
	noted    func() (overlaid, error)          // [flow.noteUpper], once
}

func newFlow(req *profiles.Request, program Program, c choice) *flow {
	return &flow{choice: c, program: program, req: req, uid: os.Getuid(), signals: make(chan int, 16)}
}

// run does it all. With an error, which is for [Run] alone, the command has not run and nothing
// was said: another provider may be taken.
func (f *flow) run() (code int, passed error) {
	if text, hint := f.unsupported(); text != "" {
		err := &profiles.Error{Cause: "provider " + f.Name + ": " + text, Hint: hint}
		if f.auto {
			return 0, err
		}
		return messages.Fail(err.Error(), hint), nil
	}
	// The order is the launch's: this machine judges what the command will hold before anything
	// is made, and begins while the policy is read. The others want to know of directories.
	native := f.native()
	if native {
		if err := f.build(); err != nil {
			return f.refuse(err, f.auto && mayMove(err))
		}
		defer f.close()
	}
	if code := f.resolve(); code != 0 {
		return code, nil
	}
	if !native {
		if err := f.build(); err != nil {
			return f.refuse(err, f.auto)
		}
		defer f.close()
	}
	defer f.removeAgentDirs()
	if err := f.prepare(); err != nil {
		return f.refuse(err, f.auto && (!native || isMissing(err)))
	}
	if f.req.DryRun {
		return f.print(), nil
	}
	if !native && !f.req.Quiet {
		messages.Say("provider " + f.Name + " (" + f.by + ")")
	}
	f.announce()
	err := f.begin()
	if err == nil {
		code, err = f.follow()
	}
	if err != nil {
		return f.refuse(err, f.auto && mayMove(err) && os.Getuid() == f.uid)
	}
	return code, nil
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
func (f *flow) unsupported() (text, hint string) {
	if f.native() {
		return "", ""
	}
	switch req := f.req; {
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
func (f *flow) build() (err error) {
	f.place, err = f.program.build(f.Kind, f.req, f.host())
	return err
}

// host is what a provider may take from this process.
func (f *flow) host() providers.Host {
	return providers.Host{
		Environ: f.req.Host.Environ, StateDir: f.dirs.State, CacheDir: f.dirs.Cache, Launcher: launcherFile(), Whole: f.program.Whole,
		Programs: f.helpers, Export: f.exportHistory, Ask: f.program.ask,
	}
}

// resolve reads the policy, finds pccrun's own directories, and looks after runs that were
// killed, before anything is looked at in their workspaces.
func (f *flow) resolve() int {
	policy, err := profiles.Resolve(*f.req)
	if err != nil {
		return f.refused(messages.FailWith(err), err)
	}
	f.policy, f.workDir = policy, providers.StartDir(policy)
	if f.dirs, err = state.Find(f.req.Host.Getenv, policy.Home); err != nil {
		return messages.Fail(messages.InWords(err))
	}
	for _, dir := range [...]struct{ path, variable string }{{f.dirs.State, "XDG_STATE_HOME"}, {f.dirs.Cache, "XDG_CACHE_HOME"}} {
		if err := state.Outside(dir.path, policy.Workspace); err != nil {
			return messages.Fail(messages.InWords(err), dir.variable+"=DIR names another directory")
		}
	}
	f.helpers = Programs(&f.req.Host, f.dirs.State)
	if err := f.ownDirs(); err != nil {
		return messages.Fail(messages.InWords(err), "set HOME, XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_CACHE_HOME to other directories")
	}
	if f.holds, err = settleIn(policy.Workspace, sessions.In(f.dirs.State), f.program); errors.Is(err, state.ErrUnsafe) {
		return messages.Fail(messages.InWords(err), UnsafeHint) // what this run owes could not be written there either
	} else if err != nil {
		messages.Say(unsettled + messages.InWords(err))
	}
	if !f.req.DryRun {
		for _, dir := range policy.Own {
			root, err := state.Open(dir, policy.Workspace)
			if err != nil {
				return messages.Fail(messages.InWords(err), "set XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_CACHE_HOME to other directories")
			}
			root.Close()
		}
	}
	return 0
}

// prepare surveys this machine, asks the provider what it is, and plans the run.
func (f *flow) prepare() error {
	if f.req.Ask {
		f.asker = &asker{profile: f.policy.Profile, config: f.dirs.Config, work: f.policy.Workspace, root: f.uid == 0, ready: make(chan struct{})}
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
		return err
	}
	f.makeAgentDirs()
	if !f.req.DryRun && !f.native() {
		f.label = strings.ToLower(rand.Text())
	}
	return f.decide(nil)
}

// maxTries bounds how often a launch begins anew because what it had found was
// gone, or another file, by the time that it was needed.
const maxTries = 8

// decide plans the run, after what went wrong before, if anything did. Somebody
// else works in the same place, a second run perhaps, which sets things aside:
// what was found may be gone the next moment. An error that is not of that kind
// is returned, and so is any once the session says what the overlays lie on.
func (f *flow) decide(before error) error {
	err := before
	for err == nil || stale(err) && f.tries < maxTries && !f.upper {
		if err != nil {
			f.tries++
			time.Sleep(time.Duration(f.tries) * time.Millisecond)
		}
		var looked *providers.Survey
		if looked, err = f.look(); err != nil {
			continue
		}
		command := providers.Command{Argv: f.req.Command, Env: f.policy.Environ(f.req.Host.Environ), Dir: f.workDir, Label: f.label, Keep: f.req.Keep, History: f.req.History, Ask: f.req.Ask}
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
		return f.furnish()
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
func (f *flow) look() (*providers.Survey, error) {
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
func (f *flow) ask() (providers.Facts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), examineWithin)
	defer cancel()
	return f.place.Examine(ctx)
}

// copies reports whether the command works on a copy of the workspace: nothing of this
// machine's changes then while it runs.
func (f *flow) copies() bool {
	return slices.ContainsFunc(f.answers, func(a profiles.Answer) bool { return a.Guarantee == profiles.SyncUp })
}

// announce says what the user should hear before the command starts.
func (f *flow) announce() {
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
	for _, w := range policy.Warnings {
		messages.Say(w)
	}
	for _, w := range f.warnings {
		messages.Say(w)
	}
	f.sayUndecided()
	if f.req.Verbose || policy.PickedBy != "default" || policy.Workspace != policy.WorkDir {
		messages.Say("profile " + policy.Profile + " (" + policy.PickedBy + "), workspace " + policy.Workspace)
	}
}

// begin makes the session, which says what will have to be found at the provider, before
// anything is made there.
func (f *flow) begin() error {
	if err := f.cover(); err != nil {
		return err
	}
	if !f.hasty() {
		f.caught = catch() // before anything is made that would be left
	}
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
		f.tellPlan()
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
	if err := f.oweAlso(unfinishedBy + f.Name + "\n"); err != nil {
		return err
	}
	return f.guard(nil)
}

// graceful is how much longer than its time a run may last before it is ended from here.
const graceful = 15 * time.Second

// follow starts the command and follows it to its end. An error says that it has not run.
func (f *flow) follow() (code int, err error) {
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
		return 0, err
	}
	result, err := f.plan.Run(ctx, stdio, observer{f})
	for err != nil && stale(err) && f.tries < maxTries && f.isLocal() && !f.running.Load() && !f.unlooked && f.aborted == nil && os.Getuid() == f.uid {
		f.settled()
		if err = f.decide(err); err == nil {
			result, err = f.plan.Run(ctx, stdio, observer{f})
		}
	}
	if f.stop != nil {
		f.killed = f.stop()
	}
	f.deaf()
	f.seat.close()
	if !f.isLocal() {
		f.kept.tell()
	}
	var stays interface{ Stays() }
	if errors.As(err, &stays) {
		f.session.Keep(KeepUnfetched)
	}
	if stdio.Changes != nil && !f.upper {
		f.upper, f.noted = changes.Stands(stdio.Changes), sync.OnceValues(f.noteUpper)
	}
	if err != nil {
		switch err = cmp.Or(f.aborted, f.interruption(), err); {
		case f.unlooked:
			f.unguarded()
			return f.ended(messages.Fail(messages.InWords(err)), nil), nil
		case !f.running.Load():
			return 0, err
		case f.isLocal(), ctx.Err() == nil:
			return f.failed(err), nil
		}
		result = providers.Result{} // it was ended from here, and nobody counted
		if !errors.Is(err, context.Canceled) {
			messages.Say(messages.InWords(err))
		}
	}
	result.Killed = result.Killed || f.killed
	result.TimedOut = result.TimedOut || f.late.Load()
	code = f.status(&result, f.killed)
	f.survivors(&result)
	if f.asker != nil && f.asker.failed != nil {
		messages.Say("flag --ask: the answer was not saved: " + f.asker.failed.Error())
	}
	f.withheld()
	f.sayHidden(&result)
	if relay := f.caught.relay.Load(); relay != nil && relay.Clipped() && !f.req.Quiet {
		messages.Say("clipboard: what the command wrote to it was filtered; select the text on the screen instead")
	}
	code = f.ended(code, &result)
	f.giveBack()
	if interrupted := f.killed || result.Signal == int(syscall.SIGINT); interrupted && f.isLocal() && code == 128+int(syscall.SIGINT) {
		f.close()
		f.caught.endBy(syscall.SIGINT) // a shell that runs us in a loop goes by that, and not by the status
	}
	return code, nil
}

// interruption is the signal that wanted the end before the command ran.
func (f *flow) interruption() error {
	if f.caught == nil || f.running.Load() {
		return nil
	}
	return f.caught.interrupted()
}

// unfinishedBy begins the line after the records of a unfinished-run record that says at which provider the run has
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
	f := newFlow(req, program, choice{Kind: k})
	if _, err := program.build(k, req, providers.Host{Environ: req.Host.Environ}); err != nil {
		return nil, err // without a look at the workspace
	}
	var err error
	if f.policy, err = profiles.Resolve(*req); err != nil {
		return nil, err
	}
	if f.dirs, err = state.Find(req.Host.Getenv, f.policy.Home); err != nil {
		return nil, err
	}
	f.workDir, f.helpers = providers.StartDir(f.policy), Programs(&req.Host, f.dirs.State)
	if err = f.build(); err == nil {
		err = f.prepare()
	}
	return f.answers, err
}
