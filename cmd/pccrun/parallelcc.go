//go:build unix && !launcher

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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

	repo, session, checkpoint  string
	prompt, promptFile, phase  string
	provider, template, target string
	machine                    parallelMachine
	localLog                   string
	instead                    string // pccrun's verb for --reconnect and --pull
	dryRun, full, keeps        bool
}

// A parallelMachine is what the file of --sandbox-config asks for.
type parallelMachine struct {
	Image        string            `json:"image"`
	CPU          float64           `json:"cpu"`
	Memory, Disk int64             // MiB
	Env          map[string]string `json:"env"`
}

// A parallelWord is a flag of parallel-cc's: of which verbs, and what becomes of it, as in a [flagDef].
type parallelWord struct {
	of, name string
	to       any
}

// words is the table.
func (l *parallelLine) words() []parallelWord {
	const runs, of = "run resume", "status logs download kill health checkpoint"
	return []parallelWord{
		{runs + " status", "--repo", &l.repo},
		{of, "--session-id", &l.session},
		{runs + " status health checkpoint", "--json", l.put("--json")},

		// What is to be done.
		{runs, "--prompt", &l.prompt},
		{"run", "--prompt-file", l.path(&l.promptFile)},
		{"run", "--apm-plan", l.path(&l.promptFile)},
		{"run", "--focus-phase", &l.phase},
		{"run", "--apm-phase", &l.phase},
		{"run", "--apm-resume", isNoSwitch("nothing records which phases are done", "--session NAME --prompt TEXT goes on with a task")},
		{"run", "--session", &l.session},
		{"run", "--reconnect", l.does("attach")},
		{"run", "--pull", l.does("download")},
		{runs, "--branch", l.branch},
		{"resume", "--checkpoint-id", &l.checkpoint},

		// Where.
		{runs, "--provider", func(name string) error { l.provider = name; return nil }},
		{runs, "--e2b-template", &l.template},
		{runs, "--daytona-target", &l.target},
		{runs, "--docker-network", func(name string) error {
			if name == "none" {
				return nil
			}
			return misuse(quote(name)+": not with a task", notOfTasks["--docker-network"])
		}},
		{runs, "--native-config", l.with("--settings", filepath.Abs)},
		{runs, "--sandbox-config", l.config},
		{runs, "--working-dir", func(dir string) error {
			if dir != "/workspace" {
				return misuse("inside, files have the paths that pccrun prints", "name the directory in the prompt")
			}
			l.note("--working-dir /workspace: inside, files have the paths that pccrun prints")
			return nil
		}},
		{runs, "--upload-repo", isSo},
		{runs, "--no-cleanup", &l.keeps},
		{runs, "--github-token", l.githubToken},

		// How.
		{runs, "--timeout", l.timeout},
		{runs, "--dry-run", &l.dryRun},
		{runs, dryRunFull, &l.full},
		{runs, "--stream", isSo},
		{runs, "--no-stream", l.put("-q")},
		{runs, "--local-log", l.path(&l.localLog)},
		{runs, "--on-success", func(command string) error {
			l.note("--on-success runs inside, as --check does, and decides whether the task has succeeded")
			return l.with("--check", nil)(command)
		}},
		{runs, "--on-failure", isNot("nothing that a task wrote is executed outside, and without success your branches are as before", "pccrun sandbox run … || COMMAND executes one on this machine")},
		{runs, "--git-live", isNoSwitch("pccrun pushes nothing", "git push origin task/NAME, once you have seen it")},
		{runs, "--target-branch", isNot("pccrun pushes nothing", "git push origin task/NAME, once you have seen it")},
		{runs, "--ssh-key", isNot("no key goes inside", "--use ssh-agent signs with it")},
		{runs, "--npm-token", isNot("no token goes inside", "--allow @npm, and --inject NPM_TOKEN=HOST")},
		{runs, "--template --use-template", isNot("pccrun has no templates of projects", "begin in a repository")},
		{runs, "--auth-method", isNot("an agent has the login that it has here", "")},

		{"status", "--sandbox-only", isSo},
		{"logs", "--follow", l.put("--follow")},
		{"logs", "--tail", l.with("--tail", nil)},
		{"logs", "--save", l.with("--save", nil)},
		{"download", "--output", l.with("--to", nil)},
		{"download", "--selective", isSo},
		{"download", "--all", l.put("--all")},
		{"download", "--filter", func(list string) error {
			for glob := range strings.SplitSeq(list, ",") {
				_ = l.with("--filter", nil)(strings.TrimSpace(glob))
			}
			return nil
		}},
		{"kill", "--no-download", l.put("--no-download")},
		{"kill", "--keep-worktree", isSo}, // nothing but task rm removes one
	}
}

