package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/profiles"
)

// patience bounds one launch: slow emulated machines take seconds.
const patience = time.Minute

// tries is how often a launch is timed.
const tries = 3

// An examiner launches trials.
type examiner struct {
	launcher string
	environ  []string
	home     string // where that is made
	programs *programs.Finder
	dir      string // what the trials are about is laid out below it
	scene    scene
	socket   net.Listener
	canary   *os.File
	seen     map[string]map[profiles.Layer]string // inside, by the flags that base is
}

// A launch is what came of one.
type launch struct {
	code   int
	out    []byte
	errors string
	took   time.Duration
}

// examineNative tries what this machine can do by itself.
func (x *examiner) examineNative(ctx context.Context) Provider {
	p := Provider{Name: "native"}
	for range tries {
		l := x.launch(ctx, nil, "true")
		p.Refused, p.Hint, p.Runs = refusal(l)
		if !p.Runs {
			break
		}
		if p.Launch == 0 || l.took < p.Launch {
			p.Launch = l.took
		}
	}
	runs := p.Runs
	if runs {
		p.Refused, p.Hint, p.Runs = x.here(ctx)
	}
	p.Guarantees = x.answers(ctx, &p, nil)
	if name, is := missing(p.Refused); is && runs {
		for i := range p.Guarantees {
			if a := &p.Guarantees[i]; string(a.Guarantee) == name {
				*a = profiles.Answer{Guarantee: a.Guarantee, State: profiles.Missing, Cause: p.Refused, Hint: p.Hint}
			}
		}
	}
	for _, a := range x.answers(ctx, &p, fine) {
		switch a.Guarantee {
		case profiles.ResMemory, profiles.ResCPU, profiles.ResPids:
			p.Limits = append(p.Limits, a)
		}
	}
	way := x.launch(ctx, wayOut, "true")
	if runs {
		p.captured(way)
	}
	p.Trials = append(p.Trials, whole("default", x.launch(ctx, nil, "true")), whole("network", way), whole("limits", x.launch(ctx, limits, "true")), whole("strict", x.launch(ctx, []string{"--profile", "strict"}, "true")))
	for _, l := range looks {
		p.Trials = append(p.Trials, x.layer(ctx, l, runs))
	}
	return p
}

// limits are some that a policy could ask for, and that every host has some
// means for; fine has a part of a processor, which takes a control group.
var limits = []string{"--memory", "1g", "--cpus", "1", "--pids", "200"}

var fine = []string{"--memory", "1g", "--cpus", "0.5", "--pids", "200"}

// wayOut makes a launch have a network, in which nothing is reached.
var wayOut = []string{"--local", "9"}

// captured takes from a launch with a network what became of it: a plan cannot
// know.
func (p *Provider) captured(l launch) {
	i := slices.IndexFunc(p.Guarantees, func(a profiles.Answer) bool { return a.Guarantee == profiles.NetTransparent })
	if i < 0 {
		return
	}
	a := &p.Guarantees[i]
	about := "guarantee " + string(a.Guarantee) + ": "
	if text, hint, ok := refusal(l); !ok {
		if cause, is := strings.CutPrefix(text, about+"missing: "); is {
			*a = profiles.Answer{Guarantee: a.Guarantee, State: profiles.Missing, Cause: cause, Hint: hint}
		}
		return
	}
	for line := range strings.Lines(l.errors) {
		if rest, is := strings.CutPrefix(strings.TrimSpace(line), "pccrun: "+about+"weak, by "); is {
			mechanism, cause, _ := strings.Cut(rest, ": ")
			*a = profiles.Answer{Guarantee: a.Guarantee, State: profiles.Weak, Mechanism: mechanism, Cause: cause}
		}
	}
}

// whole judges a launch that is not compared with another.
func whole(name string, l launch) Trial {
	t := Trial{Name: name, Verdict: Runs}
	var ok bool
	if t.Seen, t.Hint, ok = refusal(l); !ok {
		t.Verdict = Refused
	}
	return t
}

