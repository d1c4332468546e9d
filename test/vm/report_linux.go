package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// A row is a set-up and what came of it.
type row struct {
	setup           *setup
	release         string
	runs            bool
	refused         string // what the launcher said
	hint            string
	followed        []string          // whose advice was
	fixed           bool              // and it runs
	states          map[string]string // by guarantee
	limits          []string          // that a policy asks for, and what keeps them
	limitsAfter     []string          // and after all advice
	escaped         map[string]int    // probes that got out, of guarantees that are claimed
	blocked         map[string]int
	passed, skipped int // tests
	failed          int
	packages        int      // whose tests those are
	whole           []string // of them, those whose tests all ran
	untried         int      // probes that the suite itself left out
	as              string   // the row that is this one after its hint
	took            time.Duration
	earlier         bool // it was tried in another run
	problems        []string
}

// doctorAnswer is what the table needs of `pccrun doctor --json`.
type doctorAnswer struct {
	Providers []struct {
		Name          string
		Runs          bool
		Refused, Hint string
		Guarantees    []struct{ Guarantee, State, Mechanism, Cause string }
		Limits        []struct{ Guarantee, State, Mechanism string }
	}
}

// judge holds what a machine said against what the set-up should be.
func judge(s *setup, r *result, err error) row {
	w := row{setup: s, states: map[string]string{}, escaped: map[string]int{}, blocked: map[string]int{}}
	problem := func(format string, args ...any) { w.problems = append(w.problems, fmt.Sprintf(format, args...)) }
	if err != nil {
		problem("%v", err)
		return w
	}
	w.release = r.Release
	if r.Problem != "" {
		problem("%s", r.Problem)
	}
	w.runs = r.Before.Code == 0
	for line := range strings.Lines(r.Before.Said) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "pccrun: ")
		if hint, ok := strings.CutPrefix(line, "hint: "); ok {
			w.hint = hint
		} else if !w.runs {
			w.refused = line
		}
	}
	switch {
	case s.refused == "" && !w.runs:
		problem("refused: %s", r.Before.Said)
	case s.refused != "" && w.runs:
		problem("runs, where a refusal was expected")
	case !strings.Contains(w.refused, s.refused):
		problem("the refusal does not name its cause: %s", w.refused)
	}
	if w.refused != "" && w.hint == "" {
		problem("a refusal without a hint: %s", w.refused)
	}
	if s.fixable {
		w.judgeFixes(r)
	}
	if err := w.doctor(r.Before.Doctor); err != nil {
		problem("doctor: %v: %s", err, r.Before.DoctorSaid)
	}
	w.escapes(&r.Before)
	return w
}

// doctor reads the answers of the doctor.
func (w *row) doctor(text string) error {
	var d doctorAnswer
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	if len(d.Providers) == 0 || d.Providers[0].Name != "native" { // the others follow
		return errors.New("no answer of the native provider")
	}
	p := d.Providers[0]
	if p.Runs != w.runs {
		w.problems = append(w.problems, fmt.Sprintf("the doctor says that it runs: %t, and it does: %t", p.Runs, w.runs))
	}
	for _, g := range p.Guarantees {
		w.states[g.Guarantee] = g.State
	}
	for _, l := range p.Limits {
		w.limits = append(w.limits, limitText(l.Guarantee, l.State, l.Mechanism))
	}
	if g := w.setup.weak; g != "" && w.states[g] == "kept" {
		w.problems = append(w.problems, fmt.Sprintf("doctor: %s is kept, which this kernel cannot keep", g))
	}
	return nil
}

// judgeFixes asks of what was advised and followed that all runs afterwards,
// and limits are kept.
func (w *row) judgeFixes(r *result) {
	problem := func(format string, args ...any) { w.problems = append(w.problems, fmt.Sprintf(format, args...)) }
	for _, f := range r.Followed {
		w.followed = append(w.followed, f.By)
	}
	switch {
	case r.After == nil:
		problem("nothing was advised")
	case r.After.Code != 0 || len(r.Followed) == 0:
		problem("what was advised does not help: %+v: %s", r.Followed, r.After.Said)
	default:
		list, err := r.After.limits()
		if err != nil {
			problem("the plan afterwards: %v", err)
			return
		}
		for _, l := range list {
			if !strings.Contains(l, " kept ") && !w.setup.start.around() { // a container's own limits are its engine's to give
				problem("what was advised leaves a limit as it is: %s: %+v", l, r.Followed)
			}
		}
		w.fixed, w.limitsAfter = true, list
	}
}

