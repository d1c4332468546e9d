//go:build unix

package many

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/task"
)

// Results are what has become of all tasks.
type Results struct {
	State
	Clashes []task.Clash // by places in Tasks
	Untried string       // of which branches nobody knows whether they merge, and why; "" for none
}

// Judge has git try which branches that came back would not merge with each other.
func Judge(ctx context.Context, s State) Results {
	r := Results{State: s}
	var commits []string
	var of []int
	top := ""
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.Fetched != "" {
			commits, of, top = append(commits, t.Fetched), append(of, i), t.Repository
		}
	}
	if len(commits) < 2 {
		return r
	}
	found, untried, err := task.Clashes(ctx, top, commits)
	for _, c := range found {
		r.Clashes = append(r.Clashes, task.Clash{A: of[c.A], B: of[c.B], Files: c.Files})
	}
	switch {
	case err != nil:
		r.Untried = "which branches merge with each other is not known: " + messages.InWords(err)
	case untried > 0:
		r.Untried = fmt.Sprintf("%s of branches were not tried: there are too many", task.Count(untried, "pair"))
	}
	return r
}

// Succeeded reports whether each task has.
func (r *Results) Succeeded() bool { return r.count(task.Done) == len(r.Tasks) }

// summary is what there is to say of all.
func (r *Results) summary() string {
	text := fmt.Sprintf("%d of %s done", r.count(task.Done), task.Count(len(r.Tasks), "task"))
	for _, state := range []task.State{task.Failed, task.Stopped, Refused, NotBegun} {
		if n := r.count(state); n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text + "; " + r.Took.Round(time.Second).String() + r.costText()
}

// clashes say which branches do not merge with each other.
func (r *Results) clashes() (lines []string) {
	for _, c := range r.Clashes {
		lines = append(lines, fmt.Sprintf("%s and %s do not merge with each other: %s", r.Tasks[c.A].Branch, r.Tasks[c.B].Branch, messages.Few(c.Files, 3)))
	}
	if r.Untried != "" {
		lines = append(lines, r.Untried)
	}
	return lines
}

// brought is the branch that came back, "" for none.
func (t *Status) brought() string {
	if t.Fetched == "" {
		return ""
	}
	return t.Branch
}

// maxClashLines bounds the pairs that [Results.Lines] names; JSON and Markdown have all.
const maxClashLines = 20

// Lines are what is printed at the end.
func (r *Results) Lines() []string {
	name, branch := 0, 0
	for i := range r.Tasks {
		name, branch = max(name, len(r.Tasks[i].Name)), max(branch, len(r.Tasks[i].brought()))
	}
	lines := []string{r.summary()}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		what := t.outcome()
		if t.State == NotBegun {
			what = strings.TrimSuffix(string(NotBegun)+": "+t.Why, ": ")
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %-*s  %-*s  %s", name, t.Name, branch, t.brought(), what), " "))
		if t.Hint != "" {
			lines = append(lines, "hint: "+t.Hint)
		}
	}
	clashes := r.clashes()
	if more := len(clashes) - maxClashLines; more > 0 {
		clashes = append(clashes[:maxClashLines], fmt.Sprintf("and %d more pairs (--results FILE.json has all)", more))
	}
	return append(lines, clashes...)
}

// jsonTask is a task in JSON.
type jsonTask struct {
	Name  string     `json:"name"`
	Line  int        `json:"line"`
	State task.State `json:"state"`
	Why   string     `json:"why"`
	Hint  string     `json:"hint"`
	Took  int64      `json:"took_ms"`
	Result
}

// jsonClash is a pair of branches in JSON.
type jsonClash struct {
	Tasks [2]string `json:"tasks"`
	Files []string  `json:"files"`
}

// JSON is the results as one line: see cmd/pccrun/help/json.txt.
func (r *Results) JSON() []byte {
	o := struct {
		V       int         `json:"v"`
		Type    string      `json:"type"`
		OK      bool        `json:"succeeded"`
		Took    int64       `json:"took_ms"`
		Tasks   []jsonTask  `json:"tasks"`
		Clashes []jsonClash `json:"conflicts"`
		Untried string      `json:"conflicts_unknown"`
	}{messages.SchemaVersion, "results", r.Succeeded(), r.Took.Milliseconds(), []jsonTask{}, []jsonClash{}, r.Untried}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		result := t.Result
		result.Denials, result.Findings = append([]string{}, t.Denials...), append([]string{}, t.Findings...)
		o.Tasks = append(o.Tasks, jsonTask{t.Name, t.Line, t.State, t.Why, t.Hint, t.Took.Milliseconds(), result})
	}
	for _, c := range r.Clashes {
		o.Clashes = append(o.Clashes, jsonClash{[2]string{r.Tasks[c.A].Name, r.Tasks[c.B].Name}, c.Files})
	}
	return append(events.Marshal(o), '\n')
}

// markdown has what would be read as Markdown, or HTML, escaped. What a task says is the agent's.
func markdown(text string) string {
	var b strings.Builder
	for _, r := range messages.Printable(text) {
		if strings.ContainsRune("\\`*_{}[]()<>#|!&~", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Markdown is the results as a page.
func (r *Results) Markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nBegun %s.\n\n| task | state | branch | files | added | removed | cost | time | |\n|---|---|---|---|---|---|---|---|---|\n", markdown(r.summary()), r.Began.UTC().Format(time.RFC3339))
	for i := range r.Tasks {
		t := &r.Tasks[i]
		cost := ""
		if t.Usage.Priced {
			cost = fmt.Sprintf("$%.2f", t.Usage.USD)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %s | %s | %s |\n",
			markdown(t.Name), t.State, markdown(t.brought()), t.Files, t.Added, t.Removed, cost, t.Took.Round(time.Second), markdown(t.Why))
	}
	for i, line := range r.clashes() {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("- " + markdown(line) + "\n")
	}
	return []byte(b.String())
}

// A File is where results are to be written.
type File struct {
	root *os.Root
	name string
}

// Destination opens the directory of a file for results, through no link, and refuses what cannot be written there.
func Destination(path string) (f File, err error) {
	if f.name = filepath.Base(path); filepath.Ext(f.name) != ".json" && filepath.Ext(f.name) != ".md" {
		return f, hint.Errorf("FILE.json or FILE.md", "%s: how it is to be written is not known", path)
	}
	if path, err = filepath.Abs(path); err != nil {
		return f, err
	}
	dir := filepath.Dir(path)
	if real, err := state.Real(dir); err == nil && real != dir {
		return f, hint.Errorf("name the directory itself: "+real, "%s: a link leads there", dir)
	}
	if f.root, err = os.OpenRoot(dir); err != nil {
		return f, err
	}
	if info, e := f.root.Lstat(f.name); e == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", path)
	} else if e := unix.Access(dir, unix.W_OK|unix.X_OK); e != nil {
		err = fmt.Errorf("write in %s: %w", dir, e)
	}
	if err != nil {
		f.root.Close()
	}
	return f, err
}

// Write writes results, all or nothing.
func (f File) Write(r *Results) error {
	text := r.JSON()
	if filepath.Ext(f.name) == ".md" {
		text = r.Markdown()
	}
	return errors.Join(state.WriteFile(f.root, f.name, text, state.Durable), f.root.Close())
}
