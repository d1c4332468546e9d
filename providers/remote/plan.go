package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/filesync"
)

// plan is a run that is decided.
type plan struct {
	provider *Provider
	policy   *profiles.Policy
	command  providers.Command
	request  Request

	name     string            // of the workspace's copy, in the home there
	dir      string            // where the command starts, relative to the copy
	env      []string          // of the command
	seeds    map[string]string // what its home begins with, by path here
	answers  []profiles.Answer
	warnings []string
}

// Exec starts another command: pccrun in the sandbox does, by its own exec.
func (p *plan) Exec(ctx context.Context, argv, _ []string, stdio providers.Stdio) (providers.Result, error) {
	result, failed, err := p.provider.goesOn.Load().others.Exec(ctx, argv, nil, stdio)
	if failed != nil {
		err = fmt.Errorf("%s: %s: %s", p.provider.Name(), failed.Step, events.Clean(failed.Text))
	}
	return result, err
}

// Usage asks pccrun in the sandbox what that uses, with all that runs there.
func (p *plan) Usage(ctx context.Context) (result providers.Result, err error) {
	l := p.provider.goesOn.Load().place
	ctx, cancel := context.WithTimeout(ctx, p.provider.patient.script)
	defer cancel()
	if err = l.word(ctx, usageWord, input{}, &result, l.Copy); err != nil {
		err = fmt.Errorf("%s: stats: %w", p.provider.Name(), err)
	}
	return result, err
}

// Answers says of each guarantee how far the run keeps it.
func (p *plan) Answers() []profiles.Answer { return slices.Clone(p.answers) }

// Warnings are what the user should hear before the command starts.
func (p *plan) Warnings() []string { return slices.Clone(p.warnings) }

// Description is what a plan prints.
type Description struct {
	Provider  string            `json:"provider"`
	Create    any               `json:"create"`
	Labels    map[string]string `json:"labels"`
	Workspace string            `json:"workspace"` // on this machine
	Copy      string            `json:"copy"`      // there
	Dir       string            `json:"dir"`
	Command   []string          `json:"command"`
	Env       []string          `json:"environment"` // names
	Upload    Upload            `json:"upload"`
	Answers   []profiles.Answer `json:"guarantees"`
}

// Upload is what goes up, what does not and why.
type Upload struct {
	Files      []string        `json:"files"`
	Home       []string        `json:"home"` // files that the home there begins with
	Bytes      int64           `json:"bytes"`
	Compressed int64           `json:"compressed"`
	Left       []filesync.Left `json:"left"`
	Secrets    []string        `json:"secrets"` // files that stay for them, with line and rule

	Error string `json:"error,omitempty"`
}

// weigh packs the workspace for nobody.
func (p *plan) weigh() (u Upload) {
	packed := &shown{to: io.Discard}
	tree, err := p.open(context.Background(), nil)
	if err != nil {
		return Upload{Error: err.Error()}
	}
	defer tree.Close()
	sent, err := write(context.Background(), tree, packed)
	if err != nil {
		return Upload{Error: err.Error()}
	}
	u = Upload{Files: []string{}, Bytes: sent.Bytes, Compressed: packed.done, Left: append([]filesync.Left{}, sent.Left()...), Secrets: []string{}}
	for _, item := range sent.Manifest.Items[1:] {
		u.Files = append(u.Files, item.Path)
	}
	for _, f := range sent.Findings {
		u.Secrets = append(u.Secrets, f.String())
	}
	return u
}

// Describe returns all of the plan, without a value of the environment.
func (p *plan) Describe() any {
	d := &Description{
		Provider: p.provider.Name(), Create: p.provider.service.Describe(&p.request), Labels: p.request.Labels, Workspace: p.policy.Workspace,
		Copy: "~/" + p.name, Dir: path.Join("~", p.name, p.dir), Command: p.command.Argv,
		Upload:  p.weigh(),
		Answers: p.answers,
	}
	d.Upload.Home = append([]string{}, slices.Sorted(maps.Keys(p.seeds))...)
	for _, v := range p.env {
		name, _, _ := strings.Cut(v, "=")
		d.Env = append(d.Env, name)
	}
	return d
}

// refuse names what a copy elsewhere cannot have.
func (p *plan) refuse() error {
	o, n := p.policy, p.provider.Name()
	refused := func(origin profiles.Origin, what string) error {
		return &profiles.Error{Origin: origin, Cause: n + ": " + what, Hint: "--provider native has it"}
	}
	switch {
	case len(o.Without) > 0:
		return &providers.UnusableError{Provider: n, Cause: "--without: layers can be switched off with --provider native only"}
	case len(o.Network.Local) > 0:
		return refused(o.Network.Local[0].Origin, "local: ports of this machine cannot be reached from the sandbox")
	case len(o.Network.Sockets) > 0:
		return refused(o.Network.Sockets[0].Origin, "socket: sockets of this machine cannot be reached from the sandbox")
	}
	if err := errors.Join(p.choose(), publish(p)); err != nil {
		return err
	}
	if err := p.provider.CannotKeep(); err != nil && p.command.Keep > 0 {
		return err
	}
	if most := p.provider.facts.MaxLife; most > 0 && o.Resources.Deadline() > most {
		return refused(o.Resources.Timeout.Origin, fmt.Sprintf("timeout: a sandbox lives for %s at most", most))
	}
	for _, rule := range o.Files {
		if rule.Origin.Source == "flag" && (rule.Access == profiles.Write || rule.Access == profiles.Overlay) && !p.within(rule.Path) {
			return refused(rule.Origin, fmt.Sprintf("%s: only the workspace is copied", rule.Path))
		}
	}
	return nil
}

