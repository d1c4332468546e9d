package remote

import (
	"context"
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
func (r *plan) Exec(ctx context.Context, argv, _ []string, stdio providers.Stdio) (providers.Result, error) {
	result, failed, err := r.provider.others.Load().Exec(ctx, argv, nil, stdio)
	if failed != nil {
		err = fmt.Errorf("%s: %s: %s", r.provider.Name(), failed.Step, events.Clean(failed.Text))
	}
	return result, err
}

// Answers says of each guarantee how far the run keeps it.
func (r *plan) Answers() []profiles.Answer { return slices.Clone(r.answers) }

// Warnings are what the user should hear before the command starts.
func (r *plan) Warnings() []string { return slices.Clone(r.warnings) }

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
func (r *plan) weigh() (u Upload) {
	packed := &shown{to: io.Discard}
	tree, err := r.open(context.Background(), nil)
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
func (r *plan) Describe() any {
	d := &Description{
		Provider: r.provider.Name(), Create: r.provider.service.Describe(&r.request), Labels: r.request.Labels, Workspace: r.policy.Workspace,
		Copy: "~/" + r.name, Dir: path.Join("~", r.name, r.dir), Command: r.command.Argv,
		Upload:  r.weigh(),
		Answers: r.answers,
	}
	d.Upload.Home = append([]string{}, slices.Sorted(maps.Keys(r.seeds))...)
	for _, v := range r.env {
		name, _, _ := strings.Cut(v, "=")
		d.Env = append(d.Env, name)
	}
	return d
}

// refuse names what a copy elsewhere cannot have.
func (r *plan) refuse() error {
	p, n := r.policy, r.provider.Name()
	refused := func(o profiles.Origin, what string) error {
		return &profiles.Error{Origin: o, Cause: n + ": " + what, Hint: "--provider native has it"}
	}
	switch {
	case len(p.Without) > 0:
		return &providers.UnusableError{Provider: n, Cause: "--without: layers can be switched off with --provider native only"}
	case len(p.Network.Local) > 0:
		return refused(p.Network.Local[0].Origin, "local: ports of this machine cannot be reached from the sandbox")
	case len(p.Network.Publish) > 0:
		return refused(p.Network.Publish[0].Origin, "publish: ports of the sandbox cannot be reached from this machine")
	case len(p.Network.Sockets) > 0:
		return refused(p.Network.Sockets[0].Origin, "socket: sockets of this machine cannot be reached from the sandbox")
	}
	if _, can := r.provider.service.(Extender); !can && r.command.Keep > 0 {
		return &providers.UnusableError{Provider: n, Cause: "--keep: the end of its sandboxes cannot be moved"}
	}
	if most := r.provider.facts.MaxLife; most > 0 && p.Resources.Deadline() > most {
		return refused(p.Resources.Timeout.Origin, fmt.Sprintf("timeout: a sandbox lives for %s at most", most))
	}
	for _, rule := range p.Files {
		if rule.Origin.Source == "flag" && (rule.Access == profiles.Write || rule.Access == profiles.Overlay) && !r.within(rule.Path) {
			return refused(rule.Origin, fmt.Sprintf("%s: only the workspace is copied", rule.Path))
		}
	}
	return nil
}

// within reports whether a path of this machine is copied.
func (r *plan) within(p string) bool {
	return p == r.policy.Workspace || strings.HasPrefix(p, r.policy.Workspace+"/")
}

// ofPlace are variables that speak of this machine: the sandbox has its own, unless the
// user gives one a value.
var ofPlace = []string{"HOME", "PATH", "SHELL", "USER", "LOGNAME", "PWD", "OLDPWD", "TMPDIR", "TMP", "TEMP", "HOSTNAME", "MAIL", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}

// place decides where all is there.
func (r *plan) place() {
	r.name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, filepath.Base(r.policy.Workspace))
	if strings.Trim(r.name, "._-") == "" || strings.HasPrefix(r.name, ".") || strings.HasPrefix(r.name, "-") {
		r.name = "workspace"
	}
	if rel, err := filepath.Rel(r.policy.Workspace, r.command.Dir); err == nil && r.within(r.command.Dir) {
		r.dir = filepath.ToSlash(rel)
	} else {
		r.dir = "."
	}
	for _, v := range r.command.Env {
		name, _, ok := strings.Cut(v, "=")
		if !ok || name == "" || strings.HasPrefix(name, "PCCRUN_") {
			continue
		}
		set, given := r.policy.Environment.Set[name]
		if slices.Contains(ofPlace, name) && (!given || strings.HasPrefix(set.Origin.Source, "built-in ")) {
			continue
		}
		r.env = append(r.env, v)
	}
}

// hides says why a path of the workspace does not go up.
func (r *plan) hides(rel string) string {
	switch d := r.policy.Decide(filepath.Join(r.policy.Workspace, rel)); d.Access {
	case profiles.Hide, profiles.Private, profiles.Persist:
		return "the policy: " + d.Access.String()
	}
	return ""
}

// keeps says why a change of a path is none that may be applied.
func (r *plan) keeps(rel string) string {
	switch d := r.policy.Decide(filepath.Join(r.policy.Workspace, rel)); d.Access {
	case profiles.Write, profiles.Overlay:
		return ""
	default:
		return "the policy: " + d.Access.String()
	}
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
func (r *plan) answer() []profiles.Answer {
	list := profiles.AnswerEach(ofCopy, func(profiles.Guarantee) (profiles.Answer, bool) { return profiles.KeptBy(insideThere), true })
	itself, open := r.provider.facts.Keeps, FilterOf(&r.request).Open
	for i := range list {
		a := &list[i]
		if a.Guarantee == profiles.NetInject && len(r.policy.Network.Inject) > 0 {
			a.State, a.Mechanism, a.Cause = profiles.Weak, insideThere, "the secret is in the memory of the provider's machine, outside of the command's reach"
		}
		if also := itself[a.Guarantee]; also != "" && (open == "" || a.Guarantee != profiles.NetAllowlist) {
			a.Mechanism += "; " + r.provider.Name() + " itself, by its documentation: " + also
		}
	}
	return list
}
