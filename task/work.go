//go:build unix

package task

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/task/agent"
)

// flags are those of each run of a task: the user's own follow.
func (p *Placed) flags(profile string) (flags []string) {
	if profile != "" {
		flags = append(flags, "--profile", profile)
	}
	return append(flags, p.order.Flags...)
}

// profile is that of the agent, for what else runs on its behalf.
func (p *Placed) profile() string { return cmp.Or(p.order.Profile, p.order.Agent.Name) }

// plainGit begins a command of git that the user's configuration does not have start something, or write more files into a git
// directory than [repository.checkClone] knows.
var plainGit = []string{"git", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "core.splitIndex=false", "-c", "rerere.enabled=false"}

// gitTime bounds one command of git's in a work tree on this machine, which may fetch what a filter wants.
const gitTime = time.Hour

// gitPhase runs git in the work tree, without the agent's home and hosts.
func (p *Placed) gitPhase(args ...string) phase {
	ph := phase{
		dir: p.task.Worktree, place: gitPlace(p.order.Place), flags: p.flags("default"), command: slices.Concat(plainGit, args), keepOn: true,
		seen: func(e events.Event) { p.money.event(e, p.to) },
	}
	if ph.place == nil {
		ph.timeout = gitTime
	}
	return ph
}

// git is a phase of git's, with what it reads and what reads it.
func (p *Placed) git(in string, out func(io.Reader), args ...string) (outcome, error) {
	run := p.gitPhase(args...)
	run.in, run.out = in, out
	return run.runIn(p)
}

// runGit carries a phase of git's out in which filters may work. What they spend counts, where that can be counted: what the agent
// could spend uncounted its own run refuses, or says. It may begin twice: nothing reads what the phase prints.
func runGit(p *Placed, ph phase) (outcome, error) {
	bare := ph.flags
	ph.flags = p.money.counted(bare)
	o, err := ph.runIn(p)
	if o.refused != nil && o.refused.Uncounted {
		ph.flags = bare
		return ph.runIn(p)
	}
	return o, err
}

// identity are the options of git for whom commits are by.
func (p *Placed) identity() (options []string) {
	if name := cmp.Or(p.order.User.Name, p.repo.user.Name); name != "" {
		options = append(options, "-c", "user.name="+name)
	}
	if email := cmp.Or(p.order.User.Email, p.repo.user.Email); email != "" {
		options = append(options, "-c", "user.email="+email)
	}
	return options
}

// A Worked is a task at which the agent has worked.
type Worked struct {
	*Placed
	began    time.Time
	deadline time.Time
	seen     *seen
	end      agent.End
	last     outcome // of the agent's last run
	runs     int     // of the agent, as its prompt and --until have it
	usage    agent.Usage
	denied   []string // tools, by the agent's own rules
	quiet    func()   // ends the warnings of time
}

// seen is what the events of a task's runs say. Several goroutines write it.
type seen struct {
	mu       sync.Mutex
	denials  map[string]bool
	findings map[string]bool
	warnings map[string]bool
	usage    agent.Usage
}

// event takes one in. Each phase is a quiet run, so that what it warns of, such as a guarantee that this machine cannot keep, is
// in its events alone.
func (s *seen) event(e events.Event, to Reporter, since time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := e.(type) {
	case events.Warning:
		if note(s.warnings, e.Text) {
			to.Line(e.Text)
			if e.Hint != "" {
				to.Line("hint: " + e.Hint)
			}
		}
	case events.Denial:
		if !strings.HasPrefix(e.What, "keep ") && note(s.denials, e.What) { // which is a finding
			to.Denied(since, e)
		}
	case events.Changed:
		if e.Kind == "stashed" || e.Kind == "inert" {
			note(s.findings, e.Path)
		}
	}
}

// Bounds of what a record keeps of denials and of findings.
const (
	maxNoted  = 256
	noteBytes = 512
)

// note adds a text to a set, and reports whether it was new and there was room.
func note(set map[string]bool, text string) bool {
	if len(text) > noteBytes {
		text = strings.ToValidUTF8(text[:noteBytes], "") + "…"
	}
	if set[text] || len(set) == maxNoted {
		return false
	}
	set[text] = true
	return true
}

// newWorked begins the time of a task.
func newWorked(p *Placed) *Worked {
	now := time.Now()
	return &Worked{Placed: p, began: now, deadline: now.Add(p.order.Timeout), seen: &seen{denials: map[string]bool{}, findings: map[string]bool{}, warnings: map[string]bool{}}}
}

