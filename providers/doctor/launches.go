package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// Options say what is examined.
type Options struct {
	Launcher string   // the program that the trials start
	Environ  []string // of the user
	Home     string   // of the user, where the trials are made
	Programs *programs.Finder
}

// byLaunches finds out by the launcher alone what this machine keeps: its plan of a command that does
// nothing, and that command's run, once under the default profile and once under strict.
func byLaunches(ctx context.Context, o Options, nothing string) (*Report, error) {
	p := Provider{Name: "native"}
	launch := func(flags ...string) (out, refused, hint string, err error) {
		cmd := exec.CommandContext(ctx, o.Launcher, append(append([]string{"run", "--provider", "native"}, flags...), "--", nothing)...)
		cmd.Env = o.Environ
		var printed, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &printed, &said
		err = cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return "", "", "", fmt.Errorf("start %s: %w", o.Launcher, err)
		}
		for line := range strings.Lines(said.String()) {
			line = strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "pccrun: ")
			if text, ok := strings.CutPrefix(line, "hint: "); ok {
				hint = text
			} else if err != nil {
				refused = line // the last is why
			}
		}
		return printed.String(), refused, hint, nil
	}
	out, refused, hint, err := launch("--dry-run", "--json", "--profile", "default")
	if err != nil {
		return nil, err
	}
	var plan struct {
		Guarantees []struct{ Guarantee, State, Mechanism, Cause, Hint string }
	}
	if refused == "" {
		if err := json.Unmarshal([]byte(out), &plan); err != nil {
			return nil, fmt.Errorf("the plan of a run: %w", err)
		}
	}
	for _, g := range plan.Guarantees {
		a := profiles.Answer{Guarantee: profiles.Guarantee(g.Guarantee), Mechanism: g.Mechanism, Cause: g.Cause, Hint: g.Hint}
		for _, s := range [...]profiles.State{profiles.Weak, profiles.Missing} {
			if g.State == s.String() {
				a.State = s
			}
		}
		p.Guarantees = append(p.Guarantees, a)
	}
	if refused == "" {
		begun := time.Now()
		if _, refused, hint, err = launch("-q", "--profile", "default"); err != nil {
			return nil, err
		}
		p.Launch = time.Since(begun)
	}
	p.Runs, p.Refused, p.Hint = refused == "", refused, hint
	trial := Trial{Name: "strict", Verdict: Runs}
	if _, trial.Seen, trial.Hint, err = launch("-q", "--profile", "strict"); err != nil {
		return nil, err
	}
	if trial.Seen != "" {
		trial.Verdict = Refused
	}
	p.Trials = append(p.Trials, trial)
	return &Report{Providers: []Provider{p}}, nil
}
