//go:build unix

package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run/ask"
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
	if text, hint := misplaced(&req, c); text != "" {
		return messages.Fail(text, hint)
	}
	if c.Name != providers.Native && program.Become != nil {
		return program.Become()
	}
	if req.From != "" && c.Name == providers.Native {
		if err := fromSnapshot(&req); err != nil {
			return messages.FailUsage(err)
		}
	}
	hurry()
	first := newRequest(&req, program, c)
	code, passed := attempt(first)
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
		next.choice = choice{Kind: k, by: "--provider auto: " + strings.Join(why, "; "), auto: true}
		code, failed := attempt(&next)
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
	return first.refuse(passed)
}

// A run goes through stages. Each has what those before it have found out, and what is made from it is the next:
//
//	request   what is asked for, and the provider
//	resolved  the policy, and pccrun's own directories
//	prepared  the plan, for what this machine was found to be
//	flow      the session: the command is started, followed and looked after
//	ended     how the command ended: it is reported, and the session is closed
//
// A run ends before its command has run in one of two ways: it is refused, which is printed and gives the exit status, or
// discarded, without a word, since another provider takes over.
type request struct {
	choice
	program Program
	req     *profiles.Request
	uid     int // whose this process was at first

	workspace string // until the policy is known, the current directory
}

type resolved struct {
	*request
	policy  *profiles.Policy
	place   providers.Provider
	dirs    state.Dirs
	helpers *programs.Finder // of what pccrun executes on this machine
	budget  *spending.Budget // nil: nothing is counted
	workDir string           // where the command starts
}

type prepared struct {
	*planner
	*planned
	asker *ask.Asker
}

type flow struct {
	*opened
	*planned
	planner *planner // plans anew what could not be started
	home    *home
	caught  *catcher
	signals chan int // for the command
	stop    func() (killed bool)
	cancel  func() // kills the run
	attached
	guard   guarded
	upper   overlays
	output  output
	answers []profiles.Answer // of the plan, with what the start has made of them
	running atomic.Bool       // the command
	ranHere
	changeList
	printed
	unreached unreached
	spent     spent
}

// opened is a run that has a session.
type opened struct {
	*resolved
	session *sessions.Session
	log     *events.Log
}

// ended is how a run ended, or why nothing is known of that.
type ended struct {
	flow   *flow
	came   progress
	result *providers.Result // nil: nothing is known
	killed bool              // by a second Ctrl-C
	cause  error             // why nothing is known
}

// progress is how far a run came.
type progress uint8

const (
	notStarted progress = iota
	unguarded           // the command may run, and nobody looks after it
	followed
)

func newRequest(req *profiles.Request, program Program, c choice) *request {
	return &request{choice: c, program: program, req: req, uid: os.Getuid(), workspace: req.Host.Cwd}
}

// attempt runs a request at its provider. With an error, which is for [Run] alone, the command has not run and nothing
// was said: another provider may be taken.
func attempt(q *request) (code int, passed error) {
	refuse := func(err error, passes bool) (int, error) {
		if passes {
			return 0, err
		}
		return q.refuse(err), nil
	}
	if err := unsupported(q); err != nil {
		return refuse(err, q.auto)
	}
	// The order is the launch's: this machine judges what the command will hold before anything
	// is made, and begins while the policy is read. The others want to know of directories.
	native := q.native()
	var place providers.Provider
	var err error
	if native {
		if place, err = q.program.build(q.Kind, q.req, q.host()); err != nil {
			return refuse(err, q.auto && mayMove(err))
		}
		defer closePlace(place)
		arrived.prepare(ends[:]...)
	}
	r, err := resolve(q)
	held := false
	if err == nil {
		held, err = recoverKilled(r)
	}
	if err == nil {
		r.budget, err = openBudget(r)
	}
	if err != nil {
		return refuse(err, false)
	}
	if !native {
		if place, err = q.program.build(q.Kind, q.req, r.host()); err != nil {
			return refuse(err, q.auto)
		}
		defer closePlace(place)
	}
	r.place = place
	p, err := prepare(r, held)
	defer p.removeAgentDirs()
	if err != nil {
		return refuse(err, q.auto && (!native || isMissing(err)))
	}
	if q.req.DryRun {
		return p.print(), nil
	}
	if !native && !q.req.Quiet {
		messages.Say("provider " + q.Name + " (" + q.by + ")")
	}
	p.announce()
	f, err := begin(p)
	var end *ended
	if err == nil {
		end, err = f.follow()
	}
	if err == nil {
		return end.report(), nil
	}
	f.checkRun()
	if q.auto && mayMove(err) && os.Getuid() == q.uid {
		f.discard()
		return 0, err
	}
	return f.refuse(err), nil
}

