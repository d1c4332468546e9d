//go:build unix && !launcher

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/task"
)

// Scripts that were written for parallel-cc go on. Its words stand in one table, with what pccrun makes of each in its own;
// nothing else knows them. The line that comes of it is checked, and refused, as one that was typed.

// A parallelLine is a command line in parallel-cc's words.
type parallelLine struct {
	verb    string     // run, status, …
	seconds bool       // --timeout counts seconds
	own     [][]string // flags of pccrun's, each with its value
	notes   []string   // what is printed before it is done

	repo, session             string
	prompt, promptFile, phase string
	provider                  string
	only                      [][2]string // flags, and the provider that each is for
	machine, localLog         string      // files
	results                   string      // a directory
	instead                   string      // pccrun's verb for --reconnect and --pull
	keeps                     bool
}

// A parallelWord is flags of parallel-cc's, of some verbs, and what becomes of them, as in a [flagDef].
type parallelWord struct {
	of, names string
	to        any
}

// words is the table.
func (l *parallelLine) words() []parallelWord {
	const runs, of = "run resume", "status logs download kill health checkpoint"
	return []parallelWord{
		{runs + " status", "--repo", &l.repo},
		{of, "--session-id", &l.session},
		{runs + " status health checkpoint", "--json", l.turns("--json")},

		// What is to be done.
		{runs, "--prompt", &l.prompt},
		{"run", "--prompt-file --apm-plan", l.path(&l.promptFile)},
		{"run", "--focus-phase --apm-phase", &l.phase},
		{"run", "--session", &l.session},
		{"run", "--reconnect", func() error { l.instead = "attach"; return nil }},
		{"run", "--pull", func() error { l.instead = "download"; return nil }},
		{runs, "--branch", l.branch},
		{"resume", "--checkpoint-id", l.passes("--from")},
		{"run", "--task-file", l.fileOf("--file")},
		{"run", "--max-concurrent", l.passes("--jobs")},
		{"run", "--output-dir", l.path(&l.results)},
		{"run", "--multi", l.turns("")},

		// Where.
		{runs, "--provider", &l.provider},
		{runs, "--e2b-template", l.at("e2b", "--e2b-template", "--image")},
		{runs, "--daytona-target", l.at("daytona", "--daytona-target", "--region")},
		{runs, "--docker-network", so("none", "not with a task: "+notOfTasks["--docker-network"], "")},
		{runs, "--native-config", l.fileOf("--settings")},
		{runs, "--sandbox-config", l.path(&l.machine)},
		{runs, "--working-dir", so("/workspace", "inside, files have the paths that pccrun prints", "name the directory in the prompt")},
		{runs, "--upload-repo --stream", l.turns("")},
		{runs, "--no-cleanup", &l.keeps},
		{runs, "--github-token", l.githubToken},

		// How.
		{runs, "--timeout", l.timeout},
		{runs, "--no-stream", l.turns("-q")},
		{runs, "--local-log", l.path(&l.localLog)},
		{runs, "--on-success", func(command string) error {
			l.note("--on-success runs inside, as --check does, and decides whether the task has succeeded")
			l.give("--check", command)
			return nil
		}},

		{"status", "--sandbox-only", l.turns("")},
		{"logs", "--follow", l.turns("--follow")},
		{"logs", "--output", l.turns("--output")},
		{"logs", "--tail", l.passes("--tail")},
		{"logs", "--save", l.passes("--save")},
		{"download", "--output", l.passes("--to")},
		{"download", "--selective", l.turns("")},
		{"download", "--all", l.turns("--all")},
		{"download", "--filter", func(list string) error {
			for glob := range strings.SplitSeq(list, ",") {
				l.give("--filter", strings.TrimSpace(glob))
			}
			return nil
		}},
		{"kill", "--no-download", l.turns("--no-download")},
		{"kill", "--keep-worktree", l.turns("")}, // nothing but task rm removes one
	}
}