// tests reads what test binaries said: a failure is the set-up's, and so is a
// skip that test/skips.txt allows neither a user nor a machine ("vm").
func (w *row) tests(ctx context.Context, runs []testRun, allowed verdicts.Skips) {
	problem := func(format string, args ...any) { w.problems = append(w.problems, fmt.Sprintf(format, args...)) }
	for _, t := range runs {
		list, rest, err := verdicts.Read(ctx, verdicts.Module+t.Package, strings.NewReader(t.Output))
		if err != nil {
			problem("%v", err)
		}
		w.packages++
		if t.Whole {
			w.whole = append(w.whole, t.Package)
		}
		failed := false
		for _, v := range list {
			switch {
			case v.Outcome == verdicts.Pass:
				w.passed++
			case v.Outcome == verdicts.Failed:
				failed = true
				w.failed++
				problem("%s.%s fails:\n%s", t.Package, v.Test, tail(v.Output, 1200))
			case allowed.Allow(v, "user", "vm"):
				w.skipped++
			default:
				problem("%s.%s: a skip that test/skips.txt does not allow: %s", t.Package, v.Test, v.Reason)
			}
		}
		if t.Code != 0 && !failed {
			problem("tests of %s: exit status %d:\n%s", t.Package, t.Code, tail(rest, 1200))
		}
	}
}

// escapes counts the probes of each guarantee.
func (w *row) escapes(o *outcome) {
	if o.Escape == "" {
		if w.runs && o.EscapeSaid != "" {
			w.problems = append(w.problems, "the escape suite said nothing but "+o.EscapeSaid)
		}
		return
	}
	d := json.NewDecoder(strings.NewReader(o.Escape))
	for d.More() {
		var p struct {
			ID, Name, Guarantee, Verdict, Claim, Reason string
		}
		if err := d.Decode(&p); err != nil {
			w.problems = append(w.problems, fmt.Sprintf("read the escape suite's answer: %v", err))
			return
		}
		switch p.Verdict {
		case "blocked", "degraded":
			w.blocked[p.Guarantee]++
		case "escaped":
			w.escaped[p.Guarantee]++
			if p.Claim == "kept" {
				w.problems = append(w.problems, fmt.Sprintf("%s %s: escaped, and %s is claimed", p.ID, p.Name, p.Guarantee))
			}
		case "skipped":
			w.untried++
		case "vacuous", "error":
			w.problems = append(w.problems, fmt.Sprintf("%s %s: %s, which proves nothing: %s", p.ID, p.Name, p.Verdict, p.Reason))
		}
	}
}

// mended names, in rows whose hint asks for another machine, the row that is that
// one, and returns for how many it does not run.
func mended(rows []row) (wrong int) {
	for i := range rows {
		w := &rows[i]
		if w.setup == nil || w.setup.mended == "" {
			continue
		}
		at := slices.IndexFunc(rows, func(r row) bool { return r.setup != nil && r.setup.name == w.setup.mended })
		switch {
		case at < 0: // left out of this run, and then the table says so
		case rows[at].runs:
			w.as = letter(at)
		default:
			w.problems = append(w.problems, "what its hint asks for is "+w.setup.mended+", which does not run")
			wrong++
		}
	}
	return wrong
}

func (w *row) verdict() string {
	switch {
	case len(w.problems) > 0:
		return "PROBLEM"
	case w.runs:
		return "runs"
	}
	return "refused"
}

func (w *row) line() string {
	fixed := ""
	if w.fixed {
		fixed = "; after " + strings.Join(w.followed, ", then ") + ": runs; " + strings.Join(w.limitsAfter, ", ")
	}
	switch {
	case w.refused != "":
		return w.refused + fixed
	}
	return strings.Join(w.limits, ", ") + "; " + w.tested() + "; " + w.probed() + fixed
}

