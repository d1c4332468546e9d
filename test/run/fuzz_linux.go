package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// fuzz runs each fuzz target of the packages, for the time that o says, and prints a table of them. One that fails
// ends none of the others. With -write it adds to the table in that file, and keeps the inputs that cover more.
func fuzz(ctx context.Context, o options) error {
	out, err := output(ctx, "", "go", append([]string{"test", "-list", "^Fuzz", "-json"}, o.packages...)...)
	if err != nil {
		return err
	}
	targets := verdicts.FuzzTargets(out)
	each := o.fuzz
	if o.fuzzAll > 0 {
		each = o.fuzzAll / time.Duration(max(len(targets), 1))
	}
	table := fuzzTable{}
	if o.write != "" {
		if err := table.read(o.write); err != nil {
			return err
		}
	}
	var failed []error
	for _, t := range targets {
		fmt.Printf("%s %s for %s\n", t.Package, t.Test, each.Round(time.Second))
		var said bytes.Buffer
		// An input that is only new would be made smaller for a minute, in which nothing is tried.
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.Test+"$",
			"-fuzztime", each.String(), "-fuzzminimizetime", "2s", t.Package)
		cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &said), os.Stderr
		verdict := "passed"
		if err := cmd.Run(); err != nil {
			verdict = "**failed**"
			failed = append(failed, fmt.Errorf("fuzz %s %s: %w", t.Package, t.Test, err))
		}
		if ctx.Err() != nil {
			break
		}
		executions, inputs := fuzzed(said.String())
		table.add(strings.TrimPrefix(t.Package, verdicts.Module)+"."+t.Test, fuzzRow{each, executions, inputs, time.Now().UTC().Format(time.DateOnly), verdict})
		if o.write == "" {
			continue
		}
		if err := keepInputs(ctx, t); err != nil {
			failed = append(failed, fmt.Errorf("keep inputs of %s %s: %w", t.Package, t.Test, err))
		}
		if err := os.WriteFile(o.write, []byte(fuzzPage+table.String()), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s\n%d targets, %s each\n", table, len(targets), each.Round(time.Second))
	return errors.Join(append(failed, ctx.Err())...)
}

// progress is a line of the go command's: what it has tried until then.
var progress = regexp.MustCompile(`fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)

// fuzzed returns what the last of them says; a target that failed at once has none.
func fuzzed(said string) (executions, inputs int) {
	all := progress.FindAllStringSubmatch(said, -1)
	if len(all) == 0 {
		return 0, 0
	}
	executions, _ = strconv.Atoi(all[len(all)-1][1])
	inputs, _ = strconv.Atoi(all[len(all)-1][2])
	return executions, inputs
}

// fuzzPage is what stands above a table that is kept.
const fuzzPage = `# What fuzzing has tried

` + "`make fuzz-long HOURS=8`" + ` adds to this table, and keeps inputs that cover more in ` + "`testdata/fuzz`" + ` of each package.

`

// A fuzzRow is what one target has tried since its row was written first.
type fuzzRow struct {
	took               time.Duration
	executions, inputs int
	last, verdict      string // the day, and how it ended then
}

// A fuzzTable has the row of each target.
type fuzzTable map[string]fuzzRow

func (t fuzzTable) add(target string, r fuzzRow) {
	r.took += t[target].took
	r.executions += t[target].executions
	r.inputs += t[target].inputs
	t[target] = r
}

const fuzzHead = "| target | time | executions | new inputs | last | |\n|---|---|---|---|---|---|\n"

func (t fuzzTable) String() string {
	text := fuzzHead
	for _, target := range slices.Sorted(maps.Keys(t)) {
		r := t[target]
		text += fmt.Sprintf("| %s | %s | %d | %d | %s | %s |\n", target, r.took.Round(time.Second), r.executions, r.inputs, r.last, r.verdict)
	}
	return text
}

// read reads what String and a page's head have been written to; a file that is not there is an empty table.
func (t fuzzTable) read(name string) error {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	_, rows, _ := strings.Cut(string(text), fuzzHead)
	for line := range strings.Lines(rows) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 6 {
			return fmt.Errorf("%s: %q is no row", name, line)
		}
		r := fuzzRow{last: cells[4], verdict: cells[5]}
		var bad [3]error
		r.took, bad[0] = time.ParseDuration(cells[1])
		r.executions, bad[1] = strconv.Atoi(cells[2])
		r.inputs, bad[2] = strconv.Atoi(cells[3])
		if err := errors.Join(bad[:]...); err != nil {
			return fmt.Errorf("%s: %q: %w", name, line, err)
		}
		t[cells[0]] = r
	}
	return nil
}

// What the inputs of one target may take that are kept. All of them together are in every clone.
const (
	keptBytes = 2500
	keptFiles = 8
)

// keepInputs copies from Go's cache the inputs of a target that cover a part of its package that the inputs do not cover
// which the target has already: the smallest first, until they take what they may.
func keepInputs(ctx context.Context, t verdicts.Verdict) error {
	found, err := output(ctx, "", "go", "list", "-f", "{{.Dir}}", t.Package)
	if err != nil {
		return err
	}
	cache, err := output(ctx, "", "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	dir := strings.TrimSpace(string(found))
	from := filepath.Join(strings.TrimSpace(string(cache)), "fuzz", filepath.FromSlash(t.Package), t.Test)
	to := filepath.Join(dir, "testdata", "fuzz", t.Test)
	work, err := os.MkdirTemp("", "pccrun-fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	program, profile := filepath.Join(work, "test"), filepath.Join(work, "profile")
	if _, err := output(ctx, "", "go", "test", "-c", "-cover", "-o", program, t.Package); err != nil {
		return err
	}
	covered := func(pattern string) (blocks []string, err error) {
		if _, err := output(ctx, dir, program, "-test.run", pattern, "-test.coverprofile", profile); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(profile)
		for line := range strings.Lines(string(text)) {
			if block, count, is := strings.Cut(strings.TrimSpace(line), " "); is && !strings.HasSuffix(count, " 0") {
				blocks = append(blocks, block)
			}
		}
		return blocks, err
	}
	known := map[string]bool{}
	blocks, err := covered("^" + t.Test + "$")
	if err != nil {
		return err
	}
	size, files := 0, 0
	for _, name := range bySize(to) {
		size, files = size+name.size, files+1
	}
	for _, name := range bySize(from) {
		for _, b := range blocks {
			known[b] = true
		}
		kept := filepath.Join(to, name.name)
		if blocks = nil; files >= keptFiles || size+name.size > keptBytes {
			break
		} else if _, err := os.Lstat(kept); err == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, name.name))
		if err == nil {
			err = errors.Join(os.MkdirAll(to, 0o755), os.WriteFile(kept, text, 0o644))
		}
		if err == nil {
			blocks, err = covered("^" + t.Test + "$/^" + name.name + "$")
		}
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(blocks, func(b string) bool { return !known[b] }) {
			if err := os.Remove(kept); err != nil {
				return err
			}
			continue
		}
		size, files = size+name.size, files+1
	}
	_ = os.Remove(to) // goes if it is empty
	return nil
}

// A sized is a file of a directory.
type sized struct {
	name string
	size int
}

// bySize lists a directory, the smallest file first.
func bySize(dir string) (list []sized) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			list = append(list, sized{e.Name(), int(info.Size())})
		}
	}
	slices.SortStableFunc(list, func(a, b sized) int { return cmp.Compare(a.size, b.size) })
	return list
}
