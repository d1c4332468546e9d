// Package verdicts reads what a test binary says of its tests, and which of
// them may skip.
//
// The promise: every test that ended has one verdict, a parent as well as its
// children, and a skip that no list allows can be told from one that a list
// does.
package verdicts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Module is what the paths of all packages of this repository begin with.
const Module = "github.com/pccrun/pccrun/"

// A Verdict is what came of one test.
type Verdict struct {
	Outcome       Outcome
	Package, Test string
	Reason        string // what it gave to t.Skip, for one that skipped
	Output        string // of this test alone
	Took          time.Duration
}

// An Outcome is how a test ended, in the words of `go doc test2json`.
type Outcome string

// The outcomes.
const (
	Pass    Outcome = "pass"
	Skipped Outcome = "skip"
	Failed  Outcome = "fail"
)

// An event is a line of test2json that we use.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // seconds
}

// Read turns the output of the test binary of a package, run with
// -test.v=test2json, into verdicts, by the go command's own parser. rest is
// what was printed outside of any test, and in those that did not end.
func Read(ctx context.Context, pkg string, output io.Reader) (list []Verdict, rest string, err error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", "-p", pkg)
	cmd.Stdin = output
	events, err := cmd.Output()
	if err != nil {
		return nil, "", fmt.Errorf("test2json %s: %w", pkg, err)
	}
	list, rest, err = Events(bytes.NewReader(events))
	if err != nil {
		return nil, "", fmt.Errorf("test2json %s: %w", pkg, err)
	}
	return list, rest, nil
}

// Events turns what `go test -json` prints into verdicts; rest is as [Read] has it.
func Events(events io.Reader) (list []Verdict, rest string, err error) {
	r := reader{lines: map[string][]string{}}
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			return r.list, r.end(), nil
		} else if err != nil {
			return nil, "", err
		}
		r.take(e)
	}
}

// A reader collects verdicts.
type reader struct {
	list  []Verdict
	lines map[string][]string // output by test, of those that have not ended
	order []string            // those tests, as they began to speak
	rest  strings.Builder
}

func (r *reader) take(e event) {
	lines, speaks := r.lines[e.Test]
	switch outcome := Outcome(e.Action); {
	case e.Action == "output" && e.Test == "":
		r.rest.WriteString(e.Output)
	case e.Action == "output":
		if !speaks {
			r.order = append(r.order, e.Test)
		}
		r.lines[e.Test] = append(lines, e.Output)
	case e.Test != "" && (outcome == Pass || outcome == Skipped || outcome == Failed):
		v := Verdict{Outcome: outcome, Package: e.Package, Test: e.Test, Output: strings.Join(lines, ""),
			Took: time.Duration(e.Elapsed * float64(time.Second))}
		if outcome == Skipped {
			v.Reason = reason(lines)
		}
		r.list = append(r.list, v)
		delete(r.lines, e.Test)
	}
}

func (r *reader) end() string {
	for _, test := range r.order {
		r.rest.WriteString(strings.Join(r.lines[test], ""))
	}
	return r.rest.String()
}

// reason is what a test gave to t.Skip: the last line that it logged, or the
// last command of a script.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if m := logged.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		if m := scripted.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}

var (
	logged   = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
	scripted = regexp.MustCompile(`^\s+> (?:\[\S+\] )*skip '(.*)'`)
)

// Skips is a list of the tests that may skip: rows of an identity, package and
// test as a path pattern, and a part of the reason.
type Skips [][]string

// ReadSkips reads a list from a file.
func ReadSkips(name string) (Skips, error) {
	rows, err := Rows(name, 3)
	return rows, err
}

// Allow reports whether the list has a row for a skip. who are the identities
// that the rows may name, other than "any".
func (s Skips) Allow(v Verdict, who ...string) bool {
	short := strings.TrimPrefix(v.Package, Module)
	return slices.ContainsFunc(s, func(row []string) bool {
		named, err := path.Match(row[1], short+"."+strings.ReplaceAll(v.Test, "/", ":"))
		return err == nil && named && (row[0] == "any" || slices.Contains(who, row[0])) && strings.Contains(v.Reason, row[2])
	})
}

// long is the reason of a test that only `make test-long` runs.
const long = "needs make test-long"

// Long returns the tests of a package that the list leaves to `make test-long`,
// as one pattern for -test.run; "" if there are none.
func (s Skips) Long(pkg string) string {
	var tests []string
	for _, row := range s {
		in, test, _ := strings.Cut(path.Base(row[1]), ".")
		in = path.Join(path.Dir(row[1]), in)
		if row[2] == long && in == strings.TrimPrefix(pkg, Module) {
			test, _, _ = strings.Cut(test, ":")
			tests = append(tests, "^"+strings.ReplaceAll(test, "*", ".*")+"$")
		}
	}
	return strings.Join(tests, "|")
}

// SkipUnlessLong skips a test that is slow and rarely breaks: `make test-long`
// runs it, and test/skips.txt has a row for it.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if os.Getenv("PCCRUN_LONG") == "" {
		t.Skip(long)
	}
}

// A PackageRow says how the tests of a package run.
type PackageRow struct {
	Package string
	Took    time.Duration // where they took longest, when the row was written
	Who     Who
}

// Who says as whom the tests of a package run in `make test`; `make test-long` runs all as both.
type Who string

// The words of test/packages.txt.
const (
	Marked Who = "marked" // the user runs all, root the tests with the mark //test:root
	Both   Who = "both"   // root runs all too
	Once   Who = "once"   // who runs them makes no difference: root or the user, who is free
)

// PackageRows are the rows of test/packages.txt.
type PackageRows []PackageRow

// ReadPackages reads them.
func ReadPackages(name string) (list PackageRows, err error) {
	rows, err := Rows(name, 3)
	for _, row := range rows {
		seconds, bad := strconv.Atoi(row[1])
		who := Who(row[2])
		if bad != nil || !slices.Contains([]Who{Marked, Both, Once}, who) {
			return nil, fmt.Errorf("%s: %s: want seconds, and marked, both or once", name, row[0])
		}
		list = append(list, PackageRow{row[0], time.Duration(seconds) * time.Second, who})
	}
	return list, err
}

// Of returns the row of a package; one that has none is marked, and counts as quick.
func (l PackageRows) Of(pkg string) PackageRow {
	pkg = strings.TrimPrefix(pkg, Module)
	if i := slices.IndexFunc(l, func(r PackageRow) bool { return r.Package == pkg }); i >= 0 {
		return l[i]
	}
	return PackageRow{Package: pkg, Who: Marked}
}

// FuzzTargets reads the output of `go test -list ^Fuzz -json`.
func FuzzTargets(events []byte) (targets []Verdict) {
	for d := json.NewDecoder(bytes.NewReader(events)); ; {
		var e event
		if d.Decode(&e) != nil {
			return targets
		}
		if name := strings.TrimSpace(e.Output); e.Action == "output" && strings.HasPrefix(name, "Fuzz") {
			targets = append(targets, Verdict{Package: e.Package, Test: name})
		}
	}
}

// Rows reads a list of rows with n columns that tabs separate; lines that are
// empty or begin with # do not count.
func Rows(name string, n int) ([][]string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		row := tabs.Split(line, -1)
		if len(row) != n {
			return nil, fmt.Errorf("%s:%d: %d columns, want %d", name, number, len(row), n)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

var tabs = regexp.MustCompile(`\t+`)
