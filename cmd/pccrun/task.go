//go:build unix && !launcher

package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/task"
)

// taskVerb is `pccrun task`: a prompt, or one of its own verbs.
func taskVerb(args []string) int {
	own := map[string]func([]string) int{"list": taskList, "show": taskShow, "diff": taskDiff, "rm": taskRemove, "clean": taskClean, "stop": taskStop, "kill": taskStop}
	if len(args) > 0 && own[args[0]] != nil {
		return own[args[0]](args[1:])
	}
	if given(args, "--file") {
		return manyTasks(args)
	}
	t := &taskLine{}
	if given(args, "--detach") {
		if code, gone := detachedTask(args, &t.started); gone {
			return code
		}
	}
	order, err := t.read(args)
	if err != nil {
		return t.refuse(err)
	}
	dirs, err := run.Dirs()
	if err != nil {
		return t.refuse(err)
	}
	stop, signalled, end := untilSignals(say)
	defer end()
	var code int
	if store := task.StoreIn(dirs.State); t.dryRun || t.tries {
		code, err = t.without(stop, store, order)
	} else {
		code, err = work(stop, store, t.reporter(), order)
	}
	if err != nil {
		code = t.refuse(err)
	}
	if sig := signalled(); sig != 0 {
		return 128 + int(sig)
	}
	return code
}

// work is the whole of a task, stage by stage.
func work(stop task.Stop, store task.Store, to taskReporter, o task.Order) (code int, err error) {
	var placed *task.Placed
	if o.Continue {
		placed, err = task.Continue(stop, store, to, o)
	} else {
		var asked *task.Asked
		if asked, err = task.Ask(stop, store, to, o); err == nil {
			placed, err = asked.Place()
		}
	}
	if err != nil {
		return refused, err
	}
	to.begun(store.Path(placed.Begun()), placed.Begun())
	placed.Announce()
	defer func() { placed.Notify(code, err) }()
	worked, err := placed.Work()
	if err != nil {
		return refused, err
	}
	checked, err := worked.Check()
	if err != nil {
		return refused, err
	}
	committed, err := checked.Commit()
	if err != nil {
		return refused, err
	}
	fetched, err := committed.Fetch()
	if err != nil {
		return refused, err
	}
	result := fetched.Result()
	to.result(&result)
	return result.Status, nil
}

// without makes the work tree of a task, says what of it would go to a cloud, or fills the agent's sandbox with it, and removes
// what was made. The agent does not start.
func (t *taskLine) without(stop task.Stop, store task.Store, o task.Order) (code int, err error) {
	to := &taskText{quiet: t.quiet}
	asked, err := task.Ask(stop, store, to, o)
	if err != nil {
		return refused, err
	}
	placed, err := asked.Place()
	if err != nil {
		return refused, err
	}
	placed.Announce()
	done := "a sandbox was made, filled, ended and removed, and the agent not started"
	if t.tries {
		err = placed.Try()
	} else {
		done = "nothing was sent"
		if !task.Elsewhere(o.Place) {
			to.Line("nothing goes up on this machine: this is what a cloud would get")
		}
		hides := func(name string) string { return remote.Below(profiles.Read, o.Policy, name) }
		code = syncPack(stop.Soft, placed.Begun().Worktree, syncFlags{dryRun: true, json: t.json, hides: hides})
	}
	if err = errors.Join(err, placed.Undo()); err != nil {
		return refused, err
	}
	to.Line("dry run: " + done)
	return code, nil
}

