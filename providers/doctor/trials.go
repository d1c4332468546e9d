package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// patience bounds one launch: slow emulated machines take seconds.
const patience = time.Minute

// tries is how often a launch is timed.
const tries = 3

// Options say what is examined.
type Options struct {
	Launcher string   // the program that the trials start
	Environ  []string // of the user
	Home     string   // of the user, in which the workspace of the trials is made
	Programs *programs.Finder
}

// An examiner launches trials.
type examiner struct {
	Options
	dir       string // of its own, removed at the end
	workspace string // in it
}

// A launch is what came of one.
type launch struct {
	code   int
	out    []byte
	errors string
	took   time.Duration
}

// prepare makes the workspace of the trials. close removes it.
func (x *examiner) prepare() (err error) {
	if x.dir, err = os.MkdirTemp(x.Home, ".pccrun-doctor-"); err != nil { // git is executed there, and what all can write is no place for that
		return fmt.Errorf("make a workspace for trials: %w", err)
	}
	x.workspace = x.dir + "/ws"
	return errors.Join(os.Mkdir(x.workspace, 0o755), os.Chmod(x.dir, 0o755)) // root's runs have another identity
}

func (x *examiner) close() error {
	if x.dir == "" {
		return nil
	}
	return os.RemoveAll(x.dir)
}

// examineNative tries what this machine can do by itself.
func (x *examiner) examineNative(ctx context.Context) Provider {
	p := Provider{Name: "native"}
	var last launch
	for range tries {
		last = x.launch(ctx)
		p.Refused, p.Hint, p.Runs = refusal(last)
		if !p.Runs {
			break
		}
		if p.Launch == 0 || last.took < p.Launch {
			p.Launch = last.took
		}
	}
	runs := p.Runs
	if runs {
		p.Refused, p.Hint, p.Runs = x.here(ctx)
	}
	p.Guarantees = x.answers(ctx, &p)
	if name, is := missing(p.Refused); is && runs {
		p.answer(profiles.Answer{Guarantee: profiles.Guarantee(name), State: profiles.Missing, Cause: p.Refused, Hint: p.Hint})
	}
	for _, a := range x.answers(ctx, &p, "--memory", "1g", "--cpus", "0.5", "--pids", "200") { // a part of a processor takes a control group
		switch a.Guarantee {
		case profiles.ResMemory, profiles.ResCPU, profiles.ResPids:
			p.Limits = append(p.Limits, a)
		}
	}
	network := x.launch(ctx, "--local", "9") // a network, in which nothing is reached
	if runs {
		p.captured(network)
	}
	p.Trials = []Trial{
		trial("default", last),
		trial("network", network),
		trial("limits", x.launch(ctx, "--memory", "1g", "--cpus", "1", "--pids", "200")),
		trial("strict", x.launch(ctx, "--profile", "strict")),
	}
	return p
}

// answer replaces the answer for a guarantee.
func (p *Provider) answer(a profiles.Answer) {
	if i := slices.IndexFunc(p.Guarantees, func(o profiles.Answer) bool { return o.Guarantee == a.Guarantee }); i >= 0 {
		p.Guarantees[i] = a
	}
}

// captured takes from a launch with a network what became of it: a plan cannot
// know.
func (p *Provider) captured(l launch) {
	about := "guarantee " + string(profiles.NetTransparent) + ": "
	if text, hint, ok := refusal(l); !ok {
		if cause, is := strings.CutPrefix(text, about+"missing: "); is {
			p.answer(profiles.Answer{Guarantee: profiles.NetTransparent, State: profiles.Missing, Cause: cause, Hint: hint})
		}
		return
	}
	for line := range strings.Lines(l.errors) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), "pccrun: "+about+"weak, by "); is {
			mechanism, cause, _ := strings.Cut(rest, ": ")
			p.answer(profiles.Answer{Guarantee: profiles.NetTransparent, State: profiles.Weak, Mechanism: mechanism, Cause: cause})
		}
	}
}

// trial is what came of a launch.
func trial(name string, l launch) Trial {
	t := Trial{Name: name, Verdict: Runs}
	var ok bool
	if t.Seen, t.Hint, ok = refusal(l); !ok {
		t.Verdict = Refused
	}
	return t
}

