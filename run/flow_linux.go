package run

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/homes"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/sessions"
	"github.com/pccrun/pccrun/state"
	"github.com/pccrun/pccrun/survey"
)

// flow is what a run is wherever its command runs.
type flow struct {
	program  Program
	provider string
	req      *profiles.Request
	policy   *profiles.Policy
	dirs     state.Dirs
	session  *sessions.Session
	log      *events.Log

	// What is known once the run is planned.
	answers  []profiles.Answer
	warnings []string
	workDir  string          // where the command starts
	watched  *survey.Guarded // what it may write of this machine's
	tells    bool            // the command has a file that tells it of refusals

	home  *homes.Home       // nil: it is not persistent
	seeds map[string]string // what a fresh home begins with

	running  atomic.Bool // the command
	denials  *os.File
	guarded  guarded
	kept     *transcript     // of what the command prints, if that is wanted
	left     []events.Change // what the run changed, once it was looked at
	missed   unreached
	crowded  atomic.Int64                      // connections that were reset for want of room
	planTold bool                              // see tellPlan
	told     string                            // why the run was refused
	upper    bool                              // the session holds what overlays change
	lower    func(layer int) (*os.Root, error) // opens what an overlay lies on
	noted    func() (overlaid, error)          // [flow.noteUpper], once
}

// resolve reads the policy, finds pccrun's own directories, and looks after runs that were
// killed, before anything is looked at in their workspaces.
func (f *flow) resolve() int {
	policy, err := profiles.Resolve(*f.req)
	if err != nil {
		return f.refused(messages.FailWith(err), err)
	}
	f.policy = policy
	if f.req.Learn {
		policy.Attempts = false // its traces stand where the command would find nothing
	}
	if f.dirs, err = state.Find(f.req.Host.Getenv, policy.Home); err != nil {
		return messages.Fail(messages.InWords(err))
	}
	for _, dir := range [...]struct{ path, variable string }{{f.dirs.State, "XDG_STATE_HOME"}, {f.dirs.Cache, "XDG_CACHE_HOME"}} {
		if err := state.Outside(dir.path, policy.Workspace); err != nil {
			return messages.Fail(messages.InWords(err), dir.variable+"=DIR names another directory")
		}
	}
	if err := Settle(sessions.In(f.dirs.State), f.program); errors.Is(err, state.ErrUnsafe) {
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

// look surveys this machine, and finds the files that the command's name stands for. A name
// that stands for none is an error beside the survey. Network says that hosts may be reached
// that the policy does not name.
func (f *flow) look(network bool) (*survey.Survey, []string, error) {
	host := &f.req.Host
	o := survey.Options{
		IndexDir: f.dirs.Cache, Within: scanWithin, Own: f.dirs.State, Home: f.homeDir(), Earliest: sessions.In(f.dirs.State).Earliest,
		Getenv: host.Getenv, Environ: host.Environ, Network: network,
	}
	if f.req.DryRun {
		o.Within = 0 // whoever only looks can wait, and what is read helps the next run
	}
	paths, absent := survey.Programs(f.policy, f.req.Command[0], host.Environ)
	if absent != nil && f.provider == providers.Native {
		return nil, nil, absent
	}
	o.Command = paths
	looked, err := survey.Look(f.policy, o)
	if err == nil {
		err = absent
	}
	return looked, paths, err
}

// scanWithin is how long a launch looks through the workspace. One that refuses has two
// seconds in all: the rest of them is for its start, and to write down what it has read.
const scanWithin = 1500 * time.Millisecond

// PlanAlone plans a run on this machine that another program is to start, and that nobody
// looks after when it is over.
func PlanAlone(policy *profiles.Policy, host *profiles.Host, argv []string) (*native.Run, error) {
	paths, err := survey.Programs(policy, argv[0], host.Environ)
	if err != nil {
		return nil, err
	}
	looked, err := survey.Look(policy, survey.Options{Getenv: host.Getenv, Environ: host.Environ, Command: paths, Alone: true})
	if err != nil {
		return nil, err
	}
	return native.New(policy, looked, paths, native.Host{Environ: host.Environ}, argv)
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
	if f.req.Verbose || policy.PickedBy != "default" || policy.Workspace != policy.WorkDir {
		messages.Say("profile " + policy.Profile + " (" + policy.PickedBy + "), workspace " + policy.Workspace)
	}
}
