//go:build unix

package macos

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/seatbelt"
)

// Names in the directory of a run.
const (
	homeName    = "home"
	tempName    = "tmp"
	trialName   = "trial"
	denialsName = "denials.jsonl"
)

// RunVariable marks each process of a run, so that it is found when its parents are gone.
const RunVariable = "PCCRUN_RUN"

// plan is a run that is decided.
type plan struct {
	provider *Provider
	policy   *profiles.Policy
	facts    *Facts
	command  providers.Command
	paths    []string // files of the command's name
	profile  seatbelt.Survey
	document seatbelt.Document
	dir      string // of the run
	environ  []string
	home     []entry // what stands in the home of the run's own
	crowded  bool
	warnings []string
}

// entry is something in the home: a link to what is shown, or a file with a text.
type entry struct {
	Name string `json:"name"`
	Link string `json:"link,omitempty"`
	Text string `json:"-"` // which may be a secret
}

// Plan decides a run.
func (p *Provider) Plan(
	policy *profiles.Policy, found *providers.Survey, facts providers.Facts, command providers.Command,
) (providers.Plan, error) {
	f, ok := facts.(*Facts)
	machine, is := found.Machine.(*survey.Survey)
	if !ok || !is || machine.Layout == nil {
		return nil, fmt.Errorf("BUG: macos: facts of another provider: %T, %T", facts, found.Machine)
	}
	r := &plan{
		provider: p, policy: policy, facts: f, command: command, paths: found.Command,
		crowded: machine.Layout.Crowded, warnings: slices.Clone(found.Notes),
	}
	if err := r.refuse(); err != nil {
		return nil, err
	}
	label := command.Label
	if label == "" {
		label = "look"
	}
	r.dir = p.dir(label)
	r.survey(found, machine.Layout)
	r.environ = r.environment(found)
	var err error
	if r.document, err = seatbelt.Profile(policy, r.profile); err != nil {
		return nil, err
	}
	return r, nil
}

// refuse names what a policy asks for that macOS has nothing for, and that no guarantee stands for.
func (r *plan) refuse() error {
	p := r.policy
	if p.Syscalls != "default" {
		return unsupported(p.SyscallsAt, "syscalls: macOS has no filter of system calls that takes a profile", "leave it out on this machine")
	}
	for _, port := range p.Network.Publish {
		if at, inside, err := profiles.PublishedPorts(port.Text); err == nil && at != inside {
			return unsupported(port.Origin, "publish "+port.Text+": the command listens at this machine's own ports", fmt.Sprintf("--publish %d", inside))
		}
	}
	for _, sock := range p.Network.Sockets {
		if sock.At != "" && sock.At != sock.Path {
			return unsupported(sock.Origin, "socket "+sock.Path+": macOS shows nothing at another path than its own", "name its own path")
		}
	}
	return nil
}

// survey turns what is known of the machine into what the profile goes by.
func (r *plan) survey(found *providers.Survey, at *survey.Layout) {
	s := &r.profile
	s.Home, s.Temp = filepath.Join(r.dir, homeName), filepath.Join(r.dir, tempName)
	s.Asks = r.command.Ask
	if r.network() {
		s.Proxy = seatbelt.ExamplePort
	}
	for _, l := range at.Links {
		s.Links = append(s.Links, seatbelt.Link{From: l.From, To: l.To})
	}
	s.Protect, s.Standing = at.Protect, at.Standing
	if keep := r.policy.Decide(r.policy.Home).Access; keep >= profiles.Read {
		s.Home = "" // it is the user's own
	}
	for _, place := range found.Places {
		if place.Path == r.policy.Home && place.Source != "" {
			s.Home = place.Source
			continue
		}
		if place.Copied {
			r.enter(entry{Name: place.Path, Text: place.Text})
			continue
		}
		if r.policy.Decide(place.Path).Access != place.Access {
			s.Places = append(s.Places, seatbelt.Place{Path: place.Path, Access: place.Access, Why: place.Why})
		}
		if place.Access >= profiles.Read && place.Node != survey.Absent {
			r.enter(entry{Name: place.Path, Link: place.Path})
		}
	}
	s.Places = append(s.Places, seatbelt.Place{Path: filepath.Join(r.dir, denialsName), Access: profiles.Read, Why: "denials, for the command to read"})
	if stage := r.provider.system.stage[0]; r.policy.Decide(stage).Access < profiles.Read {
		s.Places = append(s.Places, seatbelt.Place{Path: stage, Access: profiles.Read, Why: "pccrun, which starts the command"})
	}
}

// enter gives a path of the user's home a name in the home of the run's own: none that lies in
// another.
func (r *plan) enter(e entry) {
	name, in := strings.CutPrefix(e.Name, r.policy.Home+"/")
	if !in || r.profile.Home == "" || survey.Below(r.policy.Workspace, e.Name) {
		return
	}
	e.Name = name
	if !slices.ContainsFunc(r.home, func(o entry) bool { return survey.Below(name, o.Name) }) {
		r.home = append(r.home, e)
	}
}

// network reports whether anything can be reached by name.
func (r *plan) network() bool {
	return r.command.Ask || len(r.policy.Network.Allow)+len(r.policy.Network.Local) > 0
}

// environment is the command's, before it is told of the way out.
func (r *plan) environment(found *providers.Survey) []string {
	env := slices.Concat(found.Env, r.command.Env)
	if r.profile.Home != "" {
		env = setenv(env, "HOME", r.profile.Home)
		env = setenv(env, "CFFIXED_USER_HOME", r.profile.Home)
	}
	env = setenv(env, "TMPDIR", r.profile.Temp+"/")
	env = setenv(env, "PCCRUN_DENIALS", filepath.Join(r.dir, denialsName))
	return setenv(env, RunVariable, r.command.Label)
}

// Warnings are what the user should hear before the command starts.
func (r *plan) Warnings() []string {
	list := slices.Clone(r.warnings)
	list = append(list, "native on macOS was not tested on a Mac: pccrun escape tests it on yours")
	if r.policy.Attempts {
		list = append(list, "names that do not exist are not reported: the system's log has only denials")
	}
	return list
}

// Describe returns all of the plan, but for the values of variables.
func (r *plan) Describe() any {
	names := make([]string, len(r.environ))
	for i, e := range r.environ {
		names[i], _, _ = strings.Cut(e, "=")
	}
	slices.Sort(names)
	return struct {
		Argv        []string         `json:"argv"`
		Dir         string           `json:"dir"`
		Home        string           `json:"home"`
		Temp        string           `json:"temp"`
		Environment []string         `json:"environment"`
		Shown       []entry          `json:"shown,omitempty"`
		Limits      limits           `json:"limits"`
		Parameters  []seatbelt.Param `json:"parameters"`
		Profile     string           `json:"profile"`
	}{
		r.command.Argv, r.command.Dir, r.profile.Home, r.profile.Temp, names, r.home, r.limits(), r.document.Params, r.document.Text,
	}
}

// limits are those that each process has.
type limits struct {
	Files    uint64 `json:"files,omitempty"`
	FileSize uint64 `json:"file_size,omitempty"`
}

func (r *plan) limits() limits {
	l := limits{Files: uint64(max(r.policy.Resources.Files.Value, 0)), FileSize: uint64(max(r.policy.Resources.FileSize.Value, 0))}
	if r.facts.Nofile > 0 {
		l.Files = min(l.Files, r.facts.Nofile)
	}
	return l
}