// launch runs true under the default profile, or that of flags.
func (x *examiner) launch(ctx context.Context, flags ...string) launch {
	args := []string{"run", "--workspace", x.workspace}
	if !slices.Contains(flags, "--profile") {
		args = append(args, "--profile", "default")
	}
	return x.start(ctx, x.workspace, slices.Concat(args, flags, []string{"--", "true"})...)
}

// here plans a launch where the user is, which may lie on a file system unlike
// that of the trials, and returns which guarantee is missing there and what
// helps. That the place is no workspace at all is no matter of the machine's.
func (x *examiner) here(ctx context.Context) (refused, hint string, ok bool) {
	refused, hint, ok = refusal(x.start(ctx, "", "run", "-q", "--profile", "default", "--dry-run", "--", "true"))
	if _, is := missing(refused); !is {
		return "", "", true
	}
	return refused, hint, ok
}

// start runs the launcher in a directory, "" for this process's own.
func (x *examiner) start(ctx context.Context, dir string, args ...string) launch {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, x.Launcher, args...)
	cmd.Env, cmd.Dir = x.Environ, dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	l := launch{out: out.Bytes(), errors: errs.String(), took: time.Since(began)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		l.code, l.errors = 125, fmt.Sprintf("pccrun: the launcher did not end within %s\n", patience)
	case errors.As(err, &exit):
		l.code = exit.ExitCode()
	case err != nil:
		l.code, l.errors = 125, "pccrun: "+err.Error()+"\n"
	}
	return l
}

// refusal returns what a launcher said of a launch that was refused, and ok
// if it was not. Of several guarantees that it names that is the first.
func refusal(l launch) (text, hint string, ok bool) {
	if l.code == 0 {
		return "", "", true
	}
	further := false
	for line := range strings.Lines(l.errors) {
		line = strings.TrimSuffix(strings.TrimPrefix(line, "pccrun: "), "\n")
		_, again := missing(line)
		switch advice, is := strings.CutPrefix(line, "hint: "); {
		case is && (hint != "" || further):
		case is:
			hint = advice
		case line != "" && (again || !strings.Contains(line, ": --")): // flags that the trial itself gave
			_, first := missing(text)
			if further = first && again; !further {
				text = line
			}
		}
	}
	if text == "" {
		text = fmt.Sprintf("exit status %d", l.code)
	}
	return text, hint, false
}

// answers asks for the plan of the default profile. A plan that misses what
// the profile requires is asked for again with the leave to miss it: the
// table is to name all that is missing, not the first. Where a plan is no use,
// because it cannot be carried out, no guarantee is kept.
func (x *examiner) answers(ctx context.Context, p *Provider, flags ...string) []profiles.Answer {
	for range profiles.Guarantees {
		l := x.launch(ctx, append([]string{"--dry-run", "--json"}, flags...)...)
		text, _, ok := refusal(l)
		if ok {
			return p.planned(l.out)
		}
		name, is := missing(text)
		if !is || slices.Contains(flags, name) {
			break
		}
		flags = append(flags, "--allow-missing", name)
	}
	return p.planned(nil)
}

// missing returns the guarantee that a refusal is about.
func missing(text string) (string, bool) {
	rest, ok := strings.CutPrefix(text, "guarantee ")
	name, _, found := strings.Cut(rest, ":")
	return name, ok && found
}

// planned reads the answers of `--dry-run --json`. They count only if the plan
// was seen to run.
func (p *Provider) planned(text []byte) []profiles.Answer {
	var plan struct {
		Guarantees []struct{ Guarantee, State, Mechanism, Cause, Hint string }
	}
	_ = json.Unmarshal(text, &plan) // no answer is the answer then
	_, about := missing(p.Refused)
	var list []profiles.Answer
	for _, entry := range profiles.Guarantees {
		if entry.Guarantee == profiles.SyncUp || entry.Guarantee == profiles.SyncDown {
			continue // of providers that copy files
		}
		a := profiles.Answer{Guarantee: entry.Guarantee, State: profiles.Missing, Cause: p.Refused, Hint: p.Hint}
		for _, g := range plan.Guarantees {
			if g.Guarantee != string(entry.Guarantee) || !p.Runs && !about {
				continue
			}
			a = profiles.Answer{Guarantee: entry.Guarantee, State: profiles.ParseState(g.State), Mechanism: g.Mechanism, Cause: g.Cause, Hint: g.Hint}
		}
		list = append(list, a)
	}
	return list
}
