package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// threshold is the part of a package's statements that its tests must run.
const threshold = 85.0

// A skip is a test that did not run, and as whom.
type skip struct {
	verdicts.Verdict
	who string
}

// A report is what came of running tests.
type report struct {
	who      string
	took     time.Duration
	passed   int
	skipped  int
	failures []string
	skips    []skip
	tests    []timed
	lanes    []lane

	shown strings.Builder // output of failures
	all   strings.Builder
	rest  string // output outside of any test
}

// A timed is a test and how long it took.
type timed struct {
	name string
	took time.Duration
}

// take counts one verdict. Only tests are counted, not the packages, and a
// parent as well as its children: each is a line that can fail.
func (r *report) take(v verdicts.Verdict) {
	name := fmt.Sprintf("%s %s (%s)", v.Package, v.Test, r.who)
	switch v.Outcome {
	case verdicts.Pass:
		r.passed++
	case verdicts.Skipped:
		r.skipped++
		r.skips = append(r.skips, skip{v, r.who})
	case verdicts.Failed:
		r.fail(name, v.Output)
	}
	if !strings.Contains(v.Test, "/") { // a parent's time holds its children's
		r.tests = append(r.tests, timed{name, v.Took})
	}
	r.all.WriteString(v.Output)
}

func (r *report) fail(name, output string) {
	r.failures = append(r.failures, name)
	r.shown.WriteString(output)
}

// output is what the caller wants to see: all, or what failures said.
func (r *report) output(verbose bool) string {
	if verbose {
		return r.all.String() + r.rest
	}
	return r.shown.String()
}

// print says how the tests of a package ended.
func (r *report) print(who identity, p testPackage, verbose bool) {
	verdict := "ok  "
	if len(r.failures) > 0 {
		verdict = "FAIL"
	}
	fmt.Printf("%s %-4s %-50s %6.1fs  %d passed, %d failed, %d skipped\n", verdict, who.name, p.path,
		r.took.Seconds(), r.passed, len(r.failures), r.skipped)
	fmt.Print(r.output(verbose))
}

func (r *report) add(more *report) {
	r.passed += more.passed
	r.skipped += more.skipped
	r.failures = append(r.failures, more.failures...)
	r.skips = append(r.skips, more.skips...)
	r.tests = append(r.tests, more.tests...)
	r.shown.WriteString(more.shown.String())
}

// printFailures prints again the last lines of what failures said, which stand far above, and names them.
func (r *report) printFailures() {
	const most = 60
	if lines := strings.SplitAfter(r.shown.String(), "\n"); len(r.failures) > 0 {
		fmt.Println("\nthe last of what failed")
		fmt.Print(strings.Join(lines[max(0, len(lines)-most):], ""))
	}
	for _, name := range r.failures {
		fmt.Println("failed:", name)
	}
}

