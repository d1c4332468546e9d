package native

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/events"
	"github.com/pccrun/pccrun/internal/shell"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/survey"
)

// maxHidden bounds what is told of that is hidden.
const maxHidden = 256

// dropped are variables that name a socket of the host's by its path, and come with it.
var dropped = [...]string{"SSH_AUTH_SOCK", "DOCKER_HOST"}

// Hidden returns what the command will not find although the host has it: what the plan
// covers in the workspace, variables that name a socket and are not passed, and who signs. All of it is
// known from the plan: nothing is looked at, and nobody has tried it yet.
func (r *plan) Hidden() (list []events.Hidden) {
	p := r.Policy
	host := profiles.Host{Environ: r.provider.environ}
	for i := range r.Plan.Mounts {
		m := &r.Plan.Mounts[i]
		rel, in := strings.CutPrefix(m.Target, p.Workspace+"/")
		covers := m.Kind == namespaces.Mask || m.Kind == namespaces.Fresh && m.ReadOnly
		if !in || !covers || len(list) == maxHidden {
			continue
		}
		if from, err := filepath.Rel(p.WorkDir, m.Target); err == nil {
			rel = from // where the user is
		}
		h := events.Hidden{What: "read " + m.Target, Rule: m.Why, Hint: "--read " + shell.Quote(rel)}
		d := p.Decide(m.Target)
		if d.Rule.Origin.Source == "flag" {
			continue // whoever hides it knows
		}
		if d.Access == profiles.Hide {
			h.Rule = "hide " + d.Rule.Text() + " (" + d.Rule.Origin.String() + ")"
		} else if m.Why == survey.SocketHidden {
			h.What, h.Hint = "connect "+m.Target, "--socket "+shell.Quote(m.Target)
		}
		if change := r.attempt(m.Target).Hint; strings.HasPrefix(h.Hint, "--read ") && change != "" {
			h.Hint += ", or " + strings.ReplaceAll(change, shell.Quote(m.Target), shell.Quote(rel)) + " to change or remove it" // nothing is seen of which was tried
		}
		list = append(list, h)
	}
	for _, name := range dropped {
		path := strings.TrimPrefix(host.Getenv(name), "unix://")
		if strings.HasPrefix(path, "/") && p.DecideEnv(name).Action == profiles.EnvScrubbed && !(r.Plan.Identity.Root && name == "SSH_AUTH_SOCK") {
			list = append(list, events.Hidden{What: "find " + name, Rule: "not in environment.pass", Hint: "--socket " + shell.Quote(path)})
		}
	}
	words := r.words
	if flags := r.signing(r.found.Signs); flags != "" && (!slices.Contains(words, "git") || slices.ContainsFunc(words, names)) {
		list = append(list, events.Hidden{What: "sign a commit", Rule: "no use of " + signers[r.found.Signs], Hint: flags, Code: gitFatal})
	}
	return list
}