// untilSignals returns a stop that the first signal makes soft, and the second hard, and which signal came first.
func untilSignals(said func(text string)) (stop task.Stop, first func() syscall.Signal, end func()) {
	hard, endHard := context.WithCancel(context.Background())
	soft, endSoft := context.WithCancel(hard)
	signals := make(chan os.Signal, 4)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	signal.Notify(signals, syscall.SIGPIPE) // whoever reads what happens may go, and the task goes on
	run.LeaveSignals()
	var came atomic.Int32
	go func() {
		for sig := range signals {
			if sig == syscall.SIGPIPE {
				continue
			}
			if came.CompareAndSwap(0, int32(sig.(syscall.Signal))) {
				said("interrupted: what stands is committed; once more ends all at once")
				endSoft()
			} else if sig != syscall.SIGHUP { // which a terminal that goes, or a parent, may send more than once
				endHard()
			}
		}
	}()
	return task.Stop{Soft: soft, Hard: hard}, func() syscall.Signal { return syscall.Signal(came.Load()) }, func() {
		signal.Stop(signals)
		close(signals)
		endHard()
	}
}

// A taskLine is the command line of a task.
type taskLine struct {
	order               task.Order
	agent, file, commit string
	name, next          string // --name, --continue
	notify              string // a command
	worktree            string // a linked work tree that stands, "" for one of the task's own
	given               []givenFlag
	before              task.Record // of a task that goes on
	forget              bool        // what was given before does not hold
	settings            profiles.TaskSettings
	json, quiet, detach bool
	dryRun, tries       bool                   // the agent does not start
	started             func(dir, name string) // what to call when its agent runs; may be nil
	request             profiles.Request
}

// A givenFlag is a flag of each run of the task.
type givenFlag struct {
	flagDef
	value string // "" of a switch
	kept  bool   // given with an earlier order: its value is as for a run in the work tree
}