// printSlowest prints the n tests that took longest.
func (r *report) printSlowest(n int) {
	slices.SortFunc(r.tests, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
	fmt.Println("\nslowest tests")
	for _, t := range r.tests[:min(n, len(r.tests))] {
		fmt.Printf("  %6.1f s  %s\n", t.took.Seconds(), t.name)
	}
}

// judgeSkips turns skips that nobody allowed into failures.
func (s *stage) judgeSkips(r *report) {
	for _, k := range r.skips {
		if !s.skips.Allow(k.Verdict, k.who) {
			r.failures = append(r.failures, fmt.Sprintf("%s %s (%s): a skip that test/skips.txt does not allow: %s", k.Package, k.Test, k.who, k.Reason))
		}
	}
}

// A lane is a package's tests as one identity.
type lane struct {
	who  string
	row  verdicts.PackageRow
	took time.Duration
}

// printLanes prints how long the tests took in sum, as each identity: what a change of the tests costs.
func (r *report) printLanes(identities []identity) {
	sums := map[string]time.Duration{}
	var sum time.Duration
	for _, l := range r.lanes {
		sums[l.who] += l.took
		sum += l.took
	}
	fmt.Print("\nlane seconds:")
	for _, who := range identities {
		fmt.Printf(" %s %.0f,", who.name, sums[who.name].Seconds())
	}
	fmt.Printf(" in sum %.0f\n", sum.Seconds())
}

// judgeTimes says which packages took three times what test/packages.txt says, and with -long
// fails them, so that whoever makes a test slow learns of it. What takes less than
// half a minute is left alone. On a slow machine most packages take longer than their rows
// say: by how much, the others may as well.
func (r *report) judgeTimes(o options) {
	if o.pass != usual && o.pass != everything {
		return
	}
	for _, l := range slow(r.lanes) {
		warning := fmt.Sprintf("%s (%s): took %.0f s, more than three times what test/packages.txt says", l.row.Package, l.who, l.took.Seconds())
		if o.long {
			r.failures = append(r.failures, warning)
		} else {
			fmt.Println("warning:", warning)
		}
	}
}

func slow(lanes []lane) (list []lane) {
	const floor = 10 * time.Second // what is shorter says little of the machine
	ratio := func(l lane) float64 { return l.took.Seconds() / max(l.row.Took, floor).Seconds() }
	var long []float64
	for _, l := range lanes {
		if l.row.Took > floor {
			long = append(long, ratio(l))
		}
	}
	slices.Sort(long)
	machine := 1.0
	if len(long) > 0 {
		machine = max(machine, long[len(long)/2])
	}
	for _, l := range lanes {
		if ratio(l) > 3*machine {
			list = append(list, l)
		}
	}
	return list
}

// judgeCoverage turns packages that are covered too little into failures.
func (s *stage) judgeCoverage(r *report, identities []identity) error {
	excluded, err := verdicts.Rows(filepath.Join(s.source(), "test", "uncovered.txt"), 2)
	if err != nil {
		return err
	}
	var dirs []string
	for _, who := range identities {
		dirs = append(dirs, s.counters(who.name))
	}
	profile := filepath.Join(s.dir, "coverage.txt")
	if _, err := output(context.Background(), s.source(), "go", "tool", "covdata", "textfmt", "-i="+strings.Join(dirs, ","), "-o="+profile); err != nil {
		return err
	}
	data, err := os.ReadFile(profile)
	if err != nil {
		return err
	}
	covered, err := coverage(bytes.NewReader(data), func(file string) bool {
		return slices.ContainsFunc(excluded, func(row []string) bool {
			is, err := path.Match(row[0], strings.TrimPrefix(file, "github.com/pccrun/pccrun/"))
			return is && err == nil // test/rules holds the patterns to be ones
		})
	})
	if err != nil {
		return err
	}
	fmt.Println("\ncoverage")
	for _, c := range covered {
		// The scaffolding of the tests is not what is tested.
		if strings.Contains(c.pkg, "/test/") && !strings.HasSuffix(c.pkg, "/test/escape") {
			continue
		}
		fmt.Printf("  %5.1f %%  %s\n", c.percent(), c.pkg)
		if c.percent() <= threshold {
			r.failures = append(r.failures, fmt.Sprintf("%s: coverage %.1f %%, want more than %.0f %%; statements that were not run: %s",
				c.pkg, c.percent(), threshold, c.worst(5)))
		}
	}
	return nil
}

// A packageCoverage counts the statements of a package.
type packageCoverage struct {
	pkg        string
	run, total int
	missed     map[string]int // statements that were not run, by file
}

func (c packageCoverage) percent() float64 {
	if c.total == 0 {
		return 100
	}
	return 100 * float64(c.run) / float64(c.total)
}

// worst names the n files in which most was not run.
func (c packageCoverage) worst(n int) string {
	files := slices.SortedFunc(maps.Keys(c.missed), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.missed[b], c.missed[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, file := range files[:min(n, len(files))] {
		list = append(list, fmt.Sprintf("%d in %s", c.missed[file], file))
	}
	return strings.Join(list, ", ")
}

// coverage sums a profile of `go tool covdata textfmt` by package. A block
// that stands there more than once was run if any of its lines says so.
func coverage(profile io.Reader, excluded func(file string) bool) ([]packageCoverage, error) {
	type block struct {
		statements int
		run        bool
	}
	blocks := map[string]block{}
	for scan := bufio.NewScanner(profile); scan.Scan(); {
		line := scan.Text()
		if strings.HasPrefix(line, "mode:") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("coverage line %q: want 3 fields", line)
		}
		n, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, fmt.Errorf("coverage line %q: %w", line, err)
		}
		blocks[f[0]] = block{n, blocks[f[0]].run || f[2] != "0"}
	}
	sums := map[string]*packageCoverage{}
	for where, b := range blocks {
		file, _, _ := strings.Cut(where, ":")
		if excluded(file) {
			continue
		}
		pkg := path.Dir(file)
		if sums[pkg] == nil {
			sums[pkg] = &packageCoverage{pkg: pkg, missed: map[string]int{}}
		}
		sums[pkg].total += b.statements
		if b.run {
			sums[pkg].run += b.statements
		} else {
			sums[pkg].missed[path.Base(file)] += b.statements
		}
	}
	var list []packageCoverage
	for _, c := range sums {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b packageCoverage) int { return strings.Compare(a.pkg, b.pkg) })
	return list, nil
}
