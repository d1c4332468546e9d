package run

import (
	"encoding/json"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/providers/native"
)

// planJSON is `--dry-run --json`.
type planJSON struct {
	V          int             `json:"v"`
	Schema     int             `json:"schema"`
	Provider   string          `json:"provider"`
	Profile    string          `json:"profile"`
	Strict     bool            `json:"strict"`
	Workspace  string          `json:"workspace"`
	WorkDir    string          `json:"workdir"`
	Command    []string        `json:"command"`
	Paths      []string        `json:"paths"`
	Env        []string        `json:"env"` // names only: values may be secrets
	Filter     string          `json:"filter"`
	Landlock   int             `json:"landlock"`
	Readable   []string        `json:"readable,omitempty"` // what Landlock lets be read, under strict
	Asks       string          `json:"asks,omitempty"`     // about which calls the launcher is asked
	Mounts     []mountJSON     `json:"mounts"`
	Rlimits    []rlimitJSON    `json:"rlimits"`
	OOMScore   int             `json:"oom_score_adj"`
	Limits     []string        `json:"limits"`
	Guarantees []guaranteeJSON `json:"guarantees"`
}

type mountJSON struct {
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	Source   string `json:"source,omitempty"`
	ReadOnly bool   `json:"readonly"`
	Why      string `json:"why"`
}

type rlimitJSON struct {
	Name string `json:"name"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

type guaranteeJSON struct {
	Guarantee string `json:"guarantee"`
	State     string `json:"state"`
	Mechanism string `json:"mechanism"`
	Cause     string `json:"cause,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// PrintPlan prints what a run would do.
func PrintPlan(r *native.Run, asJSON bool) int {
	p := r.Plan
	out := planJSON{
		V: messages.SchemaVersion, Schema: 1, Provider: "native", Profile: r.Policy.Profile, Strict: r.Policy.Strict, Workspace: r.Policy.Workspace, WorkDir: p.Command.Dir,
		Command: p.Command.Argv, Paths: p.Command.Paths, Filter: p.FilterName, Landlock: p.Landlock, OOMScore: p.OOMScore,
	}
	for _, e := range p.Command.Env {
		out.Env = append(out.Env, nameOf(e))
	}
	for _, m := range p.Mounts {
		out.Mounts = append(out.Mounts, mountJSON{m.Kind.String(), m.Target, m.Source, m.ReadOnly, m.Why})
	}
	for _, m := range p.Readable {
		out.Readable = append(out.Readable, m.String())
	}
	for _, l := range p.Rlimits {
		out.Rlimits = append(out.Rlimits, rlimitJSON{l.Name, l.Soft, l.Hard})
	}
	for _, a := range r.Limits.Answers {
		out.Limits = append(out.Limits, a.Resource.String()+": "+a.Mechanism)
	}
	for _, a := range r.Answers {
		out.Guarantees = append(out.Guarantees, guaranteeJSON{string(a.Guarantee), a.State.String(), a.Mechanism, a.Cause, a.Hint})
	}
	if p.Watch != nil {
		out.Asks = "writes, and lets them go on"
		if p.Watch.Deputy {
			out.Asks = "new names, and makes them"
		}
	}
	if asJSON {
		e := json.NewEncoder(messages.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(out); err != nil {
			return messages.Fail(messages.InWords(err))
		}
		return 0
	}
	messages.Printf("profile    %s\nworkspace  %s\ncommand    %q in %s\nfilter     %s\nlandlock   ABI %d\n", out.Profile, out.Workspace, out.Command, out.WorkDir, out.Filter, out.Landlock)
	if out.Asks != "" {
		messages.Printf("launcher   asked about %s\n", out.Asks)
	}
	messages.Printf("\nmounts, on the host's tree read-only\n")
	for _, m := range p.Mounts {
		messages.Printf("  %-60s %s\n", m.String(), m.Why)
	}
	if len(out.Readable) > 0 {
		messages.Printf("\nreadable by Landlock too, as it stands now\n")
	}
	for _, r := range out.Readable {
		messages.Printf("  %s\n", r)
	}
	messages.Printf("\nenvironment\n")
	for _, name := range out.Env {
		messages.Printf("  %s\n", name)
	}
	messages.Printf("\nlimits\n")
	for _, l := range out.Rlimits {
		messages.Printf("  %s %d\n", l.Name, l.Hard)
	}
	messages.Printf("  oom_score_adj %d\n", out.OOMScore)
	for _, l := range out.Limits {
		messages.Printf("  %s\n", l)
	}
	messages.Printf("\nguarantees\n")
	for _, g := range out.Guarantees {
		messages.Printf("  %-20s %-8s %s", g.Guarantee, g.State, g.Mechanism)
		if g.Cause != "" {
			messages.Printf(" (%s)", g.Cause)
		}
		messages.Printf("\n")
	}
	return 0
}

// nameOf returns the name of a variable of an environment.
func nameOf(entry string) string {
	for i := range len(entry) {
		if entry[i] == '=' {
			return entry[:i]
		}
	}
	return entry
}
