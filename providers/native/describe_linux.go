package native

import (
	"fmt"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// description is what --dry-run prints of a plan: of variables the names only, since values may
// be secrets.
type description struct {
	Strict   bool         `json:"strict"`
	Paths    []string     `json:"paths"`
	Env      []string     `json:"env"`
	Filter   string       `json:"filter"`
	Landlock int          `json:"landlock"`
	Readable []string     `json:"readable,omitempty"` // what Landlock lets be read, under strict
	Asks     string       `json:"asks,omitempty"`     // about which calls the launcher is asked
	Mounts   []mountJSON  `json:"mounts"`
	Rlimits  []rlimitJSON `json:"rlimits"`
	OOMScore int          `json:"oom_score_adj"`
	Limits   []string     `json:"limits"`
	Network  *networkJSON `json:"network,omitempty"`
	Inspects bool         `json:"inspects,omitempty"` // requests are read, by an authority of the run's own
	PassFDs  []int        `json:"pass_fds,omitempty"`
}

type mountJSON struct {
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	Source   string `json:"source,omitempty"`
	ReadOnly bool   `json:"readonly"`
	Why      string `json:"why"`
	text     string
}

type rlimitJSON struct {
	Name string `json:"name"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// networkJSON is the way out, and in.
type networkJSON struct {
	Allow   []string `json:"allow"`
	Deny    []string `json:"deny,omitempty"`
	Listen  []string `json:"listen"` // of the sandbox's own loopback
	Capture []uint16 `json:"capture,omitempty"`
	Local   []string `json:"local,omitempty"`
	Publish []string `json:"publish,omitempty"`
}

// Describe returns a value that says all of the plan.
func (p *Planned) Describe() any {
	d := description{
		Strict: p.Policy.Strict, Paths: p.Plan.Command.Paths, Filter: p.Plan.FilterName, Landlock: p.Plan.Landlock, OOMScore: p.Plan.OOMScore,
		Inspects: p.Egress.Inspects(), PassFDs: p.Plan.PassFDs,
	}
	for _, e := range p.Plan.Command.Env {
		name, _, _ := strings.Cut(e, "=")
		d.Env = append(d.Env, name)
	}
	for _, m := range p.Plan.Mounts {
		d.Mounts = append(d.Mounts, mountJSON{m.Kind.String(), m.Target, m.Source, m.ReadOnly, m.Why, m.String()})
	}
	for _, m := range p.Plan.Readable {
		d.Readable = append(d.Readable, m.String())
	}
	for _, l := range p.Plan.Rlimits {
		d.Rlimits = append(d.Rlimits, rlimitJSON{l.Name, l.Soft, l.Hard})
	}
	for _, a := range p.Limits.Answers {
		d.Limits = append(d.Limits, a.Resource.String()+": "+a.Mechanism)
	}
	if p.Plan.Watch != nil {
		d.Asks = "writes, and lets them go on"
		if p.Plan.Watch.Broker {
			d.Asks = "new names, and makes them"
		}
	}
	n := &p.Policy.Network
	if p.Egress.Rules == nil && len(n.Publish) == 0 {
		return d
	}
	d.Network = &networkJSON{Allow: texts(n.Allow), Deny: texts(n.Deny), Local: texts(n.Local), Publish: texts(n.Publish)}
	for _, at := range p.Plan.Listen {
		d.Network.Listen = append(d.Network.Listen, at.String())
	}
	if p.Egress.Rules != nil {
		d.Network.Capture = p.Plan.Network.Capture
	}
	return d
}

func texts(rules []profiles.NetRule) (list []string) {
	for _, r := range rules {
		list = append(list, r.Text)
	}
	return list
}

// String is the same for people.
func (d description) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("filter     %s\nlandlock   ABI %d", d.Filter, d.Landlock)
	if d.Asks != "" {
		line("launcher   asked about %s", d.Asks)
	}
	line("\nmounts, on the host's tree read-only")
	for _, m := range d.Mounts {
		line("  %-60s %s", m.text, m.Why)
	}
	if len(d.Readable) > 0 {
		line("\nreadable by Landlock too, as it stands now")
	}
	for _, r := range d.Readable {
		line("  %s", r)
	}
	line("\nenvironment")
	for _, name := range d.Env {
		line("  %s", name)
	}
	if n := d.Network; n != nil {
		line("\nnetwork")
		for _, list := range [...]struct {
			what  string
			texts []string
		}{{"allow", n.Allow}, {"deny", n.Deny}, {"listen", n.Listen}, {"local", n.Local}, {"publish", n.Publish}} {
			for _, text := range list.texts {
				line("  %-8s %s", list.what, text)
			}
		}
	}
	line("\nlimits")
	for _, l := range d.Rlimits {
		line("  %s %d", l.Name, l.Hard)
	}
	line("  oom_score_adj %d", d.OOMScore)
	for _, l := range d.Limits {
		line("  %s", l)
	}
	return b.String()
}