// Work has the agent do what the order says.
func (p *Placed) Work() (*Worked, error) {
	w := newWorked(p)
	w.quiet = warnOfTime(w)
	sayApart(p)
	if p.order.Prepare != "" {
		o, err := w.shell(p.order.Prepare, "prepare", p.order.PrepareAllow...)
		if err == nil {
			err = o.refusal("prepare")
		}
		if err == nil && o.code != 0 && !o.stopped && !o.timedOut {
			text := fmt.Sprintf("what prepares the work tree ended with status %d: %s", o.code, strings.Join(o.lastLines(3), "; "))
			err = errors.New(strings.TrimSuffix(text, ": "))
		}
		if err != nil {
			return nil, errors.Join(err, w.abandon())
		}
		if o.stopped {
			return nil, errors.Join(errors.New("interrupted before the agent runs"), w.abandon())
		}
		if w.last = o; o.timedOut {
			return w, nil
		}
	}
	if err := w.turn(p.order.Prompt); err != nil {
		return nil, errors.Join(err, w.abandon())
	}
	w.runs = 1
	return w, nil
}

// abandon is for a task whose agent did not start: what was made for it goes, and what stood stays.
func (w *Worked) abandon() error {
	if w.fresh && !w.task.InPlace {
		return w.Undo()
	}
	leave(w.Placed)
	w.task.State, w.task.Why = Failed, "it did not start"
	defer w.task.close()
	return w.task.save()
}

// turn has the agent do one thing, in its conversation if it has one.
func (w *Worked) turn(prompt string) error {
	resumes := w.task.Conversation != ""
	err := w.converse(prompt)
	if _, over := w.money.spent(); err == nil && resumes && !over && !w.last.stopped && !w.last.timedOut && !w.end.Final && w.end.Conversation == "" {
		w.to.Line("the agent does not know its conversation any more: a new one begins")
		w.task.Conversation, w.task.Conversed = "", agent.Usage{}
		err = w.converse(prompt)
	}
	return err
}

// converse is one run of the agent.
func (w *Worked) converse(prompt string) error {
	t, a := w.task, w.order.Agent
	start := agent.Start{Prompt: prompt, Model: cmp.Or(w.order.Model, t.Model), Conversation: t.Conversation, Resume: t.Conversation != "", Args: w.order.Args}
	if start.Conversation == "" && a.OwnIDs {
		start.Conversation = newUUID()
	}
	t.Conversation = start.Conversation
	t.Model = start.Model
	if err := t.save(); err != nil { // whoever kills this process leaves a conversation that can be continued
		return err
	}
	var end agent.End
	var unread error
	o, err := w.counting(phase{
		dir: t.Worktree, place: w.order.Place, flags: w.agentFlags(), command: a.Command(start), timeout: w.left(), spent: w.money.end(),
		seen: func(e events.Event) {
			if _, runs := e.(events.Running); runs {
				w.to.AgentRuns()
			}
			w.event(e)
		},
		out: func(r io.Reader) { end, unread = a.Follow(r, w.step) },
	})
	if err == nil {
		err = o.refusal(a.Name)
	}
	if err != nil {
		return err
	}
	if unread != nil {
		w.to.Line("the agent's output cannot be read any more: " + unread.Error())
	}
	w.end, w.last, w.fresh = end, o, false
	w.count(&end)
	w.denied = append(w.denied, end.Denied...)
	t.Conversation = cmp.Or(end.Conversation, start.Conversation)
	t.Version = cmp.Or(end.Version, t.Version)
	t.Message = cmp.Or(end.Message, t.Message)
	return t.save()
}

// agentFlags are those of the agent's run: the variables that it needs inside are set, where the user does not.
func (w *Worked) agentFlags() []string {
	flags := w.flags(w.order.Profile)
	if Elsewhere(w.order.Place) {
		for _, dir := range w.order.Agent.Conversations {
			flags = append(flags, "--conversation", dir)
		}
	}
	return withVariables(&w.order, flags)
}

// withVariables adds the agent's variables to the flags of a run.
func withVariables(o *Order, flags []string) []string {
	if Elsewhere(o.Place) {
		flags = append(flags, installFlags(o)...)
	}
	for _, variable := range o.Agent.Environment {
		name, _, _ := strings.Cut(variable, "=")
		if !slices.ContainsFunc(o.Flags, func(f string) bool { return f == name || strings.HasPrefix(f, name+"=") }) {
			flags = append(flags, "--env", variable)
		}
	}
	return flags
}

