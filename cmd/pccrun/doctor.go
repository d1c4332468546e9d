//go:build !launcher

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/pccrun/pccrun/internal/programs"
	"github.com/pccrun/pccrun/internal/terminal"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/doctor"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/run"
)

// doctorFlags are what the verb was told.
type doctorFlags struct{ fix, yes, all, json bool }

func doctorVerb(args []string) int {
	var f doctorFlags
	words, err := options(args, flags{"--fix": &f.fix, "--yes": &f.yes, "--all": &f.all, "--json": &f.json, "--sandbox": new(bool)}) // parallel-cc's word: all is of the sandbox
	switch {
	case err == nil && len(words) > 0:
		err = unexpected(words, 0, "see pccrun help doctor")
	case err == nil && f.yes && !f.fix:
		err = misuse("flag --yes: goes with --fix", "")
	case err == nil && f.fix && f.json:
		err = misuse("flag --json: not with --fix", "")
	}
	if err != nil {
		return failSession(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	done := slow("testing which guarantees this machine can keep")
	report, err := examine(ctx)
	done()
	if ctx.Err() != nil { // each trial that was cut short would count as a refusal
		return fail("doctor: interrupted: nothing was found out")
	}
	if err != nil {
		return fail("doctor: " + inWords(err))
	}
	if f.json {
		printJSON(reportJSON(report, others()))
	} else {
		printReport(report, f)
		elsewhere := others()
		printOthers(elsewhere, f)
		if name := recommended(report, elsewhere); name != "" {
			printf("\nrecommended: --provider %s, the first of these that keeps what the default profile requires\n", name)
		}
	}
	if f.fix {
		report = mend(ctx, report, f)
	}
	if !report.OK() {
		return failed
	}
	return 0
}

// hostPrograms finds docker, git and others, which the doctor asks outside of any sandbox, and sudo, with
// which --fix begins. A profile of the workspace that cannot be read is no matter of the doctor's.
func hostPrograms() (finder *programs.Finder, home string, err error) {
	host := profiles.ThisHost()
	workspace, _, _ := profiles.ReadWorkspaceFile(profiles.Request{Host: host})
	dirs, err := run.Dirs()
	if err == nil {
		home, _, err = host.HomeDir()
	}
	writes := (&profiles.Policy{Workspace: workspace}).Changes
	if workspace == "" { // a home, say, in which no run can be
		writes = nil
	}
	return run.Programs(&host, dirs.State).For(writes, say), home, err
}

// examine tries the launcher that the user started: this program may be the
// whole one that it carries.
func examine(ctx context.Context) (*doctor.Report, error) {
	launcher := os.Getenv("PCCRUN_LAUNCHER")
	if launcher == "" {
		var err error
		if launcher, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	var environ []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "PCCRUN_LAUNCHER=") {
			environ = append(environ, e)
		}
	}
	finder, home, err := hostPrograms()
	if err != nil {
		return nil, err
	}
	return doctor.Examine(ctx, doctor.Options{Launcher: launcher, Environ: environ, Home: home, Programs: finder})
}

// mend applies what the user agrees to, and looks again.
func mend(ctx context.Context, r *doctor.Report, f doctorFlags) *doctor.Report {
	if len(r.Fixes) == 0 {
		say("doctor: --fix has nothing to change")
		return r
	}
	interactive := terminal.IsTerminal(0) && terminal.IsTerminal(2)
	if !f.yes && !interactive {
		fail("doctor: nothing was changed: no terminal to ask at", "--fix --yes changes it without asking")
		return r
	}
	finder, _, err := hostPrograms()
	if err != nil {
		fail("doctor: "+inWords(err), "")
		return r
	}
	for i := range r.Fixes {
		fix := &r.Fixes[i]
		if !f.yes && !agreed(fix.Why) {
			continue
		}
		if err := fix.Apply(ctx, finder); err != nil {
			hint := ""
			if errors.Is(err, doctor.ErrNotRoot) {
				hint = "run the commands above as root"
			}
			fail("doctor: "+inWords(err), hint)
			continue
		}
		say("doctor: changed: " + fix.Why)
		if fix.After != "" {
			say("hint: " + fix.After)
		}
	}
	again, err := examine(ctx)
	if err != nil {
		fail("doctor: " + inWords(err))
		return r
	}
	for _, p := range again.Providers {
		printf("\n%s\n", headline(&p))
	}
	return again
}

func agreed(why string) bool {
	fmt.Fprintf(os.Stderr, "pccrun: %s: make the change? [y/N] ", printable(why))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	return strings.EqualFold(strings.TrimSpace(answer), "y")
}

func headline(p *doctor.Provider) string {
	if p.Runs {
		return fmt.Sprintf("%s: the default profile runs (%s for /bin/true)", p.Name, p.Launch.Round(100*time.Microsecond))
	}
	text := p.Name + ": the default profile does not run\n  " + printable(p.Refused)
	if p.Hint != "" {
		text += "\n  hint: " + printable(p.Hint)
	}
	return text
}

// summary says in one line whether agents can run here, and how well they are held.
func summary(r *doctor.Report) string {
	i := slices.IndexFunc(r.Providers, func(p doctor.Provider) bool { return p.Runs })
	if i < 0 {
		return "agents cannot run here: the cause and the fix stand below"
	}
	count := map[profiles.State]int{}
	for _, a := range r.Providers[i].Guarantees {
		count[a.State]++
	}
	return fmt.Sprintf("agents can run here; guarantees: %d kept, %d weak, %d missing", count[profiles.Kept], count[profiles.Weak], count[profiles.Missing])
}

// printReport prints the tables for a reader.
func printReport(r *doctor.Report, f doctorFlags) {
	printf("%s\n\n", summary(r))
	for i := range r.Providers {
		p := &r.Providers[i]
		printf("%s\n", headline(p))
		if p.Runs || f.all {
			printGuarantees(p, r.Fixes, f)
		}
		printTrials(p)
	}
	printf("\nthis machine\n")
	for _, fact := range r.Host {
		printf("  %-19s %s\n", fact.Name, printable(fact.Value))
		if fact.Hint != "" {
			printf("  %-19s hint: %s\n", "", printable(fact.Hint))
		}
	}
	for _, fix := range r.Fixes {
		kind := "to fix it"
		if fix.Optional {
			kind = "to improve it"
		}
		printf("\n%s: %s\nas root, or by pccrun doctor --fix:\n\n", kind, printable(fix.Why))
		for line := range strings.Lines(fix.Script()) {
			printf("    %s\n", printable(strings.TrimSuffix(line, "\n")))
		}
		if fix.After != "" {
			printf("\n  then: %s\n", printable(fix.After))
		}
	}
}

// briefly puts the verb in the place of a command that is printed once below.
func briefly(hint string, fixes []doctor.Fix) string {
	for _, fix := range fixes {
		for _, s := range fix.Steps {
			if n := len(s.Run); n > 0 {
				hint = strings.ReplaceAll(hint, "as root: "+s.Run[n-1], "pccrun doctor --fix")
			}
		}
	}
	return printable(hint)
}

// below prints what belongs to the line above, in its last column, if there is anything to say.
func below(label, text string) {
	if text != "" {
		printf("  %-28s %s%s\n", "", label, text)
	}
}

// printGuarantees prints those with something to say.
func printGuarantees(p *doctor.Provider, fixes []doctor.Fix, f doctorFlags) {
	const byPolicy = ", if a policy sets the limit"
	printf("\n  %-19s %-8s %s\n", "GUARANTEE", "", "BY")
	kept := 0
	limits := slices.Clone(p.Limits)
	for _, a := range p.Guarantees {
		if a.State == profiles.Kept && !f.all {
			kept++
			continue
		}
		printf("  %-19s %-8s %s\n", a.Guarantee, a.State, printable(a.Mechanism))
		below("", printable(a.Cause))
		below("hint: ", briefly(a.Hint, fixes))
		// One that the default profile sets has one entry, with both answers.
		if i := slices.IndexFunc(limits, func(l profiles.Answer) bool { return l.Guarantee == a.Guarantee }); i >= 0 {
			l := limits[i]
			if l.State != a.State || l.Mechanism != a.Mechanism {
				below("", l.State.String()+" by "+printable(l.Mechanism)+byPolicy)
			}
			if l.Hint != a.Hint {
				below("hint: ", briefly(l.Hint, fixes))
			}
			limits = slices.Delete(limits, i, i+1)
		}
	}
	for _, a := range limits {
		printf("  %-19s %-8s %s%s\n", a.Guarantee, a.State, printable(a.Mechanism), byPolicy)
		below("hint: ", briefly(a.Hint, fixes))
	}
	if kept > 0 {
		printf("  %-19s %-8s --all lists them\n", fmt.Sprintf("%d more", kept), profiles.Kept)
	}
}

func printTrials(p *doctor.Provider) {
	printf("\n  TRIAL\n")
	for _, t := range p.Trials {
		printf("%s\n", strings.TrimRight(fmt.Sprintf("  %-19s %-8s %s", t.Name, t.Verdict, printable(t.Seen)), " "))
		below("hint: ", printable(t.Hint))
	}
	printf("  pccrun escape --layers tries each protection alone\n")
}

// others are the providers that are not this machine itself: what each would keep of the
// default policy, or why it cannot be used.
func others() (list []doctor.Provider) {
	for _, k := range providers.Known() {
		if k.Name == providers.Native {
			continue
		}
		p := doctor.Provider{Name: k.Name}
		answers, err := run.Inquire(thisProgram(), k)
		if p.Guarantees, p.Runs = answers, err == nil; err != nil {
			p.Refused, p.Hint = inWords(err), profiles.Hint(err)
		}
		list = append(list, p)
	}
	return list
}

// recommended is the first provider that can run the default profile: this machine, a container, a cloud that is set up; "" for none.
func recommended(r *doctor.Report, others []doctor.Provider) string {
	all := slices.Concat(r.Providers, others)
	if i := slices.IndexFunc(all, func(p doctor.Provider) bool { return p.Runs }); i >= 0 {
		return all[i].Name
	}
	return ""
}

// printOthers prints them: a table of guarantees for each that can be used.
func printOthers(others []doctor.Provider, f doctorFlags) {
	printf("\nother providers\n")
	var missing []string
	for _, p := range others {
		if strings.Contains(p.Refused, providers.NotBuilt) {
			missing = append(missing, p.Name)
			continue
		}
		if len(p.Guarantees) == 0 {
			printf("  %-12s %s\n", p.Name, printable(strings.TrimPrefix(p.Refused, "provider "+p.Name+": ")))
			continue
		}
		what := "would keep what the default profile requires"
		if !p.Runs {
			what = "would not keep what the default profile requires"
		}
		printf("  %-12s %s\n", p.Name, what)
		printGuarantees(&p, nil, f)
	}
	if len(missing) > 0 {
		printf("  %s: %s\n", providers.NotBuilt, strings.Join(missing, ", "))
	}
	printf("\nclouds\n  %-12s %-5s %-50s %-8s %s\n", "PLACE", "KEY", "PRICE", "LONGEST", "AFTERWARDS")
	for _, k := range providers.Known() {
		o := offer(k)
		if o == nil {
			continue
		}
		key, price, longest, after := "set", o.Hourly(o.Size), "no end", "files that cannot be fetched stay in it until its end, at its price"
		if k.MissingKeys(os.Getenv) != "" {
			key = "none"
		}
		if size := o.Size.String(); size != "" {
			price = size + ", " + price
		}
		if o.MaxLife > 0 {
			longest = strings.TrimSuffix(o.MaxLife.String(), "0m0s")
		}
		switch {
		case o.Extends && o.Stops:
			after = "--keep keeps it; files that cannot be fetched stay in it, stopped"
		case o.Stops:
			after = "files that cannot be fetched stay in it, stopped"
		case o.Idle > 0:
			after = "files that cannot be fetched stay in it for " + strings.TrimSuffix(o.Idle.String(), "0s") + " without a call"
		}
		printf("  %-12s %-5s %-50s %-8s %s\n", k.Name, key, price, longest, after)
	}
	for _, lacks := range providers.Lacking() {
		printf("  %-12s %s\n", lacks.Provider, lacks.Cause)
	}
}

// offer is what a cloud has and costs, nil for what is none.
func offer(k providers.Kind) *remote.Offer {
	if !k.Cloud {
		return nil
	}
	p, _ := newProvider(k.Name, &profiles.Request{}, providers.Host{Environ: os.Environ()})
	if r, is := p.(*remote.Provider); is && r != nil {
		o := r.Offer()
		return &o
	}
	return nil
}

// offerJSON is what a cloud has and costs, for --json.
func offerJSON(name string) any {
	k, err := providers.KindOf(name)
	o := offer(k)
	if err != nil || o == nil {
		return nil
	}
	return object{
		{"image", o.Image}, {"size", o.Size.String()}, {"hourly_usd", o.Price(o.Size)}, {"priced", o.Prices.Read}, {"longest_life_s", int64(o.MaxLife.Seconds())},
		{"regions", o.Regions}, {"stops", o.Stops}, {"extends", o.Extends}, {"ports", o.Previews},
	}
}

// reportJSON is `--json`: everything, whatever there is to say.
func reportJSON(r *doctor.Report, others []doctor.Provider) object {
	answers := func(list []profiles.Answer) []object {
		return each(list, func(a profiles.Answer) object {
			return object{{"guarantee", string(a.Guarantee)}, {"state", a.State.String()}, {"mechanism", a.Mechanism}, {"cause", a.Cause}, {"hint", a.Hint}}
		})
	}
	list := each(slices.Concat(r.Providers, others), func(p doctor.Provider) object {
		trials := each(p.Trials, func(t doctor.Trial) object {
			return object{{"name", t.Name}, {"verdict", string(t.Verdict)}, {"seen", t.Seen}, {"hint", t.Hint}}
		})
		return object{
			{"name", p.Name}, {"runs", p.Runs}, {"refused", p.Refused}, {"hint", p.Hint}, {"launch_us", p.Launch.Microseconds()},
			{"guarantees", answers(p.Guarantees)}, {"limits", answers(p.Limits)}, {"trials", trials}, {"offer", offerJSON(p.Name)},
		}
	})
	host := each(r.Host, func(f doctor.Fact) object { return object{{"name", f.Name}, {"value", f.Value}, {"hint", f.Hint}} })
	fixes := each(r.Fixes, func(f doctor.Fix) object {
		return object{{"why", f.Why}, {"optional", f.Optional}, {"script", f.Script()}, {"after", f.After}}
	})
	return object{{"ok", r.OK()}, {"providers", list}, {"host", host}, {"fixes", fixes}, {"recommended", recommended(r, others)}}
}