// turns is for a switch, and passes for a flag with the same value, that pccrun has under a name of its own: "" for what is so anyway.
func (l *parallelLine) turns(flag string) func() error {
	return func() error { l.give(flag); return nil }
}

func (l *parallelLine) passes(flag string) func(string) error {
	return func(value string) error { l.give(flag, value); return nil }
}

// defs are the flags of the verb: of a run those of a task too, as far as the table has no other meaning for them.
func (l *parallelLine) defs() (defs []flagDef) {
	for _, w := range l.words() {
		if slices.Contains(strings.Fields(w.of), l.verb) {
			for name := range strings.FieldsSeq(w.names) {
				defs = append(defs, flagDef{name: name, to: w.to})
			}
		}
	}
	if l.verb != "run" && l.verb != "resume" {
		return defs
	}
	for _, d := range (&manyLine{}).defs() {
		if !slices.Contains(flagNames(defs), d.name) {
			defs = append(defs, d.through(func(value string) error { l.give(d.words(value)...); return nil }))
		}
	}
	return defs
}

// give gives pccrun's verb a flag, if it is one and its value is given.
func (l *parallelLine) give(flag ...string) {
	if !slices.Contains(flag, "") {
		l.own = append(l.own, flag)
	}
}

// has reports whether pccrun's verb gets one of these flags.
func (l *parallelLine) has(flags ...string) bool {
	return slices.ContainsFunc(l.own, func(f []string) bool { return slices.Contains(flags, f[0]) })
}

// so is for a flag of which pccrun does one value alone, and that anyway.
func so(only, why, hint string) func(string) error {
	return func(value string) error {
		if value == only {
			return nil
		}
		return misuse(quote(value)+": "+why, hint)
	}
}

// path keeps the absolute path, since --repo changes the directory; fileOf gives it to a flag.
func (l *parallelLine) path(to *string) func(string) error {
	return func(value string) (err error) { *to, err = filepath.Abs(value); return err }
}

func (l *parallelLine) fileOf(flag string) func(string) error {
	return func(value string) (err error) {
		if value != "-" {
			value, err = filepath.Abs(value)
		}
		l.give(flag, value)
		return err
	}
}

// at is for a flag of one provider's.
func (l *parallelLine) at(provider, flag, own string) func(string) error {
	return func(value string) error {
		l.only = append(l.only, [2]string{flag, provider})
		l.give(own, value)
		return nil
	}
}

func (l *parallelLine) note(text string) { l.notes = append(l.notes, text) }

func (l *parallelLine) timeout(text string) error {
	unit, one := "minutes", time.Minute
	if l.seconds {
		unit, one = "seconds", time.Second
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return misuse(quote(text)+": want a number of "+unit, "sandbox-run counts seconds, sandbox run minutes")
	}
	l.note("--timeout " + text + ": " + unit + " (sandbox-run counts seconds, sandbox run minutes)")
	l.give("--timeout", (time.Duration(n) * one).String())
	return nil
}

func (l *parallelLine) branch(name string) error {
	if name == "auto" {
		return nil
	}
	name = strings.ReplaceAll(name, "/", "-")
	l.note("--branch: the task is named " + name + ", and its branch task/" + name + ", or as branch.prefix of config.jsonc says")
	l.give("--name", name)
	return nil
}

func (l *parallelLine) githubToken(value string) error {
	if profiles.IsRepository(value) {
		l.give("--github-token", value)
		return nil
	}
	if value == "" {
		return misuse("the token is empty", "export GITHUB_TOKEN, and give --github-token origin")
	}
	l.note("--github-token TOKEN: other users of this machine can read it in the list of processes: export GITHUB_TOKEN, and give --github-token origin")
	l.give("--github-token", "origin")
	return os.Setenv("GITHUB_TOKEN", value)
}