// dryRunFull is a flag of its own for [parse], of which a switch takes no value.
const dryRunFull = "--dry-run-full"

// isSo is a switch for what pccrun does anyway.
func isSo() error { return nil }

// isNot refuses a flag, and says why; isNoSwitch one without a value.
func isNot(why, hint string) func(string) error {
	return func(string) error { return misuse(why, hint) }
}

func isNoSwitch(why, hint string) func() error { return func() error { return misuse(why, hint) } }

// put gives pccrun's verb a switch, with a flag with the value, as change makes it.
func (l *parallelLine) put(flag string) func() error {
	return func() error { l.own = append(l.own, []string{flag}); return nil }
}

func (l *parallelLine) with(flag string, change func(string) (string, error)) func(string) error {
	return func(value string) (err error) {
		if change != nil {
			value, err = change(value)
		}
		l.own = append(l.own, []string{flag, value})
		return err
	}
}

// does has another verb of pccrun's do it.
func (l *parallelLine) does(verb string) func() error {
	return func() error { l.instead = verb; return nil }
}

// path keeps the absolute path, since --repo changes the directory.
func (l *parallelLine) path(to *string) func(string) error {
	return func(value string) (err error) { *to, err = filepath.Abs(value); return err }
}

func (l *parallelLine) note(text string) { l.notes = append(l.notes, text) }

// has reports whether pccrun's verb gets a flag.
func (l *parallelLine) has(flag string) bool {
	return slices.ContainsFunc(l.own, func(f []string) bool { return f[0] == flag })
}

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
	return l.with("--timeout", nil)((time.Duration(n) * one).String())
}

func (l *parallelLine) branch(name string) error {
	if name == "auto" {
		return nil
	}
	name = strings.ReplaceAll(name, "/", "-")
	l.note("--branch: the task is named " + name + ", and its branch task/" + name + ", or as branch.prefix of config.jsonc says")
	return l.with("--name", nil)(name)
}

func (l *parallelLine) githubToken(value string) error {
	if profiles.IsRepository(value) {
		return l.with("--github-token", nil)(value)
	}
	if value == "" {
		return misuse("the token is empty", "export GITHUB_TOKEN, and give --github-token origin")
	}
	l.note("--github-token TOKEN: other users of this machine can read it in the list of processes: export GITHUB_TOKEN, and give --github-token origin")
	l.own = append(l.own, []string{"--github-token", "origin"})
	return os.Setenv("GITHUB_TOKEN", value)
}

// config reads the file of --sandbox-config.
func (l *parallelLine) config(path string) error {
	text, err := profiles.ReadFile(path)
	if err != nil {
		return err
	}
	m := &l.machine
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(m); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if m.CPU < 0 || m.Memory < 0 || m.Disk < 0 {
		return fmt.Errorf("%s: a number below 0", path)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		_ = l.with("--env", nil)(name + "=" + m.Env[name])
	}
	return nil
}

// sized gives pccrun's line what the file of --sandbox-config says of the machine.
func (l *parallelLine) sized(provider string, cloud bool) error {
	m := &l.machine
	if m.Image != "" && !cloud && provider != inContainer {
		return misuse("flag --sandbox-config: image: the provider is "+provider+", which has none", "--provider docker, or a cloud")
	}
	size := profiles.Size{CPUs: m.CPU, MemoryMB: m.Memory}
	set := [][]string{{"--image", m.Image}, {"--cpus", positive(m.CPU, "")}, {"--memory", positive(float64(m.Memory), "m")}, {"--disk", positive(float64(m.Disk), "m")}}
	if cloud {
		set = [][]string{{"--image", m.Image}, {"--size", size.String()}}
		if m.Disk > 0 {
			l.note("--sandbox-config: disk: the place decides")
		}
	}
	for _, f := range set {
		if f[1] != "" {
			l.own = append(l.own, f)
		}
	}
	return nil
}