// there are its words as for a run in the work tree.
func (g *givenFlag) there(host *profiles.Host, workspace string) []string {
	if g.kept {
		return g.words(g.value)
	}
	there := pathThere(&g.flagDef, g.value, host.Cwd, workspace)
	if g.name != "--hide" {
		return g.words(there)
	}
	path := there
	if below, is := strings.CutPrefix(there, "~/"); is {
		path = filepath.Join(cmp.Or(host.Getenv("HOME"), host.Home), below)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && filepath.IsAbs(path) { // the work tree's path is without links
		path = filepath.Join(dir, filepath.Base(path))
	}
	if rest, err := filepath.Rel(workspace, path); filepath.IsAbs(path) && err == nil && filepath.IsLocal(rest) {
		return append(g.words(there), g.words("./"+rest)...) // the work tree's copy of it, too
	}
	return g.words(there)
}

// ownFlags are those that a run has not, or has otherwise.
func (t *taskLine) ownFlags() flags {
	o := &t.order
	return flags{
		"--agent": &t.agent, "--model": &o.Model, "--prompt-file": &t.file, "--name": &t.name, "--continue": &t.next, "--worktree": &t.worktree, "--notify": &t.notify, "--base": &o.Base, "--from": &o.From,
		"--prepare": &o.Prepare, "--prepare-allow": func(host string) error { o.PrepareAllow = append(o.PrepareAllow, host); return nil }, "--check": &o.Check, "--until": &o.Until, "--commit": &t.commit, "--git-user": &o.User.Name, "--git-email": &o.User.Email,
		"--skip-claude-update": &o.SkipsUpdate, "--in-place": &o.InPlace, "--dirty": &o.Dirty, "--forget-flags": &t.forget, "--json": &t.json, "-q": &t.quiet, "--detach": &t.detach, "--dry-run": &t.dryRun, "--try": &t.tries,
		"--timeout": durationIn(&o.Timeout, 1, "e.g. 20m, 1h"), "--budget": dollarsIn(&o.Budget), "--max-runs": numberIn(&o.MaxRuns, mostRuns),
		"--spending": func(path string) (err error) { o.Spending, err = filepath.Abs(path); return err },
		"--profile":  func(name string) error { t.request.Profile, o.Profile = name, name; return nil },
	}
}

// durationIn, dollarsIn and numberIn put the value of a flag where it is to be: a duration that is no shorter than least, a budget,
// and a number from 1 to most.
func durationIn(to *time.Duration, least time.Duration, example string) func(string) error {
	return func(text string) (err error) {
		if *to, err = time.ParseDuration(text); err != nil || *to < least {
			return misuse(quote(text)+" is no duration", example)
		}
		return nil
	}
}

func dollarsIn(to *spending.USD) func(string) error {
	return func(text string) (err error) {
		if *to, err = spending.ParseUSD(text); err != nil {
			return misuse(quote(text)+": "+err.Error(), "")
		}
		return nil
	}
}

func numberIn(to *int, most int) func(string) error {
	return func(text string) (err error) {
		if *to, err = strconv.Atoi(text); err != nil || *to < 1 || *to > most {
			return misuse(quote(text)+": want a number from 1 to "+strconv.Itoa(most), "")
		}
		return nil
	}
}

// Bounds of how often an agent runs until a command succeeds.
const (
	usualRuns = 5
	mostRuns  = 1000
)

// notOfTasks are the flags of a run that a task does not take, and why.
var notOfTasks = map[string]string{
	"--workspace": "start it in the repository: a task has a work tree of its own, and --in-place works in yours",
	"--dry-run":   "pccrun --dry-run -- AGENT prints the plan of an agent's run",
	"--events":    "--json prints what happens", "--log": "--json prints what happens", "-v": "--json prints all",
	"-t":        "it asks nothing: pccrun attach shows what happens",
	"--pass-fd": "a task's phases are runs of their own", "--ask": "nobody is there to answer: name the host by --allow",
	"--conversation": "an agent's own goes along", "--install": "agents.NAME.install of config.jsonc says how", "--history": "tasks run on this machine",
	"--without": "an agent that asks nothing needs every layer", "--fresh-home": "the conversation lies in the home, and goes on there",
	"--docker-network": "in a network of the engine no rule decides, and an agent that asks nothing needs one",
}

// inContainer is the other provider that shares the files of this machine.
const inContainer = "docker"

// placeFlags say where the runs of a task are.
var placeFlags = []string{"--provider", "--runtime", "--docker-image", "--image", "--size", "--region", "--keep"}

// sharedFor is how long a cloud's sandbox stands for the next run of the same task.
const sharedFor = "10m"

// runFlagsOf are the flags of a run as a task takes them: read as a run does, and kept as they were given.
func (t *taskLine) runFlagsOf() (defs []flagDef) {
	own := t.ownFlags()
	for _, name := range []string{"--jobs", "--total-budget", "--results"} { // manyLine has them
		own[name] = func(string) error { return misuse("it is for many tasks", "--file TASKS") }
	}
	own["--fail-fast"] = func() error { return misuse("it is for many tasks", "--file TASKS") }
	defs = own.defs()
	for _, d := range runFlags(&t.request) {
		if own[d.name] != nil {
			continue
		}
		defs = append(defs, d.through(func(value string) error {
			if why := notOfTasks[d.name]; why != "" {
				return misuse("not with a task", why)
			}
			if !slices.Contains(placeFlags, d.name) {
				t.given = append(t.given, givenFlag{flagDef: d, value: value})
			}
			if err := checkTaskFlag(d.name, value); err != nil {
				return err
			}
			return d.set(value)
		}))
	}
	return defs
}

// goOn takes what the user gave with the task before, where nothing else is given now.
func (t *taskLine) goOn(rest []string) (args []string, err error) {
	o, kept, workspace := &t.order, t.before.Kept, t.before.Repository
	if t.forget {
		kept = task.Kept{}
	}
	about := func(g *givenFlag) (all []string) {
		i := slices.IndexFunc(profiles.Flags[:], func(f profiles.Flag) bool { return f.Name == g.name })
		for words := range slices.Chunk(g.there(&t.request.Host, workspace), len(g.words(""))) {
			all = append(all, profiles.Flags[i].About(words[len(words)-1]))
		}
		return all
	}
	now := map[string]bool{}
	for i := range t.given {
		for _, what := range about(&t.given[i]) {
			now[what] = true
		}
	}
	defs := runFlags(&t.request)
	for i, d := range defs {
		defs[i] = d.through(func(value string) error {
			g := givenFlag{d, value, true}
			if now[about(&g)[0]] {
				return nil
			}
			t.given = append(t.given, g)
			if d.arg == "PATH" && strings.HasPrefix(value, "./") {
				value = filepath.Join(workspace, value)
			}
			return d.set(value)
		})
	}
	_, _, _, err = parse(kept.Flags, defs)
	o.Profile, o.Timeout = cmp.Or(o.Profile, kept.Profile), cmp.Or(o.Timeout, kept.Timeout)
	o.Check, o.Until, o.MaxRuns = cmp.Or(o.Check, kept.Check), cmp.Or(o.Until, kept.Until), cmp.Or(o.MaxRuns, kept.MaxRuns)
	o.User.Name, o.User.Email = cmp.Or(o.User.Name, kept.User.Name), cmp.Or(o.User.Email, kept.User.Email)
	t.request.Profile = o.Profile
	if t.agent = cmp.Or(t.agent, t.before.Agent); rest == nil && t.agent == t.before.Agent {
		rest = kept.Args
	}
	return rest, err
}

// pathThere is what a flag's value is for a run that starts in the work tree of the task. A path that is relative to the
// current directory becomes the same path in that work tree, or an absolute one where it leads out of the repository or names
// what pccrun itself opens.
func pathThere(d *flagDef, value, cwd, workspace string) string {
	name, path := "", value
	if strings.HasPrefix(d.arg, "NAME=") {
		at := strings.Index(value, "=") + 1
		name, path = value[:at], value[at:]
	}
	first, _, below := strings.Cut(path, "/")
	relative := first == "." || first == ".."
	if strings.HasSuffix(d.arg, "FILE") { // a file may be named without ./, where it cannot be taken for another name
		relative = relative || first != "" && first[0] != '~' && (below || d.arg == "FILE")
	} else if !strings.HasSuffix(d.arg, "PATH") {
		return value
	}
	if !relative || cwd == "" {
		return value
	}
	path = filepath.Join(cwd, path)
	if rest, err := filepath.Rel(workspace, path); d.arg == "PATH" && d.name != "--socket" && err == nil && filepath.IsLocal(rest) {
		return "./" + rest
	}
	return name + path
}

// checkTaskFlag refuses values with which nobody may let an agent work without questions.
func checkTaskFlag(name, value string) error {
	switch name {
	case "--provider":
		if value == providers.Auto {
			return misuse(quote(value)+": a task names its place", "native, docker for a container, or a cloud: pccrun doctor lists them")
		}
	case "--allow-missing":
		for g := range strings.SplitSeq(value, ",") {
			if strings.HasPrefix(g, "fs.") || strings.HasPrefix(g, "net.") {
				return misuse(quote(g)+": an agent that asks nothing needs it", "pccrun --allow-missing "+g+" -- AGENT runs one that asks")
			}
		}
	}
	return nil
}

// read reads the command line, and the prompt.
func (t *taskLine) read(args []string) (task.Order, error) {
	t.request.Host = profiles.ThisHost()
	words, rest, _, err := parse(args, t.runFlagsOf())
	t.json = t.json || slices.Contains(args, "--json")
	o := &t.order
	switch {
	case err != nil:
	case t.file != "" && len(words) > 0:
		err = misuse("flag --prompt-file: the prompt is given twice", "")
	case t.next != "" && (t.name != "" || o.Base != "" || o.InPlace || t.worktree != "" || o.Prepare != "" || o.PrepareAllow != nil):
		err = misuse("flag --continue: not with --name, --base, --prepare, --worktree or --in-place", "the task has its own")
	case t.forget && t.next == "":
		err = misuse("flag --forget-flags: it goes with --continue", "")
	case o.Dirty && (t.next != "" || o.Base != "" || o.InPlace):
		err = misuse("flag --dirty: not with --continue, --base or --in-place", "it begins a task at HEAD, with what you have not committed")
	case o.From != "" && (t.next != "" || o.Base != "" || o.Dirty || o.InPlace || t.worktree != ""):
		err = misuse("flag --from: not with --continue, --base, --dirty, --in-place or --worktree", "a task begins at the checkpoint's commit")
	case t.worktree != "" && (o.InPlace || o.Base != "" || o.Dirty):
		err = misuse("flag --worktree: not with --in-place, --base or --dirty", "it works in a work tree that stands, as it is")
	case (t.dryRun || t.tries) && (t.next != "" || t.detach):
		err = misuse("flags --dry-run and --try: not with --continue or --detach", "they make a work tree, and remove it")
	case t.file == "" && len(words) == 0 && (t.dryRun || t.tries):
		words = []string{"nothing"}
	case t.file == "" && len(words) == 0:
		on := ""
		if t.next != "" {
			on = "--continue " + shell.Quote(t.next) + " "
		}
		err = misuse("task: no prompt", "pccrun task "+on+`"fix the flaky test"`)
	case len(words) > 1:
		err = misuse("unexpected argument "+quote(words[1]), "put quotes around the prompt")
	}
	if err != nil {
		return *o, err
	}
	dirs, err := run.Dirs()
	if err != nil {
		return *o, err
	}
	if o.Name, o.Continue = t.name, t.next != ""; o.Continue {
		o.Name = t.next
		store, top, _, err := tasksHere(true)
		if err == nil {
			t.before, err = store.Find(o.Name, top)
		}
		if err != nil {
			return *o, err
		}
		if rest, err = t.goOn(rest); err != nil {
			return *o, err
		}
	}
	if o.Prompt, err = t.prompt(words); err != nil {
		return *o, err
	}
	if err := task.CheckPrompt(o.Prompt); err != nil {
		return *o, err
	}
	for _, f := range [][2]string{{"check", o.Check}, {"until", o.Until}, {"prepare", o.Prepare}} {
		if err := task.NoSecret("flag --"+f[0], f[1]); err != nil {
			return *o, err
		}
	}
	host := &t.request.Host
	settings, err := profiles.ReadSettings(t.request)
	if err != nil {
		return *o, err
	}
	if o.Leave = t.commit == "none"; !o.Leave {
		o.Commit = t.commit
	}
	o.InPlace = o.InPlace || t.worktree != ""
	if o.InPlace && t.commit == "" { // who works there commits, and knows what is his
		o.Leave = true
	}
	t.settings = settings.Task
	s := &t.settings
	o.Timeout, o.Dir, o.BranchPrefix = cmp.Or(o.Timeout, s.Timeout), s.Dir, s.BranchPrefix
	hosts := o.PrepareAllow
	if !o.Continue && !o.InPlace {
		o.Prepare, o.Copy, o.PrepareAllow = cmp.Or(o.Prepare, s.Prepare), s.Copy, slices.Concat(s.PrepareAllow, hosts)
	}
	if o.Prepare == "" && hosts != nil {
		return *o, misuse("flag --prepare-allow: nothing prepares", "--prepare COMMAND, or --allow for the agent's hosts")
	}
	if o.Until == "" && o.MaxRuns != 0 {
		return *o, misuse("flag --max-runs: of which command is not said", "--until COMMAND")
	} else if o.Until != "" {
		o.MaxRuns = cmp.Or(o.MaxRuns, usualRuns)
	}
	if o.User.Name == "" {
		o.User.Name = host.Getenv("PARALLEL_CC_GIT_USER")
	}
	if o.User.Email == "" {
		o.User.Email = host.Getenv("PARALLEL_CC_GIT_EMAIL")
	}
	return *o, t.resolve(dirs, rest)
}

// prompt returns the prompt's text.
func (t *taskLine) prompt(words []string) (string, error) {
	switch {
	case t.file != "":
		return task.PromptFrom(t.file)
	case words[0] != "-":
		return words[0], nil
	case isTerminal(os.Stdin):
		return "", misuse("task -: standard input is a terminal", "pccrun task - < FILE, or a pipe")
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, task.PromptSize+1))
	return string(text), err
}

