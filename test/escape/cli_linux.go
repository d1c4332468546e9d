package escape

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// Usage is the help of the verb.
const Usage = `usage: pccrun escape [FLAGS]
       pccrun escape compare [FLAGS] [LAUNCHER…]
       pccrun escape --list [--json|--markdown] | --explain ID

Tries to break out of a sandbox, and says which promises hold. Each probe runs
twice: as a control, in a cage without protection, where it must succeed, and
inside, where it must fail. It touches only canaries that it made.

What to test:
  --profile NAME|FILE     pccrun with this profile
  --provider NAME         pccrun with this provider, e.g. docker
  --runtime NAME          with this runtime of it, e.g. runsc
  --allow-missing NAME    pccrun though a guarantee is missing or weak (repeats)
  --without LAYER         pccrun with a layer switched off (repeats)
  --wrap 'CMD … --'       any other launcher; {workspace} {home} {canary} {shown}
                          {tmp} {tag} {uid} {gid} are filled in (repeats)
  --wrap-ready NAME       a launcher that the suite knows (repeats):
                          pccrun, unshare, bwrap, firejail, nsjail, runc, docker, srt

Which probes:
  --only AREA|GUARANTEE   e.g. FS,NET or fs.hide (comma-separated, repeats)
  --id ID                 e.g. FS-001 (comma-separated, repeats)
  --severity LEVEL        at least: info, low, medium, high, critical
  --long                  also races that take minutes
  --layers                also test which layer stops each probe alone

Output:
  --json --junit --sarif --tap --markdown
                          on standard output, instead of the table
  --report FILE           also in a file; its ending is the format: .json .xml .sarif
                          .tap .md (repeats)
  --all                   the table with every probe
  --fail-on LEVEL         the lowest severity of an escape that fails (default low)
  --baseline FILE         accepted findings, each with a reason and a last day
  --parallel N            probes at a time (default 2)

Exit status: 0 every claim holds; 1 an escape at or above the threshold; 2 the
suite failed, or left a claim untested; 3 every probe was vacuous or skipped;
129, 130, 143 SIGHUP, SIGINT or SIGTERM ended it: it removes what it made, and
reports what it knows.

example: pccrun escape --only FS,NET --report escape.sarif
         pccrun escape --wrap 'bwrap --ro-bind / / --bind {workspace} {workspace} --'
`

// list is a flag that repeats, with commas.
type list []string

func (l *list) String() string { return "" }

func (l *list) Set(s string) error {
	words := strings.Split(s, ",")
	if slices.Contains(words, "") {
		return errors.New("an empty word")
	}
	*l = append(*l, words...)
	return nil
}

// lines is a flag that repeats, without commas.
type lines []string

func (l *lines) String() string     { return "" }
func (l *lines) Set(s string) error { *l = append(*l, s); return nil }

// named sets a string that must not be empty: a variable of a script that is
// not set must not look like a flag that was not given.
func named(to *string) func(string) error {
	return func(s string) error {
		if *to = s; s == "" {
			return errors.New("it is empty")
		}
		return nil
	}
}

type options struct {
	compare           bool
	profile, provider string
	runtime           string
	without, missing  list
	wrap              lines
	ready, only, ids  list
	severity, failOn  Severity
	long, layers, all bool
	listing           bool
	explain, baseline string
	reports           lines
	formats           [6]bool
	parallel          int
	launchers         []string
}

// Main runs the verb and returns its exit status. Args are those after the verb.
func Main(args []string) int {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(Usage)
		return 0
	case err != nil:
		return complain(err)
	case o.listing && o.formats[formatMarkdown]:
		return printPage(os.Stdout)
	case o.listing:
		return printList(os.Stdout, o.formats[0])
	case o.explain != "":
		return printExplanation(os.Stdout, o.explain)
	}
	code, err := o.run()
	if err != nil {
		return complain(err)
	}
	return code
}

// doubleDashes writes what the package flag says of a flag as pccrun writes it.
func doubleDashes(text string) string {
	for _, r := range [...][2]string{{"flag provided but not defined: -", "unknown flag --"}, {"flag needs an argument: -", "value missing: --"}, {" for flag -", " for --"}, {" for -", " for --"}} {
		if before, after, ok := strings.Cut(text, r[0]); ok {
			return before + r[1] + strings.TrimPrefix(after, "-")
		}
	}
	return text
}

func complain(err error) int {
	fmt.Fprintf(os.Stderr, "pccrun: escape: %v\n", err)
	return 2
}