// positive is a number with its unit, "" for none.
func positive(n float64, unit string) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatFloat(n, 'f', -1, 64) + unit
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
	say("as: pccrun " + commandLine(l.shown(line)))
	os.Args = append(os.Args[:1:1], line...) // what goes on by itself is started with it
	switch {
	case l.localLog != "":
		return l.logged(line)
	case l.full:
		code := Main(line)
		if code == 0 {
			say("dry run: a sandbox was made, filled, ended and removed, and the agent not started")
		}
		return code
	}
	return Main(line)
}

// shown is the line without the values of variables.
func (l *parallelLine) shown(line []string) []string {
	line = slices.Clone(line)
	for i, word := range line {
		if i > 0 && line[i-1] == "--env" {
			name, _, _ := strings.Cut(word, "=")
			line[i] = name + "=…"
		}
	}
	return line
}

// read reads parallel-cc's command line, and returns pccrun's.
func (l *parallelLine) read(args []string) ([]string, error) {
	const verbs = "run, status, logs, download, kill, health, checkpoint or resume"
	if len(args) == 0 {
		return nil, misuse("sandbox: want "+verbs, "")
	}
	makers := map[string]func(words, rest []string) ([]string, error){
		"run": l.run, "resume": l.run, "status": l.about, "logs": l.about, "download": l.about, "kill": l.about, "health": l.about, "checkpoint": l.about,
	}
	l.verb = strings.TrimPrefix(args[0], "sandbox-")
	l.seconds = l.verb != args[0]
	to := makers[l.verb]
	if to == nil {
		return nil, misuse("sandbox: no "+quote(args[0]), "it has "+verbs)
	}
	args = slices.Clone(args[1:])
	if i := slices.Index(args, "--dry-run=full"); i >= 0 && !slices.Contains(args[:i], "--") {
		args[i] = dryRunFull
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
	return to(words, rest)
}

// defs are the flags of the verb: of a run those of a task too, as far as the table has no other meaning for them.
func (l *parallelLine) defs() (defs []flagDef) {
	for _, w := range l.words() {
		if slices.Contains(strings.Fields(w.of), l.verb) {
			for name := range strings.FieldsSeq(w.name) {
				defs = append(defs, flagDef{name: name, to: w.to})
			}
		}
	}
	if l.verb != "run" && l.verb != "resume" {
		return defs
	}
	for _, d := range (&taskLine{}).runFlagsOf() {
		switch {
		case slices.Contains(flagNames(defs), d.name):
		case d.isSwitch():
			defs = append(defs, flagDef{name: d.name, to: l.put(d.name)})
		default:
			defs = append(defs, flagDef{name: d.name, arg: d.arg, to: l.with(d.name, nil)})
		}
	}
	return defs
}

// run makes the line of a task, or of what else --reconnect, --pull and --dry-run ask for.
func (l *parallelLine) run(words, rest []string) ([]string, error) {
	if l.instead != "" {
		l.verb, l.own = l.instead, nil
		return l.about(words, nil)
	}
	if err := unexpected(words, 0, "--prompt TEXT"); err != nil {
		return nil, err
	}
	host := profiles.ThisHost()
	switch host.Getenv("PARALLEL_CC_LOG_LEVEL") {
	case "error", "silent", "none":
		_ = l.put("-q")()
	}
	if err := l.placed(&host); err != nil {
		return nil, err
	}
	switch {
	case l.full:
		return l.trial(&host), nil
	case l.localLog != "" && l.has("--detach"):
		return nil, misuse("flag --local-log: not with --detach", "pccrun attach shows what was printed")
	}
	line, err := l.task(rest)
	if l.dryRun && err == nil {
		if line != nil { // who gave a prompt hears what is wrong with it
			if _, err = (&taskLine{}).read(line[1:]); err != nil {
				return nil, err
			}
			l.note("would do: pccrun " + commandLine(l.shown(line)))
		}
		top, _, _ := profiles.ReadWorkspaceFile(profiles.Request{Host: host})
		line = []string{"sync", "pack", "--dry-run", cmp.Or(top, ".")}
		if l.has("--json") {
			line = append(line, "--json")
		}
	} else if line == nil && err == nil {
		err = misuse("sandbox "+l.verb+": no prompt", "--prompt TEXT, or --prompt-file FILE")
	}
	return line, err
}

// optional is a word, if it is one.
func optional(word string) []string {
	if word == "" {
		return nil
	}
	return []string{word}
}

// task is the line of a task; nil without a prompt.
func (l *parallelLine) task(rest []string) ([]string, error) {
	line := []string{"task"}
	switch {
	case l.verb == "resume" && l.checkpoint == "":
		return nil, misuse("sandbox resume: want a checkpoint", "--checkpoint-id NAME; pccrun checkpoint list has them")
	case l.verb == "resume":
		line = append(line, "--from", l.checkpoint)
		l.prompt = cmp.Or(l.prompt, "Continue.")
	case l.session != "":
		line = append(line, "--continue", l.session)
	}
	line = append(line, slices.Concat(l.own...)...)
	switch {
	case l.prompt != "" && l.promptFile != "":
		return nil, misuse("flag --prompt-file: the prompt is given twice", "")
	case l.phase != "" && l.promptFile == "":
		return nil, misuse("flag --focus-phase: of which file is not said", "--prompt-file FILE")
	case l.phase != "":
		line = append(line, "--prompt-file", l.promptFile+"#phase-"+l.phase)
	case l.promptFile != "":
		line = append(line, "--prompt-file", l.promptFile)
	case strings.HasPrefix(l.prompt, "-"): // a flag, or standard input
		line = append(line, " "+l.prompt)
	case l.prompt != "":
		line = append(line, l.prompt)
	default:
		return nil, nil
	}
	if rest != nil {
		line = append(append(line, "--"), rest...)
	}
	return line, nil
}

// trial is the line of a run that does nothing, where the task would be.
func (l *parallelLine) trial(host *profiles.Host) []string {
	var line []string
	of := flagNames(runFlags(&profiles.Request{}))
	for _, f := range l.own {
		if slices.Contains(of, f[0]) && !strings.Contains(" --keep --json --detach --from ", " "+f[0]+" ") {
			line = append(line, f...)
		}
	}
	if host.Getenv("PARALLEL_CC_LOG_LEVEL") == "debug" && !l.has("-q") {
		line = append(line, "-v")
	}
	return append(line, "--", "true")
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
		_ = l.with("--provider", nil)(l.provider)
	} else if by == "default" && !l.seconds && l.verb == "run" {
		l.note("on this machine; parallel-cc's sandbox run was at E2B: --provider e2b")
	}
	for _, f := range []struct{ name, value, of, is string }{{"--e2b-template", l.template, "e2b", "--image"}, {"--daytona-target", l.target, "daytona", "--region"}} {
		switch {
		case f.value == "":
		case provider != f.of:
			return misuse("flag "+f.name+": the provider is "+provider, "--provider "+f.of)
		default:
			_ = l.with(f.is, nil)(f.value)
		}
	}
	if err := l.sized(provider, kind.Cloud); err != nil {
		return err
	}
	if auto := host.Getenv("PARALLEL_CC_SANDBOX_AUTO_CLEANUP"); auto == "false" || auto == "0" {
		l.keeps = true
	}
	switch {
	case !l.keeps || l.has("--keep"):
	case kind.Cloud:
		l.note("the sandbox is kept for " + keptFor + ": --keep DURATION says otherwise")
		_ = l.with("--keep", nil)(keptFor)
	default:
		l.note("no sandbox is left to be kept here; the work tree stays until pccrun task rm")
	}
	if l.dryRun && !kind.Cloud {
		l.note("on this machine nothing goes up: this is what a cloud would get")
	}
	return nil
}