// resolve finds the agent and the repository, and refuses flags that no run would take.
func (t *taskLine) resolve(dirs state.Dirs, rest []string) (err error) {
	o, before := &t.order, &t.before
	if o.From != "" {
		c, err := task.FindCheckpoint(task.StoreIn(dirs.State), o.From)
		if err != nil {
			return err
		}
		before.Agent = c.Agent
	}
	t.agent = cmp.Or(t.agent, before.Agent, t.settings.Agent)
	if r := &t.request; before.Place != nil && r.Provider != providers.Native { // never with less isolation than it began with
		if r.Provider = cmp.Or(r.Provider, before.Place[1]); r.Provider == before.Place[1] {
			asBefore(r, before)
		}
	}
	if err := t.placed(); err != nil {
		return err
	}
	if o.Agent, err = task.FindAgent(t.agent, t.request.Host.Getenv("PATH"), task.Elsewhere(o.Place) || task.Elsewhere(before.Place) || cmp.Or(o.Image, before.Image) != ""); err != nil {
		return err
	}
	if err := o.Agent.Refuses(rest); err != nil {
		return err
	}
	o.Args = rest
	if own := t.settings.Agents[o.Agent.Name]; own != nil {
		o.Installs = *own
	}
	t.request.Command = []string{o.Agent.Name}
	if o.Continue { // whose rules hold, wherever the order is given
		t.request.Workspace = before.Repository
	}
	if o.Place != nil { // of which settings of other tools speak, whoever named it
		t.request.Provider = o.Place[1]
	}
	policy, err := profiles.Resolve(t.request)
	if err != nil {
		return err
	}
	here := policy.Workspace
	if t.worktree != "" {
		if t.request.Workspace, err = task.FindWorktree(context.Background(), policy.Workspace, t.worktree); err == nil {
			policy, err = profiles.Resolve(t.request)
		}
	}
	if err != nil {
		return err
	}
	for i := range t.given {
		o.Flags = append(o.Flags, t.given[i].there(&t.request.Host, here)...)
	}
	o.Profile = pathThere(&flagDef{name: "--profile", arg: "NAME|FILE"}, o.Profile, t.request.Host.Cwd, here)
	o.Policy = policy
	if o.Timeout == 0 { // what one run may take, a task may
		o.Timeout = max(time.Hour, policy.Resources.Deadline())
	}
	if o.Prices, err = run.Prices(t.request.Host.Getenv, policy); err != nil {
		return err
	}
	if command := cmp.Or(t.notify, t.settings.Notify); command != "" {
		finder := run.Programs(&t.request.Host, dirs.State).For(policy.Changes, say)
		if o.Notifier, err = task.FindNotifier(command, finder); err != nil {
			return err
		}
	}
	if !t.quiet && !t.json && isTerminal(os.Stderr) {
		o.Notifier.Bell = os.Stderr
	}
	o.Workspace, o.Home, o.Program = cmp.Or(before.Repository, policy.Workspace), policy.Home, thisProgram()
	return nil
}