func parse(args []string) (*options, error) {
	o := &options{failOn: Low}
	if len(args) > 0 && args[0] == "compare" {
		o.compare, args = true, args[1:]
	}
	f := flag.NewFlagSet("escape", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	for name, to := range map[string]*string{"profile": &o.profile, "provider": &o.provider, "runtime": &o.runtime} {
		f.StringVar(to, name, "", "")
	}
	for name, to := range map[string]flag.Value{
		"without": &o.without, "allow-missing": &o.missing, "wrap": &o.wrap, "wrap-ready": &o.ready, "only": &o.only, "id": &o.ids, "report": &o.reports,
	} {
		f.Var(to, name, "")
	}
	for name, to := range map[string]*bool{"long": &o.long, "layers": &o.layers, "all": &o.all, "list": &o.listing} {
		f.BoolVar(to, name, false, "")
	}
	f.TextVar(&o.severity, "severity", Info, "")
	f.TextVar(&o.failOn, "fail-on", Low, "")
	f.Func("explain", "", named(&o.explain))
	f.Func("baseline", "", named(&o.baseline))
	f.IntVar(&o.parallel, "parallel", 0, "")
	for i := range formats {
		f.BoolVar(&o.formats[i], formats[i].flag, false, "")
	}
	if err := f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil, err
	} else if err != nil {
		text := doubleDashes(err.Error())
		if word, unknown := strings.CutPrefix(text, "unknown flag --"); unknown {
			var names []string
			f.VisitAll(func(known *flag.Flag) { names = append(names, known.Name) })
			if near := profiles.Nearest(word, names); near != "" {
				text += ": did you mean --" + near + "?"
			}
		}
		return nil, errors.New(text)
	}
	o.launchers = f.Args()
	switch {
	case len(o.launchers) > 0 && !o.compare:
		return nil, fmt.Errorf("unknown argument %q: launchers are named after compare", o.launchers[0])
	case o.parallel < 0 || o.parallel > 64:
		return nil, fmt.Errorf("--parallel %d: want 1 to 64", o.parallel)
	}
	if first := slices.Index(o.formats[:], true); first >= 0 && slices.Contains(o.formats[first+1:], true) {
		return nil, errors.New("one format on standard output at a time: --report FILE writes others")
	}
	for _, path := range o.reports {
		if formatOf(path) == nil {
			return nil, fmt.Errorf("--report %s: want an ending of .json .xml .sarif .tap .md", path)
		}
	}
	if o.layers && o.provider != "" && o.provider != providers.Native {
		return nil, errors.New("--layers: the layers are those of this machine: leave out --provider")
	}
	for _, l := range o.without {
		if !slices.Contains(Layers, profiles.Layer(l)) {
			return nil, fmt.Errorf("--without %s: no such layer", l)
		}
	}
	for _, g := range o.missing {
		if !slices.Contains(profiles.GuaranteeNames(), g) {
			return nil, fmt.Errorf("--allow-missing %s: no such guarantee", g)
		}
	}
	return o, nil
}

// selected returns the probes that the flags choose; a name that chooses none
// is a mistake.
func (o *options) selected() ([]*Probe, error) {
	used := map[string]bool{}
	var chosen []*Probe
	for _, p := range Probes() {
		matches := len(o.only)+len(o.ids) == 0
		for _, name := range o.only {
			if strings.EqualFold(name, p.Area()) || name == string(p.Guarantee) || strings.HasSuffix(name, ".*") && strings.HasPrefix(string(p.Guarantee), name[:len(name)-1]) {
				used[name], matches = true, true
			}
		}
		for _, id := range o.ids {
			if strings.EqualFold(id, p.ID) {
				used[id], matches = true, true
			}
		}
		if matches && p.Severity >= o.severity {
			chosen = append(chosen, p)
		}
	}
	for _, name := range slices.Concat(o.only, o.ids) {
		if !used[name] {
			return nil, fmt.Errorf("%s: no such probe, area or guarantee: pccrun escape --list names them", name)
		}
	}
	return chosen, nil
}