// within reports whether a path of this machine is copied.
func (p *plan) within(name string) bool {
	return name == p.policy.Workspace || strings.HasPrefix(name, p.policy.Workspace+"/")
}

// ofPlace are variables that speak of this machine: the sandbox has its own, unless the
// user gives one a value.
var ofPlace = []string{"HOME", "PATH", "SHELL", "USER", "LOGNAME", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "HOSTNAME", "MAIL", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}

// place decides where all is there.
func (p *plan) place() {
	p.name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, filepath.Base(p.policy.Workspace))
	if strings.Trim(p.name, "._-") == "" || strings.HasPrefix(p.name, ".") || strings.HasPrefix(p.name, "-") {
		p.name = "workspace"
	}
	if rel, err := filepath.Rel(p.policy.Workspace, p.command.Dir); err == nil && p.within(p.command.Dir) {
		p.dir = filepath.ToSlash(rel)
	} else {
		p.dir = "."
	}
	for _, v := range p.command.Env {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.HasPrefix(name, "PCCRUN_") {
			continue
		}
		set, given := p.policy.Environment.Set[name]
		if slices.Contains(ofPlace, name) && (!given || strings.HasPrefix(set.Origin.Source, "built-in ")) {
			continue
		}
		p.env = append(p.env, v)
	}
}

// Below says that a path of the workspace has less than an access, "" if it has not.
func Below(least profiles.Access, policy *profiles.Policy, rel string) string {
	if a := policy.Decide(filepath.Join(policy.Workspace, rel)).Access; a < least {
		return "the policy: " + a.String()
	}
	return ""
}

// insideThere keeps most of a policy: what it does keep there a trial says, before the command
// starts, and a run whose trial keeps less than the policy requires is refused then.
const insideThere = "pccrun itself in the sandbox, tried before the command starts"

// ofCopy says what keeps a guarantee because the run is a copy at another place.
var ofCopy = map[profiles.Guarantee]string{
	profiles.FSHide:          "hidden files are not copied",
	profiles.FSReadonly:      "a copy; changes of read-only files are not downloaded",
	profiles.FSProtect:       "a copy; protected names are applied only by name",
	profiles.FSOverlay:       "a copy; pccrun apply writes its changes",
	profiles.NetInject:       "no secret is injected",
	profiles.FSSpecial:       elsewhere,
	profiles.IPCUnix:         elsewhere,
	profiles.IPCSysV:         elsewhere,
	profiles.ProcIsolated:    elsewhere,
	profiles.InfoKernel:      elsewhere,
	profiles.InfoHost:        elsewhere,
	profiles.ProcNoSurvivors: "the sandbox is destroyed, and times out if pccrun is killed",
	profiles.EnvScrub:        "an environment of its own, sent over the stream",
	profiles.ResTime:         insideThere + ", this machine's clock, the sandbox's own end",
	profiles.TTYIsolated:     "a terminal of its own there",
	profiles.TTYOutput:       "a filter over what is printed on a terminal",
	profiles.SyncUp:          "ignore files, key file names, secret detection, the policy's hidden paths",
	profiles.SyncDown:        "only requested files, each checked, as a change set",
}

const elsewhere = "another machine"

// answer says of each guarantee how far this run keeps it.
func (p *plan) answer() []profiles.Answer {
	list := profiles.AnswerEach(ofCopy, func(profiles.Guarantee) (profiles.Answer, bool) { return profiles.KeptBy(insideThere), true })
	itself, open := p.provider.facts.Keeps, FilterOf(&p.request).Open
	for i := range list {
		a := &list[i]
		switch {
		case a.Guarantee == profiles.NetInject && p.policy.Uses(profiles.GitCredentials):
			a.State, a.Mechanism, a.Cause = profiles.Missing, "", "your git's credentials stay on this machine; --github-token and --inject do not"
		case a.Guarantee == profiles.NetInject && len(p.policy.Network.Inject) > 0:
			a.State, a.Mechanism, a.Cause = profiles.Weak, insideThere, secretThere
		}
		if also := itself[a.Guarantee]; also != "" && (open == "" && p.command.Install == nil || a.Guarantee != profiles.NetAllowlist) {
			a.Mechanism += "; " + p.provider.Name() + " itself, by its documentation: " + also
		}
	}
	return list
}
