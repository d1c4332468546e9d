//go:build unix && !launcher

package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/task"
	"github.com/pccrun/pccrun/task/agent"
)

// A taskReporter is shown what happens, and what comes of it.
type taskReporter interface {
	task.Reporter
	begun(dir string, r task.Record)
	result(r *task.Result)
}

func (t *taskLine) reporter() taskReporter {
	if t.json {
		return &taskJSON{awaited: awaited{report: t.started}}
	}
	return &taskText{quiet: t.quiet, awaited: awaited{report: t.started}}
}

// awaited tells whoever waits for the agent to run, once.
type awaited struct {
	report    func(dir, name string) // nil: nobody does
	dir, name string
}

func (a *awaited) AgentRuns() {
	if a.report != nil {
		a.report(a.dir, a.name)
		a.report = nil
	}
}

// printLine prints an object as one line of standard output.
func printLine(o object) {
	stdout.Write(append(events.Marshal(append(object{{"v", schemaVersion}}, o...)), '\n'))
}

// A taskText prints for people: what happens on standard error, the agent's last message on standard output.
type taskText struct {
	mu sync.Mutex
	awaited
	quiet    bool
	worktree string
}

func (t *taskText) begun(dir string, r task.Record) { // lines say it
	t.worktree, t.dir, t.name = r.Worktree, dir, r.Name
}

func (t *taskText) Line(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.quiet {
		say(text)
	}
}

// sinceText writes a time since the beginning.
func sinceText(since time.Duration) string {
	s := int(max(since, 0).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%02d:%02d", s/60, s%60)
}

// Columns of a step's line.
const (
	whatWidth = 48
	whatMost  = 100
)

// line writes a step, on one line. What it says is the agent's, so that nothing of it may act on the terminal.
func (t *taskText) line(since time.Duration, kind, what, result string) {
	what, _, more := strings.Cut(strings.TrimSpace(what), "\n")
	if runes := []rune(what); len(runes) > whatMost {
		what, more = string(runes[:whatMost]), true
	}
	if what = printable(what); more {
		what += " …"
	}
	text := fmt.Sprintf("  %s  %-6s %-*s %s", sinceText(since), kind, whatWidth, what, printable(result))
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.quiet {
		os.Stderr.WriteString(strings.TrimRight(text, " ") + "\n")
	}
}

// inTree writes what an agent does by paths that begin at the work tree, in which it is done.
func inTree(worktree, what string) string {
	if worktree == "" {
		return what
	}
	what = strings.TrimPrefix(what, "cd "+worktree+" && ")
	if rest, is := strings.CutPrefix(what, worktree+"/"); is {
		what = rest
	}
	return strings.ReplaceAll(what, " "+worktree+"/", " ")
}

func (t *taskText) Step(since time.Duration, s agent.Step) {
	result := s.Result
	switch {
	case s.Denied:
		result = strings.TrimSpace("denied by the agent's own rules " + result)
	case s.Kind == agent.Retry && s.Wait > 0:
		result = strings.TrimPrefix(fmt.Sprintf("%s, waits %s", result, s.Wait.Round(time.Second)), ", ")
	case s.Failed && result == "":
		result = "failed"
	}
	t.line(since, string(s.Kind), inTree(t.worktree, s.What), result)
}

func (t *taskText) Denied(since time.Duration, d events.Denial) {
	hint := d.Hint
	if hint != "" {
		hint = "to allow: " + hint
	}
	t.line(since, "denied", strings.TrimPrefix(d.What, "connect "), hint)
}

func (t *taskText) result(r *task.Result) {
	if t.quiet && r.State != task.Done {
		say("task " + r.Name + ": " + r.Why)
	}
	for _, line := range resultLines(r) {
		t.Line(line)
	}
	if text := strings.TrimSpace(r.Message); text != "" {
		printf("%s\n", text)
	}
}

// resultLines are the last lines of a task.
func resultLines(r *task.Result) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	how := "is done"
	if r.State != task.Done {
		how = "is not done: " + r.Why + ","
	}
	used := ""
	if r.Used != "" {
		used = ": " + r.Used
	}
	add("the task %s after %s%s", how, r.Took.Round(time.Second), used)
	if r.Until != "" && r.State == task.Done {
		add("%s succeeded after %s of the agent", r.Until, task.Count(r.Runs, "run"))
	}
	switch {
	case r.Checked == "passed": // that it failed is why the task is not done
		add("the check passed: %s", r.Check)
	case r.Checked == "" && r.Command != "":
		add("last command of the agent, seen and not checked: %s", inTree(r.Worktree, r.Command))
	}
	if len(r.Refused) > 0 {
		add("the agent was denied %s by its own rules", task.Count(len(r.Refused), "tool call"))
	}
	c := r.Changes
	switch {
	case r.Nothing() && (r.InPlace || r.Left):
		add("no commit: what has changed is in %s", r.Worktree)
	case r.Head == "":
	case r.Nothing() && r.Elsewhere:
		add("no commit on the task's branch: what was committed is in %s", r.Worktree)
	case r.Nothing():
		add("nothing changed: no commit, no branch")
	case c.Commits > 0:
		hooks := ""
		if r.Hooks != "" {
			hooks = " (" + r.Hooks + ")"
		}
		add("%s, %s changed, +%d −%d: %s%s", task.Count(c.Commits, "commit"), task.Count(c.Files, "file"), c.Added, c.Removed, r.Head[:7], hooks)
	}
	add("%s, %d quarantined%s", task.Count(len(r.Denials), "refusal"), len(r.Findings), reviewHint(r))
	if r.Fetched != "" && r.Head == r.Fetched {
		add("look:       git diff %s...%s", r.Base[:7], shell.Quote(r.Branch)) // a base's name may be a checkpoint's, or HEAD~1
		add("take it:    git merge %s", shell.Quote(r.Branch))
	}
	add("go on:      pccrun task --continue %s \"…\"", r.Name)
	if r.InPlace { // its work is among the user's own
		add("forget it:  pccrun task rm %s", r.Name)
	} else {
		add("throw away: pccrun task rm --force %s", r.Name)
	}
	return lines
}

