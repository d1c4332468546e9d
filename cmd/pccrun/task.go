//go:build unix && !launcher

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/task"
)

// taskVerb is `pccrun task`: a prompt, or one of its own verbs.
func taskVerb(args []string) int {
	own := map[string]func([]string) int{"list": taskList, "show": taskShow, "diff": taskDiff, "rm": taskRemove, "clean": taskClean}
	if len(args) > 0 && own[args[0]] != nil {
		return own[args[0]](args[1:])
	}
	if ofManyTasks(args) {
		return manyTasks(args)
	}
	t := &taskLine{}
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
	code, err := work(stop, task.StoreIn(dirs.State), t.reporter(), order)
	if err != nil {
		code = t.refuse(err)
	}
	if sig := signalled(); sig != 0 {
		return 128 + int(sig)
	}
	return code
}

// work is the whole of a task, stage by stage.
func work(stop task.Stop, store task.Store, to taskReporter, o task.Order) (int, error) {
	var placed *task.Placed
	var err error
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
	to.begun(placed.Begun())
	placed.Announce()
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
	given               []string
	values              []givenValue // of flags in given
	json, quiet         bool
	request             profiles.Request
}

// A givenValue is where the value of a flag is.
type givenValue struct {
	at   int
	flag flagDef
}

// ownFlags are those that a run has not, or has otherwise.
func (t *taskLine) ownFlags() flags {
	o := &t.order
	return flags{
		"--agent": &t.agent, "--model": &o.Model, "--prompt-file": &t.file, "--name": &t.name, "--continue": &t.next, "--base": &o.Base,
		"--prepare": &o.Prepare, "--check": &o.Check, "--commit": &t.commit, "--git-user": &o.User.Name, "--git-email": &o.User.Email,
		"--in-place": &o.InPlace, "--dirty": &o.Dirty, "--json": &t.json, "-q": &t.quiet,
		"--timeout": func(text string) (err error) {
			if o.Timeout, err = time.ParseDuration(text); err != nil || o.Timeout <= 0 {
				return misuse(quote(text)+" is no duration", "e.g. 20m, 1h")
			}
			return nil
		},
		"--budget": func(text string) (err error) {
			if o.Budget, err = spending.ParseUSD(text); err != nil {
				return misuse(quote(text)+": "+err.Error(), "")
			}
			return nil
		},
		"--spending": func(path string) (err error) { o.Spending, err = filepath.Abs(path); return err },
		"--profile":  func(name string) error { t.request.Profile, o.Profile = name, name; return nil },
	}
}

// notOfTasks are the flags of a run that a task does not take, and why.
var notOfTasks = map[string]string{
	"--workspace": "start it in the repository: a task has a work tree of its own, and --in-place works in yours",
	"--dry-run":   "pccrun --dry-run -- AGENT prints the plan of an agent's run",
	"--events":    "--json prints what happens", "--log": "--json prints what happens", "-v": "--json prints all",
	"--pass-fd": "a task's phases are runs of their own", "--ask": "nobody is there to answer: name the host by --allow",
	"--from": "--base names a commit to begin with", "--keep": "tasks run on this machine", "--history": "tasks run on this machine",
	"--without": "an agent that asks nothing needs every layer", "--fresh-home": "the conversation lies in the home, and goes on there",
	"--runtime": "tasks run on this machine", "--docker-image": "tasks run on this machine", "--docker-network": "tasks run on this machine",
}