// asBefore has a task that goes on have of its place what it had, where nothing else is given now.
func asBefore(r *profiles.Request, before *task.Record) {
	if r.Image == "" {
		r.DockerImage = cmp.Or(r.DockerImage, before.Image)
	}
	for name, value := range map[string]*string{"--runtime": &r.Runtime, "--image": &r.Image, "--size": &r.Size, "--region": &r.Region} {
		if i := slices.Index(before.Place, name); i >= 0 && *value == "" {
			*value = before.Place[i+1]
		}
	}
}

// placed says where the runs of a task are, as where one run would be.
func (t *taskLine) placed() error {
	r, o := &t.request, &t.order
	provider, by, err := run.Chosen(r)
	switch {
	case err != nil:
		return err
	case provider != inContainer && (r.Runtime != "" || r.DockerImage != ""):
		return misuse("flags --runtime, --docker-image: they are for containers", "--provider docker")
	case r.Keep != "" && (provider == inContainer || provider == providers.Native || provider == providers.Auto):
		return misuse("flag --keep: the provider is "+provider+", which has no sandbox to be kept", "")
	case provider == providers.Native || provider == providers.Auto:
		return nil
	case provider != inContainer && (o.Budget > 0 || o.Spending != ""):
		return misuse("--provider "+provider+": what requests cost is not counted there", "--provider native or docker, or no budget")
	case provider != inContainer:
		return t.atCloud(provider, by)
	case r.Host.UID == 0:
		return misuse("--provider docker: as root the work tree would be root's, which no command in a container is", "start it as the user whose repository it is")
	}
	o.Place, o.Image = []string{"--provider", inContainer}, cmp.Or(r.DockerImage, r.Image, r.Host.Getenv("PARALLEL_CC_DOCKER_IMAGE"))
	if r.Runtime != "" {
		o.Place = append(o.Place, "--runtime", r.Runtime)
	}
	if o.Image != "" {
		o.Place = append(o.Place, "--docker-image", o.Image)
	}
	o.Place = append(o.Place, t.chosen("--size", "--region")...)
	return nil
}