func reviewHint(r *task.Result) string {
	if len(r.Findings) == 0 {
		return ""
	}
	look := "review"
	if task.Elsewhere(r.Place) { // what is withheld is in a session, and not in the work tree
		look = "diff"
	}
	return ": cd " + shell.Quote(r.Worktree) + " && pccrun " + look
}

// A taskJSON prints what happens as lines of JSON, on standard output.
type taskJSON struct {
	mu sync.Mutex
	awaited
}

func (t *taskJSON) print(o object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	printLine(o)
}

func (t *taskJSON) begun(dir string, r task.Record) {
	t.dir, t.name = dir, r.Name
	t.print(object{{"type", "task"}, {"name", r.Name}, {"agent", r.Agent}, {"branch", r.Branch}, {"base", r.Base}, {"worktree", r.Worktree}, {"in_place", r.InPlace}})
}

func (t *taskJSON) Line(text string) { t.print(object{{"type", "message"}, {"text", text}}) }

func (t *taskJSON) Step(since time.Duration, s agent.Step) {
	t.print(object{{"type", "step"}, {"ms", since.Milliseconds()}, {"kind", string(s.Kind)}, {"what", s.What}, {"result", s.Result}, {"failed", s.Failed}, {"denied", s.Denied},
		{"wait_ms", s.Wait.Milliseconds()}, {"status", s.Status}})
}

func (t *taskJSON) Denied(since time.Duration, d events.Denial) {
	t.print(object{{"type", "denied"}, {"ms", since.Milliseconds()}, {"what", d.What}, {"hint", d.Hint}})
}

func (t *taskJSON) result(r *task.Result) {
	t.print(append(object{{"type", "result"}, {"status", r.Status}, {"agent_status", r.Agent}, {"head", r.Head}, {"took_ms", r.Took.Milliseconds()},
		{"hooks", r.Hooks}, {"runs", r.Runs}, {"checked", r.Checked}, {"refused_tools", r.Refused}}, recordFields(&r.Record)...))
}

// recordFields are what JSON says of a task.
func recordFields(r *task.Record) object {
	u := r.Usage
	return object{
		{"name", r.Name}, {"state", string(r.State)}, {"why", r.Why}, {"repository", r.Repository}, {"worktree", r.Worktree}, {"in_place", r.InPlace}, {"place", strings.Join(r.Place, " ")},
		{"branch", r.Branch}, {"base", r.Base}, {"fetched", r.Fetched}, {"agent", r.Agent}, {"version", r.Version}, {"model", r.Model}, {"conversation", r.Conversation},
		{"begun", r.Begun.UTC().Format(time.RFC3339)}, {"spent_ms", r.Spent.Milliseconds()}, {"flags", r.Words()}, {"check", r.Check}, {"until", r.Until}, {"max_runs", r.MaxRuns},
		{"commits", r.Changes.Commits}, {"files", r.Changes.Files}, {"added", r.Changes.Added}, {"removed", r.Changes.Removed},
		{"usage", object{{"input", u.Input}, {"cache_read", u.CacheRead}, {"cache_write", u.CacheWrite}, {"output", u.Output}, {"usd", u.USD}, {"priced", u.Priced}}}, {"place_usd", r.PlaceUSD},
		{"denials", r.Denials}, {"findings", r.Findings}, {"message", r.Message},
	}
}