// count adds what a run has used. What counts the whole conversation counts the earlier runs of it too.
func (w *Worked) count(end *agent.End) {
	used := end.Usage
	if end.Whole {
		before := w.task.Conversed
		w.task.Conversed = used
		used = used.Since(before)
	}
	w.usage, w.task.Usage = w.usage.Plus(used), w.task.Usage.Plus(used)
	w.money.follow(used, end.Model, w.to)
	w.money.cost(&w.usage, &w.task.Usage)
}

// step shows what the agent did.
func (w *Worked) step(s agent.Step, sofar agent.End) {
	w.seen.mu.Lock()
	w.seen.usage = sofar.Usage
	w.seen.mu.Unlock()
	w.money.follow(sofar.Usage, sofar.Model, w.to)
	w.to.Step(time.Since(w.began), s)
}

// event takes in an event of a run.
func (w *Worked) event(e events.Event) {
	w.money.event(e, w.to)
	w.seen.event(e, w.to, time.Since(w.began))
}

// nearlyOver is how many hundredths of the time are over when little is left.
const nearlyOver = 83

// warnOfTime says when half of the time is over, and when five sixths are. The function that it returns ends that.
func warnOfTime(w *Worked) (end func()) {
	var timers []*time.Timer
	record := w.task.Record // which changes while they run
	for _, part := range []int64{50, nearlyOver} {
		after := time.Duration(int64(w.order.Timeout) / 100 * part)
		timers = append(timers, time.AfterFunc(time.Until(w.began.Add(after)), func() {
			w.seen.mu.Lock()
			sofar := w.seen.usage
			w.seen.mu.Unlock()
			text := fmt.Sprintf("%s of %s are over (%d %%)", timeText(after), timeText(w.order.Timeout), part)
			if cost := usageText(sofar, ""); cost != "" {
				text += ": " + cost + " so far"
			}
			w.to.Line(text)
			if part == nearlyOver {
				w.order.Notifier.tell(noticeOf(&record, "time", 0, text))
			}
		}))
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// left is how much of the time is left. A deadline that has passed leaves the shortest timeout there is: none would be no timeout.
func (w *Worked) left() time.Duration { return max(time.Until(w.deadline), time.Millisecond) }

// shell runs a command of the user's in the work tree, as the agent could. It reaches more hosts than the agent, if some are named.
func (w *Worked) shell(command, what string, hosts ...string) (outcome, error) {
	began := time.Now()
	flags := w.flags(w.profile())
	if Elsewhere(w.order.Place) { // in the agent's sandbox, which is of the same policy alone
		flags = withVariables(&w.order, flags)
	}
	for _, host := range hosts {
		flags = append(flags, "--allow", host)
	}
	last := &tail{}
	o, err := w.counting(phase{
		dir: w.task.Worktree, place: w.order.Place, flags: flags, command: []string{"sh", "-c", "exec 2>&1\n" + command}, timeout: w.left(), seen: w.event,
		out: func(r io.Reader) { _, _ = io.Copy(last, r) },
	})
	if said := last.String(); said != "" {
		o.said += said
	}
	if err == nil && o.refused == nil {
		result := fmt.Sprintf("exit %d", o.code)
		if what == "until" {
			result += fmt.Sprintf(", run %d of %d", w.runs, w.order.MaxRuns)
		}
		w.to.Step(began.Sub(w.began), agent.Step{Kind: agent.Kind(what), What: command, Result: result, Failed: o.code != 0})
	}
	return o, err
}

// newUUID names a conversation: a UUID of version 4, RFC 9562.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it cannot fail: crypto/rand
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// usageText says what was used, "" for nothing.
func usageText(u agent.Usage, by string) string {
	if u == (agent.Usage{}) {
		return ""
	}
	text := fmt.Sprintf("%s tokens in, %s out", thousands(u.Input+u.CacheRead+u.CacheWrite), thousands(u.Output))
	if u.Priced {
		text += fmt.Sprintf(", $%.2f", u.USD)
		if by != "" {
			text += " (" + by + "'s own count)"
		}
	}
	return text
}

// timeText writes a duration without what is nought at its end.
func timeText(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%dk", (n+500)/1000)
}

// listed returns the sorted keys of a set.
func listed(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