// about makes the line of a verb about what was begun before, by a task's name or a session's id.
func (l *parallelLine) about(words, _ []string) ([]string, error) {
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
	own := slices.Concat(l.own...)
	if l.verb == "status" && l.session == "" {
		if l.repo != "" {
			own = append(own, "--here")
		}
		return append([]string{"ps"}, own...), nil
	}
	of, e, err := l.named()
	if err != nil {
		return nil, err
	}
	switch {
	case l.verb == "attach" && of != "":
		return []string{"attach", of}, nil
	case l.verb == "status" && of != "":
		return slices.Concat([]string{"task", "show", of}, own), nil
	case l.verb == "kill" && of != "" && !l.has("--no-download"): // which commits what stands
		return []string{"task", "stop", of}, nil
	case l.verb == "checkpoint" && of != "":
		return slices.Concat([]string{"checkpoint", of}, words, own), nil
	case l.verb == "checkpoint" && l.session == "":
		return nil, misuse("sandbox checkpoint: want a task", "--session-id NAME; pccrun task list has them")
	case l.verb == "checkpoint":
		return slices.Concat([]string{"snapshot"}, words, []string{"--session", e.ID}, own), nil
	case e.ID == "" && of != "":
		return nil, misuse("task "+of+": none of its runs is recorded", "pccrun task show "+of)
	case l.verb == "download" && (l.has("--all") || l.has("--filter")) && !l.has("--to"):
		own = append(own, "--to", "sandbox-results")
	case l.verb == "logs" && printed(e):
		own = append(own, "--output")
	}
	verb := map[string]string{"status": "stats", "health": "stats"}[l.verb]
	return slices.Concat([]string{cmp.Or(verb, l.verb)}, own, optional(e.ID)), nil
}