// mayMove reports whether another provider may do better than one that has not started.
func mayMove(err error) bool {
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	var interrupted *interruptedError
	var caller *providers.CallerError
	return !errors.As(err, &caller) && !errors.As(err, &absent) && !errors.As(err, &exec) && !errors.As(err, &interrupted)
}

// unsupported names what a request asks for that only a run on this machine has.
func unsupported(q *request) error {
	only := func(fix, text string) error {
		return &profiles.Error{Cause: "provider " + q.Name + ": " + text, Hint: fix}
	}
	switch req := q.req; {
	case q.native():
		return nil
	case len(req.PassFDs) > 0:
		return only("--provider native", "flag --pass-fd: this provider cannot pass descriptors")
	case q.Cloud && (req.Budget != "" || len(req.Spending) > 0):
		return only("--provider native, or docker", "flags --budget and --spending: what requests cost is counted on this machine")
	case req.Learn:
		return only("--provider native", "learn: only the native provider reports what a command tries")
	case req.From != "":
		return only("--provider native", "flag --from: only the native provider starts from a snapshot")
	case len(req.Without) > 0:
		return only("--provider native", "flag --without: only the native provider has layers")
	}
	return nil
}

// host is what a provider may take from this process.
func (q *request) host() providers.Host {
	return providers.Host{Environ: q.req.Host.Environ, Launcher: launcherFile(), Whole: q.program.Whole, Ask: q.program.ask}
}

func (r *resolved) host() providers.Host {
	host := r.request.host()
	host.Budget = r.budget
	host.StateDir, host.Programs, host.Git = r.dirs.State, r.helpers, r.git().Run
	return host
}

// resolve reads the policy, and finds pccrun's own directories.
func resolve(q *request) (r *resolved, err error) {
	r = &resolved{request: q}
	asked := *q.req
	asked.Provider = q.Name
	if r.policy, err = profiles.Resolve(asked); err != nil {
		return nil, err
	}
	q.workspace, q.req.Image = r.policy.Workspace, r.policy.Place.Image.Text // for a provider that is made with it
	if r.dirs, err = state.Find(q.req.Host.Getenv, r.policy.Home); err != nil {
		return nil, err
	}
	r.workDir, r.helpers = providers.StartDir(r.policy), Programs(&q.req.Host, r.dirs.State)
	return r, nil
}

// recoverKilled refuses directories of pccrun's that a command could write, and makes the post-run check of killed runs, before
// anything is looked at in their workspaces. It reports whether the workspace is marked ([sessions.Home.Hold]).
func recoverKilled(r *resolved) (held bool, err error) {
	for _, dir := range [...]struct{ path, variable string }{{r.dirs.State, "XDG_STATE_HOME"}, {r.dirs.Cache, "XDG_CACHE_HOME"}} {
		if err := state.Outside(dir.path, r.policy.Workspace); err != nil {
			return false, hint.Errorf(dir.variable+"=DIR names another directory", "%w", err)
		}
	}
	if err := ownDirs(r); err != nil {
		return false, hint.Errorf("set HOME, XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_CACHE_HOME to other directories", "%w", err)
	}
	held, err = checkKilled(r.policy.Workspace, sessions.In(r.dirs.State), r.program)
	switch {
	case errors.Is(err, state.ErrUnsafe):
		return false, err // the unfinished-run record could not be written there either
	case err != nil:
		messages.Say(notChecked + messages.InWords(err))
	}
	if r.req.DryRun {
		return held, nil
	}
	for _, dir := range r.policy.Own {
		root, err := state.Open(dir, r.policy.Workspace)
		if err != nil {
			return false, hint.Errorf("set XDG_CONFIG_HOME, XDG_STATE_HOME and XDG_CACHE_HOME to other directories", "%w", err)
		}
		root.Close()
	}
	return held, nil
}