// layer compares what the command sees with a layer and without it. Where no
// launch succeeds at all it tells whether one would without the layer.
func (x *examiner) layer(ctx context.Context, l look, runs bool) Trial {
	t := Trial{Name: string(l.layer)}
	var base []string
	for _, b := range l.base {
		base = append(base, "--without", b)
	}
	off := append(slices.Clone(base), "--without", t.Name)
	if !runs {
		t.Verdict = Refused
		if _, _, ok := refusal(x.launch(ctx, off, "true")); ok {
			t.Control = "the test runs without this protection"
		}
		return t
	}
	with, ok := x.seen[strings.Join(base, " ")]
	var err error
	if !ok {
		with, err = x.inside(ctx, base)
	}
	if err == nil {
		x.seen[strings.Join(base, " ")] = with
		t.Seen = with[l.layer]
		var without map[profiles.Layer]string
		without, err = x.inside(ctx, off)
		t.Control = without[l.layer]
	}
	switch {
	case err != nil:
		t.Verdict, t.Seen = Refused, err.Error()
	case l.want == "" && t.Seen == x.scene.Host[l.layer] && slices.Contains(l.gone, t.Seen):
		t.Verdict = Shows
	case l.want != "" && t.Seen != l.want, l.want == "" && t.Seen == x.scene.Host[l.layer]:
		t.Verdict = Open
	case t.Seen == t.Control:
		t.Verdict = Shows
	default:
		t.Verdict = Holds
	}
	return t
}

// inside runs this program under the default profile, and returns what it sees.
func (x *examiner) inside(ctx context.Context, flags []string) (map[profiles.Layer]string, error) {
	text, err := json.Marshal(x.scene)
	if err != nil {
		return nil, err
	}
	l := x.launch(ctx, append([]string{"--read", x.scene.Shown, "--hide", x.scene.Hidden}, flags...), x.launcher, InsideVerb, string(text))
	if text, _, ok := refusal(l); !ok {
		return nil, errors.New(text)
	}
	seen := map[profiles.Layer]string{}
	return seen, json.Unmarshal(l.out, &seen)
}

