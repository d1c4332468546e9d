//go:build unix && !launcher

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/task"
)

// tasksHere returns the records of all tasks of a user, or of the repository around the current directory.
func tasksHere(all bool) (store task.Store, top string, list []task.Record, err error) {
	dirs, err := run.Dirs()
	if err != nil {
		return store, "", nil, err
	}
	store = task.StoreIn(dirs.State)
	policy, err := profiles.Resolve(profiles.Request{Host: profiles.ThisHost()})
	if err != nil {
		return store, "", nil, err
	}
	records, err := store.List()
	if errors.Is(err, task.ErrUnread) { // the others can be worked with
		say(inWords(err))
		err = nil
	}
	common := task.CommonDir(policy.Workspace)
	for _, r := range records {
		if all || r.Common == common || r.Repository == policy.Workspace || r.Worktree == policy.Workspace {
			list = append(list, r)
		}
	}
	return store, policy.Workspace, list, err
}

// tasksAt returns the tasks by their work trees; of those in place, the last of each.
func tasksAt() map[string]atWork {
	dirs, err := run.Dirs()
	if err != nil {
		return nil
	}
	store := task.StoreIn(dirs.State)
	list, _ := store.List() // those that can be read
	at := map[string]atWork{}
	for _, r := range list {
		at[r.Worktree] = atWork{r.Name, r.Prompt, r.Repository}
	}
	return at
}

// oneTask reads a command line that names a task.
func oneTask(verb string, args []string, known flags) (task.Store, task.Record, error) {
	words, err := options(args, known)
	if err == nil && len(words) == 0 {
		err = misuse("task "+verb+": want a task", "pccrun task list lists them")
	}
	if err == nil {
		err = unexpected(words, 1, "one task at a time")
	}
	if err != nil {
		return task.Store{}, task.Record{}, err
	}
	store, top, _, err := tasksHere(true)
	if err != nil {
		return store, task.Record{}, err
	}
	r, err := store.Find(words[0], top)
	return store, r, err
}

// taskState is how a task stands, in a word or two.
func taskState(v *task.View) string {
	switch {
	case v.Running:
		return "working"
	case v.Killed:
		return "killed"
	case v.Merged:
		return "merged"
	case v.State == task.Done && v.Fetched == "" && !v.InPlace: // there nothing is brought
		return "no change"
	}
	return string(v.State)
}

func viewFields(v *task.View) object {
	return append(object{{"running", v.Running}, {"killed", v.Killed}, {"tip", v.Tip}, {"merged", v.Merged}}, recordFields(&v.Record)...)
}

func taskList(args []string) int {
	var all, asJSON bool
	words, err := options(args, flags{"--all": &all, "--json": &asJSON})
	if err == nil {
		err = unexpected(words, 0, "pccrun task show NAME shows one")
	}
	if err != nil {
		return failSession(err)
	}
	store, _, list, err := tasksHere(all)
	if err != nil {
		return failSession(err)
	}
	views := task.Views(context.Background(), store, list)
	if asJSON {
		printJSON(object{{"tasks", each(views, func(v task.View) object { return viewFields(&v) })}})
		return 0
	}
	if len(views) == 0 {
		say("no tasks here" + map[bool]string{false: " (--all lists those of other repositories)"}[all])
		return 0
	}
	var rows table
	rows.row("NAME", "AGENT", "STATE", "TIME", "COST", "FILES", "BRANCH")
	for i := range views {
		v := &views[i]
		cost := "–"
		if v.Usage.Priced {
			cost = fmt.Sprintf("$%.2f", v.Usage.USD)
		}
		rows.row(v.Name, v.Agent, taskState(v), sinceText(v.Spent), cost, strconv.Itoa(v.Changes.Files), v.Branch)
	}
	return rows.print()
}