// named finds the task of a name, "" for none, and the newest of its sessions, or the session of an id.
func (l *parallelLine) named() (of string, e sessions.Entry, err error) {
	if l.session == "" {
		return "", e, nil
	}
	home, err := run.Sessions()
	if err != nil {
		return "", e, err
	}
	store, top, _, err := tasksHere(true)
	if err != nil {
		return "", e, err
	}
	if r, err := store.Find(l.session, top); err == nil {
		e, _, err = home.Newest(func(e sessions.Entry) bool { return e.Workspace == r.Worktree })
		return r.Name, e, err
	}
	if e, err = home.Find(l.session); errors.Is(err, sessions.ErrNoSession) {
		err = misuse("no task, and no session "+quote(l.session), "pccrun task list --all, and pccrun ps --all")
	}
	return "", e, err
}

// printed reports whether a session's output is kept.
func printed(e sessions.Entry) bool {
	home, err := run.Sessions()
	if err != nil || e.ID == "" {
		return false
	}
	dir, err := home.Open(e.ID)
	if err != nil {
		return false
	}
	defer dir.Close()
	_, err = dir.Lstat(sessions.LogName)
	return err == nil
}

// logged does what a line says in a process of its own, and adds what that prints to the file of --local-log.
func (l *parallelLine) logged(line []string) int {
	log, err := os.OpenFile(l.localLog, os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return fail("flag --local-log: " + inWords(err))
	}
	defer log.Close()
	if info, err := log.Stat(); err != nil || !info.Mode().IsRegular() {
		return fail("flag --local-log: " + l.localLog + " is no file")
	}
	runtime.LockOSThread() // with which the signal of its death goes
	defer runtime.UnlockOSThread()
	cmd, err := task.Program(syscall.SIGTERM, line...)
	if err != nil {
		return fail(inWords(err))
	}
	cmd.Stdout, cmd.Stderr = io.MultiWriter(log, os.Stdout), io.MultiWriter(log, os.Stderr)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	run.LeaveSignals()
	if err := cmd.Start(); err != nil {
		return fail(inWords(err))
	}
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig)
		}
	}()
	err = cmd.Wait()
	if status, is := cmd.ProcessState.Sys().(syscall.WaitStatus); is && status.Signaled() {
		return 128 + int(status.Signal())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) { // the log is not whole
		return fail("flag --local-log: " + inWords(err))
	}
	return cmd.ProcessState.ExitCode()
}