// launch runs a command under the default profile, or that of flags.
func (x *examiner) launch(ctx context.Context, flags []string, command ...string) launch {
	args := []string{"run", "--workspace", x.scene.Workspace}
	if !slices.Contains(flags, "--profile") {
		args = append(args, "--profile", "default")
	}
	return x.start(ctx, x.scene.Workspace, slices.Concat(args, flags, []string{"--"}, command)...)
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
	cmd := exec.CommandContext(ctx, x.launcher, args...)
	cmd.Env = append(slices.Clone(x.environ), canary+"=1")
	cmd.Dir = dir
	for range canaryFD - 3 {
		cmd.ExtraFiles = append(cmd.ExtraFiles, nil)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, x.canary)
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
		switch advice, is := strings.CutPrefix(line, "hint: "); {
		case is && (hint != "" || further):
		case is:
			hint = advice
		case line != "" && !strings.Contains(line, ": --"): // flags that the trial itself gave
			_, first := missing(text)
			_, again := missing(line)
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
func (x *examiner) answers(ctx context.Context, p *Provider, flags []string) []profiles.Answer {
	leave := slices.Clone(flags)
	for range profiles.Guarantees {
		l := x.launch(ctx, append([]string{"--dry-run", "--json"}, leave...), "true")
		text, _, ok := refusal(l)
		if ok {
			return p.planned(l.out)
		}
		name, is := missing(text)
		if !is || slices.Contains(leave, name) {
			break
		}
		leave = append(leave, "--allow-missing", name)
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
			a = profiles.Answer{Guarantee: entry.Guarantee, State: stateOf(g.State), Mechanism: g.Mechanism, Cause: g.Cause, Hint: g.Hint}
		}
		list = append(list, a)
	}
	return list
}

func stateOf(word string) profiles.State {
	for _, s := range []profiles.State{profiles.Kept, profiles.Weak} {
		if s.String() == word {
			return s
		}
	}
	return profiles.Missing
}

// lay makes what the trials look at. close takes it away.
func (x *examiner) lay() error {
	dir, err := os.MkdirTemp(x.home, ".pccrun-doctor-") // git is executed there, and what all can write is no place for that
	if err != nil {
		return fmt.Errorf("make a place for trials: %w", err)
	}
	x.dir, x.seen = dir, map[string]map[profiles.Layer]string{}
	x.scene = scene{Workspace: dir + "/ws", Shown: dir + "/shown", Hidden: dir + "/hidden"}
	for _, d := range []string{x.scene.Workspace + "/.git/objects", x.scene.Workspace + "/.git/refs", x.scene.Workspace + "/.git/hooks", x.scene.Shown, x.scene.Hidden} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		x.scene.Workspace + "/.git/HEAD":              "ref: refs/heads/main\n",
		x.scene.Workspace + "/.git/config":            "[core]\n\trepositoryformatversion = 0\n",
		x.scene.Workspace + "/.git/hooks/post-commit": "#!/bin/sh\n",
		x.scene.Hidden + "/secret":                    "not to be read\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := unix.Mkfifo(x.scene.Shown+"/fifo", 0o666); err != nil {
		return os.NewSyscallError("mkfifo", err)
	}
	// A FIFO that the identity of a root launcher may write, whatever the umask.
	if err := os.Chmod(x.scene.Shown+"/fifo", 0o666); err != nil {
		return err
	}
	if x.socket, err = net.Listen("unix", x.scene.Shown+"/socket"); err != nil {
		return err
	}
	if err := os.Chmod(x.scene.Shown+"/socket", 0o777); err != nil {
		return err
	}
	if x.canary, err = os.Open(os.DevNull); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // root's identity inside is nobody's here
		return err
	}
	x.scene.Host = x.scene.look()
	return nil
}

func (x *examiner) close() error {
	if x.socket != nil {
		x.socket.Close()
	}
	if x.canary != nil {
		x.canary.Close()
	}
	if x.dir == "" {
		return nil
	}
	return os.RemoveAll(x.dir)
}

// worktree tries what orchestrators do: a linked work tree, and git in it.
func (x *examiner) worktree(ctx context.Context) Fact {
	f := Fact{Name: "git work trees"}
	git, err := x.programs.Find("git", nil)
	if err != nil {
		f.Value, f.Hint = "no git", "install git"
		return f
	}
	repo, tree := filepath.Join(x.dir, "repo"), filepath.Join(x.dir, "tree")
	// Nothing of the user's own configuration, and no hook, has a part in it.
	env := append(slices.Clone(git.Env), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=pccrun", "GIT_AUTHOR_EMAIL=pccrun@localhost",
		"GIT_COMMITTER_NAME=pccrun", "GIT_COMMITTER_EMAIL=pccrun@localhost")
	for _, args := range [][]string{{"init", "-q", repo}, {"-C", repo, "commit", "-q", "--allow-empty", "-m", "first"}, {"-C", repo, "worktree", "add", "-q", tree}} {
		cmd := git.Command(ctx, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			f.Value = fmt.Sprintf("git %s: %v: %s", args[0], err, bytes.TrimSpace(out))
			return f
		}
	}
	cmd := exec.CommandContext(ctx, x.launcher, "run", "-q", "--profile", "default", "--", git.Path, "status", "--short")
	cmd.Env, cmd.Dir = x.environ, tree
	if out, err := cmd.CombinedOutput(); err != nil {
		f.Value = "made; git in one, inside: " + err.Error() + ": " + strconv.Quote(string(bytes.TrimSpace(out)))
		return f
	}
	f.Value = "made, and git works in one inside"
	return f
}
