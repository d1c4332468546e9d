package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/joshdk/go-junit"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// results are what came of a suite's tests, by their names.
type results map[string]verdicts.Outcome

// union has the keys of both, and where both have one b's value.
func union[M ~map[string]V, V any](a, b M) M {
	all := M{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// add counts a test. Of several with one name the worst counts.
func (r results) add(name string, outcome verdicts.Outcome) {
	rank := []verdicts.Outcome{"", verdicts.Pass, verdicts.Skipped, verdicts.Failed}
	if slices.Index(rank, outcome) > slices.Index(rank, r[name]) {
		r[name] = outcome
	}
}

// count returns how many have an outcome.
func (r results) count(outcome verdicts.Outcome) (n int) {
	for _, o := range r {
		if o == outcome {
			n++
		}
	}
	return n
}

func (r results) String() string {
	return fmt.Sprintf("%d, %d, %d", r.count(verdicts.Pass), r.count(verdicts.Failed), r.count(verdicts.Skipped))
}

// testJSON reads what go test -json prints.
func testJSON(out []byte) (results, error) {
	list, _, err := verdicts.Events(bytes.NewReader(out))
	r := results{}
	for _, v := range list {
		r.add(v.Package+"."+v.Test, v.Outcome)
	}
	return r, err
}

// tapLine is a result, and its directive.
var tapLine = regexp.MustCompile(`^(not )?ok\b(?: \d+)?(?: -)? ?(.*?)(?: ?# (?i:(skip|todo))\b[: ]*(.*))?$`)

// tap reads the Test Anything Protocol, in which a line "# file NAME" says whose results follow. A known
// breakage counts as skipped, as it does for git.
func tap(out []byte) (results, error) {
	r, file := results{}, ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "# file "); ok {
			file = name + " "
		} else if m := tapLine.FindStringSubmatch(line); m != nil {
			outcome := verdicts.Pass
			switch {
			case m[3] != "":
				outcome = verdicts.Skipped
			case m[1] != "":
				outcome = verdicts.Failed
			}
			name := m[2]
			if name == "" { // git has the name of a test that it skips behind the word
				name, _, _ = strings.Cut(m[4], " (")
			}
			r.add(file+name, outcome)
		}
	}
	return r, nil
}

// jUnit reads JUnit's XML.
func jUnit(out []byte) (results, error) {
	list, err := junit.Ingest(out)
	r := results{}
	outcomes := map[junit.Status]verdicts.Outcome{junit.StatusPassed: verdicts.Pass, junit.StatusSkipped: verdicts.Skipped}
	for _, s := range list {
		for _, t := range s.Tests {
			r.add(strings.TrimSpace(strings.Join([]string{s.Package, t.Classname, t.Name}, " ")), cmp.Or(outcomes[t.Status], verdicts.Failed))
		}
	}
	return r, err
}

// found reads lines of which each that matches is a finding, called as its groups; one of which the last group
// matches no is none.
func found(pattern, no string) func([]byte) (results, error) {
	line, none := regexp.MustCompile(`(?m)`+pattern), regexp.MustCompile(`^(`+no+`)$`)
	return func(out []byte) (results, error) {
		r := results{}
		for _, m := range line.FindAllStringSubmatch(string(out), -1) {
			outcome := verdicts.Failed
			if none.MatchString(strings.TrimSpace(m[len(m)-1])) {
				outcome = verdicts.Pass
			}
			r.add(strings.TrimSpace(strings.Join(m[1:], ": ")), outcome)
		}
		return r, nil
	}
}

// probeReport reads the report of sandbox-probe: each value of a finding is one.
func probeReport(out []byte) (results, error) {
	var report struct {
		Findings []struct {
			FindingType string
			Value       any
		}
	}
	err := json.Unmarshal(out, &report)
	r := results{}
	for _, f := range report.Findings {
		values, several := f.Value.([]any)
		if !several {
			values = []any{f.Value}
		}
		for _, v := range values {
			r.add(fmt.Sprint(f.FindingType, " ", v), verdicts.Failed)
		}
	}
	return r, err
}

// A row is what came of a suite.
type row struct {
	suite
	version         string
	when            time.Time
	without, within results
	explained       map[string]int // differences that are known, by their reasons
	new             []string       // differences that are not, and what was left or changed outside
}

// compare finds the differences: what passes outside and not inside, and what fails inside and not
// outside. Of attacks each that succeeds inside is one, whether it does outside or not.
func (r *row) compare(known [][]string) error {
	r.explained = map[string]int{}
	if r.judge == attacks && r.without.count(verdicts.Failed) == 0 {
		return fmt.Errorf("nothing is found outside: that nothing is inside proves nothing")
	}
	for _, name := range slices.Sorted(maps.Keys(union(r.without, r.within))) {
		out, in := r.without[name], r.within[name]
		differs := in == verdicts.Failed && out != verdicts.Failed || out == verdicts.Pass && in != verdicts.Pass
		if r.judge == attacks {
			differs = in == verdicts.Failed
		}
		if !differs {
			continue
		}
		i := slices.IndexFunc(known, func(row []string) bool {
			matches, err := path.Match(row[1], strings.ReplaceAll(name, "/", ":"))
			return row[0] == r.name && matches && err == nil
		})
		if i >= 0 {
			r.explained[known[i][2]]++
			continue
		}
		if in == "" {
			in = "no result"
		}
		r.new = append(r.new, fmt.Sprintf("%s: %s inside", name, in))
	}
	return nil
}

// lines is what the command prints of it.
func (r *row) lines() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n  passed, failed, skipped: outside %v, inside %v\n", r.name, r.version, r.without, r.within)
	for _, reason := range slices.Sorted(maps.Keys(r.explained)) {
		fmt.Fprintf(&b, "  known: %d: %s\n", r.explained[reason], reason)
	}
	for _, d := range r.new {
		fmt.Fprintf(&b, "  new: %s\n", d)
	}
	return b.String()
}

// markdown is its row in the table of docs/evidence.md.
func (r *row) markdown(all string, flags []string) string {
	var system unix.Utsname
	_ = unix.Uname(&system)
	command, known, without := "make test-others SUITE="+r.name, 0, "–"
	if all != "" {
		command += " ALL='" + all + "'"
	}
	if len(flags) > 0 {
		command += " FLAGS='" + strings.Join(flags, " ") + "'"
	}
	for _, n := range r.explained {
		known += n
	}
	if r.without != nil {
		without = r.without.String()
	}
	return fmt.Sprintf("| %s | %s, Linux %s | `%s` | %s | %v | %d, %d |\n", r.version, r.when.Format(time.DateOnly),
		unix.ByteSliceToString(system.Release[:]), command, without, r.within, known, len(r.new))
}