// sized gives pccrun's verb what the file of --sandbox-config says of the machine.
func (l *parallelLine) sized(provider string, cloud bool) error {
	if l.machine == "" {
		return nil
	}
	var m struct {
		Image             string
		CPU, Memory, Disk json.Number // the last two in MiB
		Env               map[string]string
	}
	text, err := profiles.ReadFile(l.machine)
	if err == nil {
		in := json.NewDecoder(bytes.NewReader(text))
		in.DisallowUnknownFields()
		err = in.Decode(&m)
	}
	switch {
	case err != nil:
		return misuse("flag --sandbox-config: "+l.machine+": "+inWords(err), "")
	case m.Image != "" && !cloud && provider != inContainer:
		return misuse("flag --sandbox-config: image: the provider is "+provider+", which has none", "--provider docker, or a cloud")
	case m.Disk != "" && cloud:
		l.note("--sandbox-config: disk: the place decides")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		l.give("--env", name+"="+m.Env[name])
	}
	of := func(n json.Number, unit string) string {
		if n == "" {
			return ""
		}
		return n.String() + unit
	}
	l.give("--image", m.Image)
	if cloud {
		l.give("--size", strings.Trim(of(m.CPU, "cpu")+","+of(m.Memory, "m"), ","))
		return nil
	}
	l.give("--cpus", of(m.CPU, ""))
	l.give("--memory", of(m.Memory, "m"))
	l.give("--disk", of(m.Disk, "m"))
	return nil
}

// sandboxVerb is `pccrun sandbox run` and the others of parallel-cc's verbs.
func sandboxVerb(args []string) int {
	l := &parallelLine{}
	line, err := l.read(args)
	if err != nil {
		return failUsage(err)
	}
	for _, text := range l.notes {
		say(text)
	}
	shown := slices.Clone(line)
	for i := 1; i < len(shown); i++ { // a variable's value is nobody's concern
		if name, _, is := strings.Cut(shown[i], "="); is && shown[i-1] == "--env" {
			shown[i] = name + "=…"
		}
	}
	say("as: pccrun " + commandLine(shown))
	os.Args = append(os.Args[:1:1], line...) // what goes on by itself is started with it
	if l.localLog != "" {
		return l.logged(line)
	}
	return Main(line)
}

// read reads parallel-cc's command line, and returns pccrun's.
func (l *parallelLine) read(args []string) ([]string, error) {
	const verbs = "run, status, logs, download, kill, health, checkpoint or resume"
	if len(args) == 0 {
		return nil, misuse("sandbox: want "+verbs, "")
	}
	l.verb = strings.TrimPrefix(args[0], "sandbox-")
	l.seconds = l.verb != args[0]
	if err := notHere(l.verb); err != nil {
		return nil, err
	}
	if !slices.Contains(strings.Fields("run resume status logs download kill health checkpoint"), l.verb) {
		return nil, misuse("sandbox: no "+quote(args[0]), "it has "+verbs)
	}
	args = slices.Clone(args[1:])
	for i := range args {
		if args[i] == "--" {
			break
		}
		if err := notHere(args[i]); err != nil && strings.HasPrefix(args[i], "--") {
			return nil, err
		}
		if args[i] == "--dry-run=full" {
			args[i] = "--try"
		}
	}
	words, rest, _, err := parse(args, l.defs())
	if err != nil {
		return nil, err
	}
	if l.repo != "" {
		if err := os.Chdir(l.repo); err != nil {
			return nil, misuse("flag --repo: "+inWords(err), "")
		}
	}
	if l.instead != "" {
		l.verb, l.own = l.instead, nil
	}
	if l.verb == "run" || l.verb == "resume" {
		return l.task(words, rest)
	}
	return l.about(words)
}