// runFlagsOf are the flags of a run as a task takes them: read as a run does, and kept as they were given.
func (t *taskLine) runFlagsOf() (defs []flagDef) {
	own := t.ownFlags()
	defs = own.defs()
	for _, d := range runFlags(&t.request) {
		if own[d.name] != nil {
			continue
		}
		is := d
		if why := notOfTasks[d.name]; why != "" {
			refuse := func() error { return misuse("not with a task", why) }
			if d.to = any(refuse); !is.isSwitch() {
				d.to = func(string) error { return refuse() }
			}
		} else if is.isSwitch() {
			d.to = func() error { t.given = append(t.given, is.name); return is.set("") }
		} else {
			d.to = func(value string) error {
				t.given, t.values = append(t.given, is.name, value), append(t.values, givenValue{len(t.given) + 1, is})
				if err := checkTaskFlag(is.name, value); err != nil {
					return err
				}
				return is.set(value)
			}
		}
		defs = append(defs, d)
	}
	return defs
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
		if value != providers.Native {
			return misuse(quote(value)+": tasks run on this machine", "leave it out, or --provider native")
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
	words, rest, _, err := parse(args, t.runFlagsOf())
	t.json = t.json || slices.Contains(args, "--json")
	o := &t.order
	switch {
	case err != nil:
	case t.file != "" && len(words) > 0:
		err = misuse("flag --prompt-file: the prompt is given twice", "")
	case t.next != "" && (t.name != "" || o.Base != "" || o.InPlace || o.Prepare != ""):
		err = misuse("flag --continue: not with --name, --base, --prepare or --in-place", "the task has its own")
	case o.Dirty && (t.next != "" || o.Base != "" || o.InPlace):
		err = misuse("flag --dirty: not with --continue, --base or --in-place", "it begins a task at HEAD, with what you have not committed")
	case t.file == "" && len(words) == 0:
		err = misuse("task: no prompt", `pccrun task "fix the flaky test"`)
	case len(words) > 1:
		err = misuse("unexpected argument "+quote(words[1]), "put quotes around the prompt")
	}
	if err != nil {
		return *o, err
	}
	if o.Prompt, err = t.prompt(words); err != nil {
		return *o, err
	}
	if err := task.CheckPrompt(o.Prompt); err != nil {
		return *o, err
	}
	host := profiles.ThisHost()
	t.request.Host = host
	if o.Name, o.Continue = t.name, t.next != ""; o.Continue {
		o.Name = t.next
	}
	if o.Leave = t.commit == "none"; !o.Leave {
		o.Commit = t.commit
	}
	if o.InPlace && t.commit == "" { // who works there commits, and knows what is his
		o.Leave = true
	}
	if o.Timeout == 0 {
		o.Timeout = time.Hour
	}
	if o.User.Name == "" {
		o.User.Name = host.Getenv("PARALLEL_CC_GIT_USER")
	}
	if o.User.Email == "" {
		o.User.Email = host.Getenv("PARALLEL_CC_GIT_EMAIL")
	}
	return *o, t.resolve(rest)
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
func (t *taskLine) resolve(rest []string) error {
	o := &t.order
	dirs, err := run.Dirs()
	if err != nil {
		return err
	}
	top := ""
	if t.agent == "" && o.Continue {
		if r, err := task.StoreIn(dirs.State).Find(o.Name, t.request.Host.Cwd); err == nil {
			t.agent, top = r.Agent, r.Repository
		}
	}
	if o.Agent, err = task.FindAgent(t.agent, t.request.Host.Getenv("PATH")); err != nil {
		return err
	}
	if err := o.Agent.Refuses(rest); err != nil {
		return err
	}
	o.Args = rest
	t.request.Command = []string{o.Agent.Name}
	policy, err := profiles.Resolve(t.request)
	if err != nil {
		return err
	}
	for _, v := range t.values {
		t.given[v.at] = pathThere(&v.flag, t.given[v.at], t.request.Host.Cwd, policy.Workspace)
	}
	o.Flags = t.given
	o.Profile = pathThere(&flagDef{name: "--profile", arg: "NAME|FILE"}, o.Profile, t.request.Host.Cwd, policy.Workspace)
	if o.Workspace, o.Home = policy.Workspace, policy.Home; top != "" {
		o.Workspace = top
	}
	return nil
}

// refuse prints why a task is not begun, or cannot go on, and returns the status to exit with.
func (t *taskLine) refuse(err error) int {
	var usage *messages.UsageError
	if errors.As(err, &usage) {
		failUsage(usage)
	} else {
		fail(inWords(err), profiles.Hint(err))
	}
	if t.json {
		printLine(object{{"type", "refused"}, {"errors", mistakes()}})
	}
	return refused
}