// chosen are those of the flags that the user gave.
func (t *taskLine) chosen(names ...string) (flags []string) {
	r := &t.request
	for _, name := range names {
		if text := map[string]string{"--image": r.Image, "--size": r.Size, "--region": r.Region}[name]; text != "" {
			flags = append(flags, name, text)
		}
	}
	return flags
}

// atCloud has the runs of a task be at a cloud. They share a sandbox, which is not kept longer if the user does not say so; where the
// cloud keeps none each has one of its own, to which no more comes than the work tree and the conversation.
func (t *taskLine) atCloud(provider, by string) error {
	o := &t.order
	if kind, err := providers.KindOf(provider); err != nil || !kind.Cloud {
		return misuse(by+" names "+provider+": no tasks run there", "native, docker for a container, or a cloud: pccrun doctor lists them")
	}
	switch {
	case o.InPlace || t.worktree != "" || t.before.InPlace:
		return misuse("--provider "+provider+": not with --in-place or --worktree", "what a cloud changes is applied to a work tree of the task's own")
	case len(o.PrepareAllow) > 0:
		return misuse("--provider "+provider+": not with --prepare-allow", "--allow HOST opens it to all of the task")
	}
	there, err := newProvider(provider, &t.request, providers.Host{Environ: t.request.Host.Environ})
	if err != nil {
		return err
	}
	o.Place, o.Keep = []string{"--provider", provider}, t.request.Keep != ""
	switch r, is := there.(*remote.Provider); {
	case !is || r.CannotKeep() == nil:
		o.Place = append(o.Place, "--keep", cmp.Or(t.request.Keep, sharedFor))
	case o.Keep:
		return misuse(r.CannotKeep().Error(), "leave --keep out")
	case o.Prepare != "":
		return misuse("--provider "+provider+": not with --prepare: each run of a task has a new sandbox there, without what git ignores", "--provider native, docker, e2b or daytona")
	}
	o.Place = append(o.Place, t.chosen("--image", "--size", "--region")...)
	return nil
}

// refuse prints why a task is not begun, or cannot go on, and returns the status to exit with.
func (t *taskLine) refuse(err error) int {
	var usage *messages.UsageError
	if errors.As(err, &usage) {
		failUsage(usage)
	} else {
		for _, mistake := range profiles.Mistakes(err) {
			fail(inWords(mistake), profiles.Hint(mistake))
		}
	}
	if t.json {
		printLine(object{{"type", "refused"}, {"errors", mistakes()}})
	}
	return refused
}