// targets returns what is to be tested.
func (o *options) targets(self string) ([]*Target, error) {
	profile, shown := "", o.profile
	if o.profile != "" {
		if profile = profileFile(o.profile); profile != "" {
			shown = "{profile}"
		}
	}
	var more []string
	for _, flag := range [][2]string{{"--profile", shown}, {"--provider", o.provider}, {"--runtime", o.runtime}} {
		if flag[1] != "" {
			more = append(more, flag[:]...)
		}
	}
	for _, g := range o.missing {
		more = append(more, "--allow-missing", g)
	}
	var layers []profiles.Layer
	for _, l := range o.without {
		layers = append(layers, profiles.Layer(l))
	}
	t := Native(self, more)
	t.Profile = profile
	if o.provider != "" {
		var err error
		if t, err = t.on(o.provider, o.runtime); err != nil {
			return nil, err
		}
	}
	t = t.without(layers)
	native := func() *Target {
		copied := *t
		return &copied
	}
	var targets []*Target
	for _, line := range o.wrap {
		t, err := Wrap("", line)
		if err != nil {
			return nil, err
		}
		if t.Argv[0], err = exec.LookPath(t.Argv[0]); err != nil {
			return nil, fmt.Errorf("wrap: %w", err)
		}
		targets = append(targets, t)
	}
	names := slices.Concat(o.ready, o.launchers)
	if o.compare && len(names)+len(o.wrap) == 0 {
		for _, name := range ReadyNames() {
			if _, err := Ready(name, self); err == nil {
				names = append(names, name)
			} else {
				fmt.Fprintf(os.Stderr, "pccrun: escape: left out: %v\n", err)
			}
		}
	}
	for _, name := range names {
		if name == "pccrun" {
			targets = append(targets, native())
			continue
		}
		t, err := Ready(name, self)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	if len(targets) == 0 {
		targets = []*Target{native()}
	}
	return targets, nil
}

// profileFile is the file that a profile's name, or path, stands for; "" for
// one that is built in. A world has a home of its own, in which it would not
// be found.
func profileFile(name string) string {
	if strings.ContainsRune(name, '/') {
		path, _ := filepath.Abs(name)
		return path
	}
	config, err := os.UserConfigDir()
	path := filepath.Join(config, "pccrun", "profiles", name+".jsonc")
	if _, statErr := os.Stat(path); err != nil || statErr != nil {
		return ""
	}
	return path
}

func (o *options) run() (int, error) {
	probes, err := o.selected()
	if err != nil {
		return 2, err
	}
	var waivers []waiver
	if o.baseline != "" {
		if waivers, err = readBaseline(o.baseline, time.Now()); err != nil {
			return 2, err
		}
	}
	files, err := o.openReports() // what cannot be written is known before anything runs
	if err != nil {
		return 2, err
	}
	self, err := launcher()
	if err != nil {
		return 2, err
	}
	targets, err := o.targets(self)
	if err != nil {
		return 2, err
	}
	ctx, stop := interruptible()
	defer stop()
	r, err := o.perform(ctx, probes, targets)
	if i, is := interruption(ctx); is && r == nil {
		return i.exit(), nil // there is nothing to tell yet
	} else if err != nil {
		return 2, err
	}
	for _, w := range accept(r.Results, waivers) {
		fmt.Fprintf(os.Stderr, "pccrun: escape: baseline %s: %s is stopped now: accept it no more\n", o.baseline, w.ID)
	}
	code := r.Exit()
	if code == 3 {
		fmt.Fprintf(os.Stderr, "pccrun: escape: %v\n", errNothing)
	}
	return code, o.print(r, files)
}

// perform runs the probes. All that was made for them is gone when it returns:
// before anything is printed, since whoever reads that may go away. Of a run that
// is interrupted the report tells what was known by then.
func (o *options) perform(ctx context.Context, probes []*Probe, targets []*Target) (*Report, error) {
	broken := make(chan os.Signal, 1) // progress that nobody reads must not end the process either
	signal.Notify(broken, unix.SIGPIPE)
	defer signal.Stop(broken)
	site, err := openSite()
	if err != nil {
		return nil, err
	}
	defer site.close()
	r := &Report{Schema: Schema, failOn: o.failOn, Began: time.Now(), Claims: map[string][]Claim{}, Untested: map[string][]profiles.Guarantee{}}
	for _, t := range targets {
		r.targets = append(r.targets, t.Name)
		if t.Native {
			if err := t.ask(ctx, site.dir); err != nil {
				return nil, err
			}
			r.Claims[t.Name] = t.Claims
		}
	}
	r.Environment, r.strict = environmentFacts(targets[0]), targets[0].strict

	s := &Suite{Probes: probes, Targets: targets, Long: o.long, Parallel: o.parallel, Command: "pccrun", site: site}
	draws := isTerminal(os.Stderr)
	s.Progress = func(done, total int) {
		switch {
		case ctx.Err() != nil:
		case draws:
			fmt.Fprintf(os.Stderr, "\r\x1b[K%d of %d", done, total)
		case done%25 == 0:
			fmt.Fprintf(os.Stderr, "pccrun: escape: %d of %d probes\n", done, total)
		}
	}
	if draws {
		defer fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
	if r.Results, err = s.Run(ctx); err == nil && o.layers {
		r.Layers, err = s.layers(ctx, targets[0], r.Results)
	}
	r.Took = time.Since(r.Began)
	if i, is := interruption(ctx); is {
		r.Interrupted = &i
		return r, nil
	}
	if len(o.only)+len(o.ids) == 0 && o.severity == Info {
		for _, t := range targets {
			if list := untested(t, r.Results); len(list) > 0 {
				r.Untested[t.Name] = list
			}
		}
	}
	return r, err
}

// launcher is the program that is tested: the one that the user started.
// PCCRUN_LAUNCHER names it where this code runs from a copy in memory.
func launcher() (string, error) {
	if path := os.Getenv("PCCRUN_LAUNCHER"); path != "" {
		return filepath.Abs(path)
	}
	return os.Executable()
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