// The marks between which the table stands in a page.
const (
	tableBegins = "<!-- written by make test-vm: begin -->\n"
	tableEnds   = "<!-- written by make test-vm: end -->\n"
)

// writeTable puts the table into a page.
func writeTable(page, table string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(tableBegins))
	_, after, ok2 := bytes.Cut(rest, []byte(tableEnds))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, slices.Concat(before, []byte(tableBegins), []byte(table), []byte(tableEnds), after), 0o644)
}

// table writes the matrix: a column of letters for set-ups, a row for each
// guarantee.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| | set-up | Linux | mode | |\n|---|---|---|---|---|\n")
	for i, w := range rows {
		mode, what := "namespaces", "runs; "+strings.Join(w.limits, ", ")
		if len(w.problems) > 0 && !w.runs && w.refused == "" {
			mode, what = "not tried", strings.SplitN(w.problems[0], "\n", 2)[0]
		} else if !w.runs {
			mode, what = "refused", "`"+w.refused+"`; hint: "+w.hint
		}
		if w.runs {
			what += "; " + w.tested() + "; " + w.probed()
		}
		if w.fixed {
			what += "; **after " + strings.Join(w.followed, ", then ") + ": runs; " + strings.Join(w.limitsAfter, ", ") + "**"
		} else if w.as != "" {
			what += "; **with what the hint asks for it is row " + w.as + ", which runs**"
		} else if w.refused != "" {
			what += "; its hint was not followed in this run"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", letter(i), w.setup.says, w.release, mode, what)
	}
	b.WriteString("\n| guarantee |")
	for i := range rows {
		b.WriteString(" " + letter(i) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(rows)) + "\n")
	for _, g := range guarantees() {
		b.WriteString("| " + g + " |")
		for _, w := range rows {
			b.WriteString(" " + w.cell(g) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// tested says which tests ran, and what came of them.
func (w *row) tested() string {
	if w.packages == 0 {
		return "no tests"
	}
	s := fmt.Sprintf("%d tests of %d packages passed, %d skipped", w.passed, w.packages, w.skipped)
	if len(w.whole) > 0 {
		s += " (all of " + strings.Join(w.whole, ", ") + ")"
	}
	if w.failed > 0 {
		s += fmt.Sprintf(", **%d failed**", w.failed)
	}
	return s
}

// probed says how many probes of the escape suite were tried.
func (w *row) probed() string {
	blocked, escaped := 0, 0
	for _, n := range w.blocked {
		blocked += n
	}
	for _, n := range w.escaped {
		escaped += n
	}
	if blocked+escaped+w.untried == 0 {
		return "no probes"
	}
	s := fmt.Sprintf("%d probes stopped", blocked)
	if escaped > 0 {
		s += fmt.Sprintf(", **%d not**", escaped)
	}
	if w.untried > 0 {
		s += fmt.Sprintf(", %d that the suite cannot try there", w.untried)
	}
	return s
}

// letter names a set-up: A to Z, then AA.
func letter(i int) string {
	if i >= 26 {
		return letter(i/26-1) + letter(i%26)
	}
	return string(rune('A' + i))
}

// cell says of a guarantee in a set-up how far it is kept, and how many
// probes of the escape suite were stopped, and got out.
func (w *row) cell(g string) string {
	switch {
	case w.refused != "":
		return "refused"
	case !w.runs:
		return "not tried"
	case w.states[g] == "":
		return "not asked"
	}
	s := w.states[g]
	if w.blocked[g] > 0 {
		s += fmt.Sprintf(" %d", w.blocked[g])
	}
	if w.escaped[g] > 0 {
		s += fmt.Sprintf(" (%d out)", w.escaped[g])
	}
	return s
}

// guarantees returns those that this machine's own provider answers for.
func guarantees() []string {
	var list []string
	for _, name := range profiles.GuaranteeNames() {
		if !strings.HasPrefix(name, "sync.") {
			list = append(list, name)
		}
	}
	return list
}
