//go:build unix && !launcher

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/pccrun/pccrun/internal/spending"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/task"
	"github.com/pccrun/pccrun/task/many"
)

// A manyLine is the command line of many tasks.
type manyLine struct {
	taskLine // what it refuses it prints as that of one task does
	file     string
	jobs     int
	budget   spending.USD // of all together
	counts   bool         // a task has a budget
	failFast bool
	results  []string
	flags    []string // of each task
	rest     []string // of each agent

	store     task.Store
	workspace string
}

// notOfMany are the flags of a task that many do not take, and why.
var notOfMany = map[string]string{
	"--name": "a line of the file can name its task", "--prompt-file": "a line @FILE has the prompt in a file",
	"--detach":  "nohup pccrun task --file … & outlives the terminal, and task list says how they stand",
	"--dry-run": "each by itself: pccrun task --dry-run PROMPT", "--try": "each by itself: pccrun task --try PROMPT",
	"--spending": "--total-budget counts them together",
	"--continue": "many tasks are new ones: go on with each by itself", "--in-place": ownTrees, "--worktree": ownTrees,
}

const ownTrees = "tasks that work at once need work trees of their own"

// defs are the flags that many tasks take: their own, and those of one task, which are read as it does and kept for each.
func (m *manyLine) defs() (defs []flagDef) {
	own := flags{
		"--file": &m.file, "--fail-fast": &m.failFast, "--json": &m.json, "-q": &m.quiet,
		"--results":      func(path string) error { m.results = append(m.results, path); return nil },
		"--total-budget": dollarsIn(&m.budget), "--jobs": numberIn(&m.jobs, many.MostJobs),
	}
	defs = own.defs()
	for _, d := range (&taskLine{}).runFlagsOf() {
		if own[d.name] != nil {
			continue
		}
		defs = append(defs, d.through(func(value string) error {
			if why := notOfMany[d.name]; why != "" {
				return misuse("not with --file", why)
			}
			m.flags = append(m.flags, d.words(value)...)
			return d.set(value)
		}))
	}
	return defs
}

// read reads the command line and the file, and refuses whatever one of the tasks would be refused for.
func (m *manyLine) read(args []string) (plan many.Plan, err error) {
	words, rest, _, err := parse(args, m.defs())
	m.json, m.rest = m.json || slices.Contains(args, "--json"), rest
	if err == nil {
		err = unexpected(words, 0, "the prompts stand in the file")
	}
	if err != nil {
		return plan, err
	}
	if m.file == "-" && isTerminal(os.Stdin) {
		return plan, misuse("task --file -: standard input is a terminal", "pccrun task --file FILE, or a pipe")
	}
	text, err := many.Read(m.file, os.Stdin)
	if err != nil {
		return plan, err
	}
	tasks, wrong := many.Parse(m.file, text)
	policy, order, err := m.checkAgents(tasks)
	wrong = joined(wrong, err)
	if policy == nil {
		return plan, wrong
	}
	dirs, err := run.Dirs()
	if err != nil {
		return plan, err
	}
	store := task.StoreIn(dirs.State)
	records, err := store.List()
	if err != nil && !errors.Is(err, task.ErrUnread) {
		return plan, err
	}
	common := task.CommonDir(policy.Workspace)
	taken := func(name string) bool {
		return slices.ContainsFunc(records, func(r task.Record) bool { return r.Name == name && r.Common == common })
	}
	if wrong = joined(wrong, many.Fill(m.file, tasks, profiles.ThisHost().Cwd, policy, taken)); wrong != nil {
		return plan, wrong
	}
	background := context.Background()
	if _, err := task.Ask(task.Stop{Soft: background, Hard: background}, store, m.reporter(), order); err != nil {
		return plan, err
	}
	if m.jobs == 0 {
		m.jobs = many.UsualJobs(profiles.ThisHost().Memory)
	}
	m.counts = m.budget > 0 || order.Budget > 0 || slices.ContainsFunc(tasks, func(t many.Task) bool { return t.Budget != "" })
	m.store, m.workspace = store, policy.Workspace
	return many.Plan{Tasks: tasks, Jobs: m.jobs, FailFast: m.failFast}, nil
}

// joined is an error of all mistakes that two have.
func joined(a, b error) error {
	return errors.Join(slices.Concat(profiles.Mistakes(a), profiles.Mistakes(b))...)
}

// checkAgents reads the flags as a task of each agent does. The policy is nil if none would be begun.
func (m *manyLine) checkAgents(tasks []many.Task) (policy *profiles.Policy, order task.Order, wrong error) {
	agents := []string{""}
	for i := range tasks {
		if !slices.Contains(agents, tasks[i].Agent) {
			agents = append(agents, tasks[i].Agent)
		}
	}
	if len(agents) > 1 && !slices.ContainsFunc(tasks, func(t many.Task) bool { return t.Agent == "" }) {
		agents = agents[1:]
	}
	for _, agent := range agents {
		args := slices.Clone(m.flags)
		if m.budget > 0 { // what is refused with a budget is refused with one of all
			args = append(args, "--budget", "1")
		}
		if agent != "" {
			args = append(args, "--agent", agent)
		}
		one := &taskLine{}
		asked, err := one.read(slices.Concat(args, []string{"a prompt", "--"}, m.rest))
		if err == nil {
			order = asked
			policy, err = profiles.Resolve(one.request)
		}
		if i := slices.IndexFunc(tasks, func(t many.Task) bool { return agent != "" && t.Agent == agent }); err != nil && i >= 0 {
			err = many.At(m.file, &tasks[i], err)
		}
		wrong = joined(wrong, err)
	}
	return policy, order, wrong
}

// refuse prints each mistake, and returns the status to exit with.
func (m *manyLine) refuse(err error) int {
	if list := profiles.Mistakes(err); len(list) > 1 {
		for _, mistake := range list[:len(list)-1] {
			fail(inWords(mistake), profiles.Hint(mistake))
		}
		err = list[len(list)-1]
	}
	return m.taskLine.refuse(err)
}

// manyTasks is `pccrun task --file`.
func manyTasks(args []string) int {
	m := &manyLine{}
	plan, err := m.read(args)
	if err != nil {
		return m.refuse(err)
	}
	var files []many.File
	for _, path := range m.results {
		file, err := many.Destination(path)
		if err != nil {
			return m.refuse(err)
		}
		files = append(files, file)
	}
	if m.counts {
		file, path, end, err := m.store.Together(m.workspace, m.budget)
		if err != nil {
			return m.refuse(err)
		}
		defer end()
		plan.Together, m.flags = file, append(m.flags, "--spending", path)
	}
	display := m.display()
	display.say(fmt.Sprintf("%s, %d at a time", task.Count(len(plan.Tasks), "task"), plan.Jobs))
	stop, signalled, end := untilSignals(display.say)
	defer end()
	if signal.Ignored(syscall.SIGHUP) { // as by nohup: a task has to hear of the death of this process all the same
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	ticks, endTicks := display.ticks()
	s := plan.Run(stop, many.Child{Flags: m.flags, Args: m.rest}.Work, display, ticks)
	endTicks()
	results := many.Judge(stop.Hard, s)
	display.results(&results)
	code := 0
	if !results.Succeeded() {
		code = failed
	}
	for _, file := range files {
		if err := file.Write(&results); err != nil {
			code = failed
			display.say("results: " + inWords(err))
		}
	}
	if sig := signalled(); sig != 0 {
		return 128 + int(sig)
	}
	return code
}