func taskShow(args []string) int {
	var asJSON bool
	store, r, err := oneTask("show", args, flags{"--json": &asJSON})
	if err != nil {
		return failSession(err)
	}
	v := task.Views(context.Background(), store, []task.Record{r})[0]
	if asJSON {
		printJSON(viewFields(&v))
		return 0
	}
	row := func(name, format string, args ...any) {
		printf("  %-12s%s\n", name, printableLine(fmt.Sprintf(format, args...)))
	}
	prompt, _, _ := strings.Cut(strings.TrimSpace(r.Prompt), "\n")
	printf("%s: %s\n", r.Name, prompt)
	why := r.Why
	if v.Killed && r.Worker.Rebooted() {
		why = "the machine was started anew; pccrun task --continue " + r.Name + " goes on"
	}
	row("state", "%s", strings.TrimSuffix(taskState(&v)+": "+why, ": "))
	row("agent", "%s", strings.TrimSpace(r.Agent+" "+r.Version+" "+r.Model))
	row("worktree", "%s", r.Worktree)
	if r.Fetched != "" {
		branch := fmt.Sprintf("%s at %s, %s over %s", r.Branch, r.Fetched[:7], task.Count(r.Changes.Commits, "commit"), r.Base[:7])
		switch {
		case v.Tip == "":
			branch += "; deleted since"
		case v.Tip != r.Fetched:
			branch += "; moved since, to " + v.Tip[:7]
		}
		row("branch", "%s", branch)
		row("changed", "%s, +%d −%d", task.Count(r.Changes.Files, "file"), r.Changes.Added, r.Changes.Removed)
	}
	for _, what := range r.Denials {
		row("denied", "%s", what)
	}
	for _, path := range r.Findings {
		row("quarantined", "%s", path)
	}
	if r.Usage.Priced {
		row("cost", "$%.2f", r.Usage.USD)
	}
	row("time", "%s", r.Spent.Round(time.Second))
	return 0
}

func taskDiff(args []string) int {
	var stat, names bool
	_, r, err := oneTask("diff", args, flags{"--stat": &stat, "--name-only": &names})
	if err != nil {
		return failSession(err)
	}
	var how []string
	if stat {
		how = append(how, "--stat")
	}
	if names {
		how = append(how, "--name-only")
	}
	if err := task.Diff(context.Background(), r, how, plainOutput{}); err != nil {
		return failSession(err)
	}
	return 0
}

// plainOutput is standard output. What goes to a terminal cannot act on it.
type plainOutput struct{}

func (plainOutput) Write(text []byte) (int, error) {
	if isTerminal(os.Stdout) {
		printf("%s", string(text))
		return len(text), stdout.Err
	}
	return stdout.Write(text)
}

// stopWait is how long `pccrun task stop` waits for a task to end: what stands is committed meanwhile.
const stopWait = time.Minute

func taskStop(args []string) int {
	var force, asJSON bool
	wait := stopWait
	store, r, err := oneTask("stop", args, flags{"--force": &force, "--json": &asJSON, "--wait": durationIn(&wait, 0, "e.g. 30s, 2m")})
	if err == nil {
		done := slow("waiting for task " + r.Name + " to end")
		err = task.End(store, r, wait, force)
		done()
	}
	if err != nil {
		return failSession(err)
	}
	return result(asJSON, object{{"stopped", []string{r.Name}}}, say, "")
}

func taskRemove(args []string) int {
	var force, asJSON bool
	store, r, err := oneTask("rm", args, flags{"--force": &force, "--json": &asJSON})
	if err != nil {
		return failSession(err)
	}
	left, err := task.Remove(context.Background(), store, r, force)
	if err != nil {
		return failSession(err)
	}
	if left != "" {
		say(left)
	}
	return result(asJSON, object{{"removed", []string{r.Name}}, {"left", left}}, say, "")
}

func taskClean(args []string) int {
	var all, asJSON bool
	words, err := options(args, flags{"--all": &all, "--json": &asJSON})
	if err == nil {
		err = unexpected(words, 0, "pccrun task rm NAME removes one")
	}
	if err != nil {
		return failSession(err)
	}
	store, _, list, err := tasksHere(all)
	if err != nil {
		return failSession(err)
	}
	removed, err := task.Clean(context.Background(), store, list)
	code := result(asJSON, object{{"removed", removed}}, say, fmt.Sprintf("removed %d of %d tasks: those that are merged, or have changed nothing", len(removed), len(list)))
	if err != nil {
		code = failSession(err)
	}
	return code
}