// prepare surveys this machine, asks the provider what it is, and plans the run. held says whether earlier runs in this
// workspace may have left what nobody has decided about.
func prepare(r *resolved, held bool) (*prepared, error) {
	p := &prepared{planner: &planner{resolved: r, held: held}, planned: &planned{}}
	if r.req.Ask {
		p.asker = ask.New(*r.req, r.policy, r.uid == 0)
	}
	switch { // a launch is not slow, or gives up, but where others have to be asked
	case r.req.DryRun:
		defer messages.Slow("scanning " + r.policy.Workspace)()
	case slices.ContainsFunc(r.policy.Network.Allow, func(r profiles.NetRule) bool { return strings.HasPrefix(r.Text, "@") }):
		defer messages.Slow("asking package managers for their hosts")()
	case !r.req.Quiet:
		defer messages.Slow("looking at " + r.policy.Workspace)()
	}
	var err error
	if p.home, err = openHome(r); err != nil {
		return p, err
	}
	p.makeAgentDirs()
	if !r.req.DryRun && !r.native() {
		p.label = strings.ToLower(rand.Text())
	}
	p.planned, err = p.decide(nil)
	return p, err
}

// announce says what the user should hear before the command starts.
func (p *prepared) announce() {
	policy := p.policy
	for _, w := range policy.Without {
		messages.Say("layer " + string(w) + " is off: --without")
	}
	for _, g := range policy.AllowMissing {
		messages.Say("guarantee " + string(g) + " may be missing: --allow-missing")
	}
	if p.req.Quiet {
		for _, in := range policy.Network.Inject {
			if in.Repository != "" && p.req.GitHubToken == "origin" { // which an earlier run can have changed
				messages.Say(in.Goes())
			}
		}
		return
	}
	for _, w := range p.said {
		messages.Say(w)
	}
	p.sayUndecided()
	if p.req.Verbose || policy.PickedBy != "default" || policy.Workspace != policy.WorkDir {
		messages.Say("profile " + policy.Profile + " (" + policy.PickedBy + "), workspace " + policy.Workspace)
	}
}

// begin makes the session, which says what will have to be found at the provider, before anything is made there.
func begin(p *prepared) (*flow, error) {
	o := &opened{resolved: p.resolved}
	f := &flow{opened: o, planned: p.planned, planner: p.planner, home: p.home, answers: p.answers, signals: make(chan int, 16)}
	f.guard, f.upper = newGuarded(o, p.planned), overlays{opened: o}
	f.output = output{opened: o, asker: p.asker, resumes: p.home.kept != nil}
	if err := p.cover(); err != nil {
		return f, err
	}
	f.caught = catch() // before anything is made that would be left: on a busy machine the session's directory is made before the command is
	f.output.caught = f.caught
	info := sessions.Info{
		Version: f.program.Version, Argv: os.Args, Workspace: f.policy.Workspace, Profile: f.policy.Profile, Provider: f.Name,
		Without: profiles.Words(f.policy.Without), AllowMissing: profiles.Words(f.policy.AllowMissing),
	}
	limits := &f.policy.Resources
	info.Limits = sessions.Limits{
		Memory: limits.Memory.Value, MilliCPUs: limits.CPUs.Value, Pids: limits.Pids.Value, Disk: limits.Disk.Value, TimeMS: limits.Deadline().Milliseconds(),
	}
	if p.label != "" {
		info.Resource = &sessions.Resource{Provider: f.Name, Labels: map[string]string{providers.LabelKey: p.label}}
	}
	o.session = sessions.In(f.dirs.State).Begin(info)
	if f.req.Detach {
		o.session.Keep(sessions.KeepDetached)
	}
	if err := f.openLog(); err != nil {
		return f, err
	}
	if p.label != "" { // what is not processes of this machine is looked for by the record alone
		f.logPlan()
		if _, err := o.session.Dir(); err != nil {
			return f, err
		}
	}
	if err := f.output.keep(); err != nil {
		return f, err
	}
	if f.isLocal() {
		return f, openHere(f)
	}
	if f.copies() {
		return f, nil
	}
	if err := f.guard.recordUnfinished(); err != nil {
		return f, err
	}
	if err := f.guard.addToRecord(unfinishedBy + f.Name + "\n"); err != nil {
		return f, err
	}
	return f, f.guard.watch(nil)
}

