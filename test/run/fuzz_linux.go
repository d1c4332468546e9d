package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// fuzz runs each fuzz target of the packages, for the time that o says, and prints a table of them. One that fails
// ends none of the others.
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
	table := "| target | executions | new inputs | |\n|---|---|---|---|\n"
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
		executions, inputs := fuzzed(said.String())
		table += fmt.Sprintf("| %s.%s | %s | %s | %s |\n", strings.TrimPrefix(t.Package, verdicts.Module), t.Test, executions, inputs, verdict)
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Printf("\n%s\n%d targets, %s each\n", table, len(targets), each.Round(time.Second))
	return errors.Join(append(failed, ctx.Err())...)
}

// progress is a line of the go command's: what it has tried until then.
var progress = regexp.MustCompile(`fuzz: elapsed: .*, execs: (\d+) .*new interesting: (\d+)`)

// fuzzed returns what the last of them says; a target that failed at once has none.
func fuzzed(said string) (executions, inputs string) {
	all := progress.FindAllStringSubmatch(said, -1)
	if len(all) == 0 {
		return "0", "0"
	}
	return all[len(all)-1][1], all[len(all)-1][2]
}