// task makes the line of a task.
func (l *parallelLine) task(words, rest []string) ([]string, error) {
	if err := unexpected(words, 0, "--prompt TEXT"); err != nil {
		return nil, err
	}
	host := profiles.ThisHost()
	switch host.Getenv("PARALLEL_CC_LOG_LEVEL") {
	case "error", "silent", "none":
		l.give("-q")
	case "debug":
		l.note("PARALLEL_CC_LOG_LEVEL=debug: each step is printed anyway; --json prints all")
	}
	if err := l.placed(&host); err != nil {
		return nil, err
	}
	line := []string{"task"}
	switch {
	case l.localLog != "" && l.has("--detach"):
		return nil, misuse("flag --local-log: not with --detach", "pccrun attach shows what was printed")
	case l.results != "" && !l.has("--file"):
		return nil, misuse("flag --output-dir: it is for many tasks", "--task-file TASKS")
	case l.verb == "resume" && !l.has("--from"):
		return nil, misuse("sandbox resume: want a checkpoint", "--checkpoint-id NAME; pccrun checkpoint list has them")
	case l.verb == "resume":
		l.prompt = cmp.Or(l.prompt, "Continue.")
	case l.session != "":
		line = append(line, "--continue", l.session)
	}
	line = append(line, slices.Concat(l.own...)...)
	switch {
	case l.phase != "" && l.promptFile == "":
		return nil, misuse("flag --focus-phase: of which file is not said", "--prompt-file FILE")
	case l.phase != "":
		l.promptFile += "#phase-" + l.phase
	case l.prompt == "" && l.promptFile == "" && !l.has("--dry-run", "--try", "--file"):
		return nil, misuse("sandbox "+l.verb+": no prompt", "--prompt TEXT, or --prompt-file FILE")
	}
	if l.promptFile != "" {
		line = append(line, "--prompt-file", l.promptFile)
	}
	if l.results != "" {
		if err := os.MkdirAll(l.results, 0o755); err != nil {
			return nil, misuse("flag --output-dir: "+inWords(err), "")
		}
		line = append(line, "--results", filepath.Join(l.results, "summary-report.md"))
	}
	if strings.HasPrefix(l.prompt, "-") { // which would be a flag, or standard input
		l.prompt = " " + l.prompt
	}
	if l.prompt != "" {
		line = append(line, l.prompt)
	}
	if rest != nil {
		line = append(append(line, "--"), rest...)
	}
	return line, nil
}

// keptFor is how long --no-cleanup keeps a cloud's sandbox.
const keptFor = "1h"

// placed says where the task is to be, in pccrun's flags.
func (l *parallelLine) placed(host *profiles.Host) error {
	provider, by, err := run.Chosen(&profiles.Request{Provider: l.provider, Host: *host})
	if err != nil {
		return err
	}
	kind, _ := providers.KindOf(provider)
	if l.provider != "" {
		l.give("--provider", l.provider)
	} else if by == "default" && !l.seconds && l.verb == "run" {
		l.note("on this machine; parallel-cc's sandbox run was at E2B: --provider e2b")
	}
	for _, f := range l.only {
		if f[1] != provider {
			return misuse("flag "+f[0]+": the provider is "+provider, "--provider "+f[1])
		}
	}
	if err := l.sized(provider, kind.Cloud); err != nil {
		return err
	}
	auto := host.Getenv("PARALLEL_CC_SANDBOX_AUTO_CLEANUP")
	switch keeps := l.keeps || auto == "false" || auto == "0"; {
	case !keeps || l.has("--keep", "--try"):
	case kind.Cloud:
		l.note("the sandbox is kept for " + keptFor + ": --keep DURATION says otherwise")
		l.give("--keep", keptFor)
	default:
		l.note("no sandbox is left to be kept here; the work tree stays until pccrun task rm")
	}
	return nil
}

// parallelAbout are pccrun's verbs about what was begun before: a task, by its name, and a session.
var parallelAbout = map[string]struct{ task, session []string }{
	"status":     {[]string{"task", "show"}, []string{"stats"}},
	"health":     {nil, []string{"stats"}},
	"logs":       {nil, []string{"logs"}},
	"download":   {nil, []string{"download"}},
	"kill":       {[]string{"task", "stop"}, []string{"kill"}},
	"attach":     {[]string{"attach"}, []string{"attach"}},
	"checkpoint": {[]string{"checkpoint"}, []string{"snapshot", "--session"}},
}