// graceful is how much longer than its time a run may last before it is ended from here.
const graceful = 15 * time.Second

// stuck is how long a reader that takes nothing is waited for, where somebody wants the end or the command ran elsewhere.
const stuck = time.Second

// follow starts the command and follows it to its end. An error says that it has not run.
func (f *flow) follow() (*ended, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f.cancel = cancel
	if !f.isLocal() {
		f.caught.ends(cancel)
	}
	var late atomic.Bool
	if limit := f.policy.Resources.Deadline(); limit > 0 && !f.isLocal() {
		// The provider keeps the time; where it does not, the run ends all the same.
		timer := time.AfterFunc(limit+graceful, func() {
			late.Store(true)
			cancel()
		})
		defer timer.Stop()
	}
	stdio, err := f.stdio()
	if err != nil {
		return nil, err
	}
	result, came, err := f.carryOut(ctx, stdio)
	for stale(err) && came == notStarted && f.isLocal() && !f.upper.kept && os.Getuid() == f.uid && f.planner.tries < maxTries {
		f.guard.removeRecord()
		var again *planned
		if again, err = f.planner.decide(err); err == nil {
			f.planned, f.answers, f.guard = again, again.answers, newGuarded(f.opened, again)
			result, came, err = f.carryOut(ctx, stdio)
		}
	}
	end := &ended{flow: f, came: came, killed: f.stop != nil && f.stop()}
	f.endAttached()
	f.output.close(f.isLocal())
	var stays interface{ Stays() }
	if errors.As(err, &stays) {
		f.session.Keep(KeepUnfetched)
	}
	f.upper.took(stdio.Changes)
	if err != nil {
		if came != followed {
			err = cmp.Or(f.caught.interrupted(), err)
		}
		if came == notStarted {
			return nil, err
		}
		if came == unguarded || f.isLocal() || ctx.Err() == nil {
			end.cause = err
		} else if !errors.Is(err, context.Canceled) {
			messages.Say(messages.InWords(err))
		}
		result = providers.Result{} // nobody counted
	}
	switch {
	case came == unguarded:
		f.guard.leaveRecord()
	case !f.isLocal():
		f.checkRun()
	}
	if end.cause == nil {
		result.Killed = result.Killed || end.killed
		result.TimedOut = result.TimedOut || late.Load()
		end.result = &result
	}
	return end, nil
}

// carryOutElsewhere has a provider carry the plan out that works on no file of this machine's.
func (f *flow) carryOutElsewhere(ctx context.Context, stdio providers.Stdio) (result providers.Result, came progress, err error) {
	result, err = f.plan.(providers.Runner).Run(ctx, stdio, observer{f})
	if f.running.Load() {
		came = followed
	}
	return result, came, err
}

// checkRun makes the post-run check of a run that was carried out elsewhere, or has not begun.
func (f *flow) checkRun() {
	f.left = append(f.left, f.guard.check(nil)...)
	f.guard.removeRecord()
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
	q := newRequest(&profiles.Request{Host: profiles.ThisHost(), Command: []string{"/bin/true"}, DryRun: true}, program, choice{Kind: k})
	if _, err := program.build(k, q.req, providers.Host{Environ: q.req.Host.Environ}); err != nil {
		return nil, err // without a look at the workspace
	}
	r, err := resolve(q)
	if err != nil {
		return nil, err
	}
	if r.place, err = program.build(k, q.req, r.host()); err != nil {
		return nil, err
	}
	p, err := prepare(r, false)
	return p.answers, err
}
