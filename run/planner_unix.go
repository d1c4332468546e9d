//go:build unix

package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/internal/sessions"
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// A planner plans a run, anew where what it had found was gone by the time that it was needed.
type planner struct {
	*resolved
	home      *home
	agentDirs madeDirs
	label     string // of what the provider makes
	held      bool   // earlier runs in this workspace may have left what nobody has decided about
	tries     int
}

// planned is a plan that keeps what the policy requires, with what it was made from.
type planned struct {
	onMachine
	plan    providers.Plan
	answers []profiles.Answer
	notes   []string // the plan's warnings
	said    []string // all that the user should hear: of the policy, of the home and of the plan
	writes  []string // what the command may change of this machine's
}

// maxTries bounds how often a launch begins anew because what it had found was
// gone, or another file, by the time that it was needed.
const maxTries = 8

// decide plans the run, after what went wrong before, if anything did. Somebody else works in the same place, a second run
// perhaps, which quarantines things: what was found may be gone the next moment. An error that is not of that kind is
// returned, with what is planned so far.
func (l *planner) decide(before error) (p *planned, err error) {
	p = &planned{}
	for err = before; err == nil || stale(err) && l.tries < maxTries; {
		if err != nil {
			l.tries++
			time.Sleep(time.Duration(l.tries) * time.Millisecond)
		}
		if p, err = l.tryPlan(); err == nil {
			break
		}
	}
	return p, err
}

// tryPlan plans the run once.
func (l *planner) tryPlan() (*planned, error) {
	p := &planned{}
	found, err := l.survey(p)
	if err != nil {
		return p, err
	}
	command := providers.Command{Argv: l.req.Command, Env: l.policy.Environ(l.req.Host.Environ), Dir: l.workDir, Label: l.label, Keep: l.policy.Place.KeepFor(), Ask: l.req.Ask}
	if l.home.conversed != nil {
		command.Conversation = &providers.Conversation{Home: l.home.conversed.Path, Dirs: l.req.Conversation}
	}
	if l.req.Install != "" {
		if err := json.Unmarshal([]byte(l.req.Install), &command.Install); err != nil {
			return p, fmt.Errorf("flag --install: %w", err)
		}
	}
	facts, err := l.examine(found, command)
	if err != nil {
		return p, err
	}
	if p.plan, err = l.place.Plan(l.policy, found, facts, command); err != nil {
		return p, err
	}
	p.answers = p.plan.Answers()
	warnings, err := providers.Check(l.policy, p.answers)
	for _, w := range slices.Concat(p.plan.Warnings(), warnings) {
		if !slices.Contains(p.notes, w) {
			p.notes = append(p.notes, w)
		}
	}
	p.said = slices.Concat(l.policy.Warnings, l.home.notes, p.notes)
	if err != nil {
		return p, err
	}
	if err := l.prepareHere(p); err != nil {
		return p, err
	}
	if needing, is := p.plan.(interface{ HomeNeeds() []homes.Need }); is {
		err = l.home.prepare(needing.HomeNeeds())
	}
	return p, err
}

// stale reports whether an error says that a path is not what it was.
func stale(err error) bool {
	var absent *survey.ErrNotFound
	var exec *providers.ExecError
	if errors.As(err, &absent) || errors.As(err, &exec) {
		return false
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

// survey surveys this machine, and finds the files that the command's name stands for.
func (l *planner) survey(p *planned) (*providers.Survey, error) {
	host := &l.req.Host
	o := survey.Options{
		IndexDir: l.dirs.Cache, Own: l.dirs.State, Home: l.home.mounted(), Earliest: sessions.In(l.dirs.State).Earliest,
		Getenv: host.Getenv, Environ: host.Environ, Network: l.req.Ask || l.req.Learn || l.program.ask != nil, Launch: !l.req.DryRun,
	}
	paths, absent := survey.Programs(l.policy, l.req.Command[0], host.Environ)
	if absent != nil && !l.Cloud && l.policy.Place.Image.Text == "" { // which have programs of their own
		return nil, absent
	}
	o.Command = paths
	found, err := survey.Look(l.policy, o)
	if err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(l.home.seeds)) {
		found.Places = append(found.Places, survey.Place{Path: path, Node: survey.File, Access: profiles.Read, Copied: true, Text: l.home.seeds[path], Why: "what a home begins with"})
	}
	for _, place := range found.Places {
		if place.Kept {
			if err := l.home.kept.GitConfig(place.Text); err != nil {
				return nil, err
			}
		}
	}
	l.found(p, found)
	p.writes = []string{l.policy.Workspace} // and what pccrun keeps of runs
	for _, name := range [...]string{homes.DirName, "sessions", "snapshots"} {
		p.writes = append(p.writes, l.dirs.State+"/"+name)
	}
	for i := range found.Places {
		if place := &found.Places[i]; place.Access >= profiles.Overlay && !place.Scratch && !place.Copied && (place.Node == survey.File || place.Node == survey.Directory) &&
			!slices.ContainsFunc(p.writes, func(tree string) bool { return survey.Below(place.Path, tree) }) {
			p.writes = append(p.writes, place.Path)
		}
	}
	s := &providers.Survey{Places: found.Places, Seeds: l.home.seeds, Command: paths, Notes: found.Notes, Machine: found}
	s.UID, s.GID = who()
	for _, v := range found.Env {
		s.Env = append(s.Env, v.Entry)
	}
	return s, nil
}

// examineWithin bounds how long an engine or a cloud may take to say what it is.
const examineWithin = 30 * time.Second

// ask asks a provider what it is.
func (l *planner) ask() (providers.Facts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), examineWithin)
	defer cancel()
	return l.place.Examine(ctx)
}

// copies reports whether the command works on a copy of the workspace: nothing of this
// machine's changes then while it runs.
func (p *planned) copies() bool {
	return slices.ContainsFunc(p.answers, func(a profiles.Answer) bool { return a.Guarantee == profiles.SyncUp })
}