// about makes the line of a verb about what was begun before, by a task's name or a session's id.
func (l *parallelLine) about(words []string) ([]string, error) {
	most := 0
	if l.verb == "checkpoint" { // its name
		most = 1
	}
	if l.session == "" && len(words) > 0 {
		l.session, words = words[0], words[1:]
	}
	if err := unexpected(words, most, "name one session or task"); err != nil {
		return nil, err
	}
	t, e, err := l.named()
	if err != nil {
		return nil, err
	}
	verbs := parallelAbout[l.verb]
	line, id, of := verbs.session, e.ID, t.Name
	switch {
	case l.verb == "status" && l.session == "":
		if line = []string{"ps"}; l.repo != "" {
			l.give("--here")
		}
	case l.verb == "checkpoint" && l.session == "":
		return nil, misuse("sandbox checkpoint: want a task", "--session-id NAME; pccrun task list has them")
	case id != "" && of != "" && l.verb == "kill" && (t.State != task.Working && e.Standing || l.has("--no-download")): // its sandbox is kept, or its work is not wanted
	case of != "" && verbs.task != nil && !l.has("--no-download"): // task stop commits what stands
		line, id = verbs.task, of
	case of != "" && l.verb == "download" && e.State != sessions.Running && !e.Unfetched:
		return nil, misuse("task "+of+" has ended: its branch has what it changed", "pccrun task diff "+of)
	case of != "" && id == "":
		return nil, misuse("task "+of+": none of its runs is recorded", "pccrun task show "+of)
	}
	if l.verb == "download" && l.has("--all", "--filter") && !l.has("--to") {
		l.give("--to", "sandbox-results")
	}
	if line = slices.Clone(line); id != "" {
		line = append(line, id)
	}
	return slices.Concat(line, words, slices.Concat(l.own...)), nil
}

// named finds the task of a name, one without a name for none, and the newest of its sessions, or the session of an id.
func (l *parallelLine) named() (t task.Record, e sessions.Entry, err error) {
	home, err := run.Sessions()
	if err != nil || l.session == "" {
		return t, e, err
	}
	store, top, _, err := tasksHere(true)
	if err != nil {
		return t, e, err
	}
	if t, err = store.Find(l.session, top); err == nil {
		if t.State == task.Working && !store.Running(t) { // it was killed
			t.State = task.Stopped
		}
		e, _, err = home.Newest(func(e sessions.Entry) bool { return e.Workspace == t.Worktree })
		return t, e, err
	}
	if e, err = home.Find(l.session); errors.Is(err, sessions.ErrNoSession) {
		err = misuse("no task, and no session "+quote(l.session), "pccrun task list --all, and pccrun ps --all")
	}
	return task.Record{}, e, err
}

// logged does what a line says, and adds what that prints to the file of --local-log.
func (l *parallelLine) logged(line []string) int {
	log, err := os.OpenFile(l.localLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fail("flag --local-log: " + inWords(err))
	}
	defer log.Close()
	if info, err := log.Stat(); err != nil || !info.Mode().IsRegular() {
		return fail("flag --local-log: " + l.localLog + " is no file")
	}
	endOut, err := tee(&os.Stdout, log)
	if err != nil {
		return fail(inWords(err))
	}
	endErr, err := tee(&os.Stderr, log)
	if err != nil {
		return fail(inWords(errors.Join(err, endOut())))
	}
	code := Main(line)
	if err := errors.Join(endOut(), endErr()); err != nil {
		return fail("flag --local-log: not all of it was written: " + inWords(err))
	}
	return code
}

// tee has what this process writes to a standard file written to the log too, until end is called. A full disk ends the log alone.
func tee(std **os.File, log io.Writer) (end func() error, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	to, over := *std, make(chan error, 1)
	*std = w
	go func() {
		_, err := io.Copy(io.MultiWriter(to, log), r)
		if err != nil {
			_, _ = io.Copy(to, r)
		}
		r.Close() // so that nothing waits for a reader
		over <- err
	}()
	return func() error {
		*std = to
		w.Close()
		select {
		case err := <-over:
			return err
		case <-time.After(programs.PipeDelay): // a program that goes on may hold it
			return nil
		}
	}, nil
}
