//go:build unix

package many

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/text/width"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/task"
)

// A View is how a table is to be written.
type View struct {
	Width, Height int // of the terminal, in cells
	Colours       bool
	Now           time.Time
}

// colours of states: SGR, ECMA-48.
var colours = map[task.State]string{
	task.Working: "36", task.Done: "32", task.Failed: "31", task.Stopped: "33", Refused: "31",
}

// urgency says which tasks are shown where there is no room for all.
var urgency = map[task.State]int{task.Working: 3, task.Failed: 2, task.Stopped: 2, Refused: 2, Waiting: 1}

// Table writes a state as lines for a terminal. None is wider than it, and there are fewer than it has.
func Table(s *State, v View) []string {
	shown := make([]*Status, len(s.Tasks))
	name := len("TASK")
	for i := range s.Tasks {
		shown[i] = &s.Tasks[i]
		name = max(name, min(len(shown[i].Name), 28))
	}
	room := max(v.Height-4, 1)
	hidden := max(len(shown)-room, 0)
	if hidden > 0 {
		slices.SortStableFunc(shown, func(a, b *Status) int { return urgency[b.State] - urgency[a.State] })
		shown = shown[:room]
		slices.SortFunc(shown, func(a, b *Status) int { return cmp.Compare(a.Line, b.Line) })
	}
	rows := []string{fit(fmt.Sprintf("%4s  %-*s  %-9s  %7s  %7s  %5s  %s", "#", name, "TASK", "STATE", "TIME", "COST", "FILES", "LAST"), v.Width)}
	for _, t := range shown {
		rows = append(rows, t.row(name, v))
	}
	if hidden > 0 {
		rows = append(rows, fit(fmt.Sprintf("      and %d more", hidden), v.Width))
	}
	sum := fmt.Sprintf("%d of %d done, %d working, %d waiting; %s", s.count(task.Done), len(s.Tasks), s.count(task.Working), s.count(Waiting), clock(v.Now.Sub(s.Began)))
	sum += s.costText()
	if wait := s.Hold.Sub(v.Now).Round(time.Second); wait > 0 {
		sum += fmt.Sprintf("; the API limits the rate: all wait %s", wait)
	}
	return append(rows, fit(sum, v.Width))
}

// row is one task's line.
func (t *Status) row(name int, v View) string {
	took := t.Took
	if t.State == task.Working {
		took = v.Now.Sub(t.Began)
	}
	spent, cost, files := "–", "–", "–"
	if !t.Began.IsZero() {
		spent = clock(took)
	}
	if t.Usage.Priced {
		cost = fmt.Sprintf("$%.2f", t.Usage.USD)
	}
	if t.Fetched != "" {
		files = fmt.Sprint(t.Files)
	}
	last := t.Last
	switch {
	case t.Why != "":
		last = t.Why
	case t.State == task.Done && t.Fetched != "":
		last = t.Branch
	case t.State == task.Done:
		last = "nothing changed"
	}
	before := fmt.Sprintf("%4d  %-*s  ", t.Line, name, fit(t.Name, name))
	state := fmt.Sprintf("%-9s", t.State)
	row := fit(before+state+fmt.Sprintf("  %7s  %7s  %5s  %s", spent, cost, files, last), v.Width)
	if sgr := colours[t.State]; v.Colours && sgr != "" {
		row = strings.Replace(row, state, "\x1b["+sgr+"m"+state+"\x1b[m", 1)
	}
	return row
}

// clock writes a duration in at most seven characters.
func clock(d time.Duration) string {
	s := int(max(d, 0).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// fit is a text on one line of so many cells. Nothing of it acts on a terminal.
func fit(text string, cells int) string {
	text = messages.Printable(strings.TrimRight(text, " \n"))
	if Cells(text) <= cells {
		return text
	}
	used := 1 // of the mark
	for i, r := range text {
		if used += cellsOf(r); used > cells {
			return text[:i] + "…"
		}
	}
	return text
}

// Cells is how wide a line of a table is at most.
func Cells(line string) (n int) {
	for _, r := range colour.ReplaceAllString(line, "") {
		n += cellsOf(r)
	}
	return n
}

var colour = regexp.MustCompile("\x1b\\[[0-9]*m")

func cellsOf(r rune) int {
	if r < utf8.RuneSelf {
		return 1
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Change is a line for what has become of a task, "" if that needs none.
func (s *State) Change(i int) string {
	t := &s.Tasks[i]
	switch {
	case t.State == task.Working:
		return "task " + t.Name + " begins"
	case t.State == NotBegun:
		return strings.TrimSuffix("task "+t.Name+" is not begun: "+t.Why, ": ")
	}
	return "task " + t.Name + ": " + t.outcome()
}

// outcome says how a task has ended.
func (t *Status) outcome() string {
	text := string(t.State) + " after " + t.Took.Round(time.Second).String()
	if t.State == Refused {
		text = string(t.State)
	}
	if t.Fetched != "" {
		text += fmt.Sprintf(", %s, +%d −%d", task.Count(t.Files, "file"), t.Added, t.Removed)
	} else if t.State == task.Done {
		text += ", nothing changed"
	}
	if t.Usage.Priced {
		text += fmt.Sprintf(", $%.2f", t.Usage.USD)
	}
	if t.Why != "" {
		text += ": " + t.Why
	}
	return text
}
