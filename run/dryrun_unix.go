//go:build unix

package run

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/pccrun/pccrun/internal/messages"
	"github.com/pccrun/pccrun/profiles"
)

// planJSON is `--dry-run --json`, before what a provider says of its plan: in Plan, or beside
// these where it prints itself for people too.
type planJSON struct {
	V          int             `json:"v"`
	Schema     int             `json:"schema"`
	Provider   string          `json:"provider"`
	Profile    string          `json:"profile"`
	Workspace  string          `json:"workspace"`
	WorkDir    string          `json:"workdir"`
	Command    []string        `json:"command"`
	Warnings   []string        `json:"warnings"`
	Guarantees []guaranteeJSON `json:"guarantees"`
	Plan       any             `json:"plan,omitempty"`
}

type guaranteeJSON struct {
	Guarantee string `json:"guarantee"`
	State     string `json:"state"`
	Mechanism string `json:"mechanism"`
	Cause     string `json:"cause,omitempty"`
	Hint      string `json:"hint,omitempty"`
}

// print is the dry run.
func (f *flow) print() int {
	return PrintPlan(f.policy, Planned{f.Name, f.workDir, f.req.Command, f.warnings, f.answers, f.plan.Describe()}, f.req.JSON)
}

// Planned is what is printed of a plan.
type Planned struct {
	Provider string
	WorkDir  string
	Command  []string
	Warnings []string
	Answers  []profiles.Answer
	Plan     any
}

// PrintPlan prints what a run would do.
func PrintPlan(policy *profiles.Policy, p Planned, asJSON bool) int {
	out := planJSON{
		V: messages.SchemaVersion, Schema: 1, Provider: p.Provider, Profile: policy.Profile, Workspace: policy.Workspace, WorkDir: p.WorkDir,
		Command: p.Command, Warnings: append([]string{}, p.Warnings...),
	}
	for _, a := range p.Answers {
		out.Guarantees = append(out.Guarantees, guaranteeJSON{string(a.Guarantee), a.State.String(), a.Mechanism, a.Cause, a.Hint})
	}
	whole, itself := p.Plan.(fmt.Stringer)
	if !itself {
		out.Plan = p.Plan
	}
	text, err := json.Marshal(out)
	if plan, e := json.Marshal(p.Plan); itself && err == nil {
		text, err = append(append(text[:len(text)-1], ','), plan[1:]...), e
	}
	var b bytes.Buffer
	if err == nil && asJSON {
		err = json.Indent(&b, text, "", "  ")
	} else if err == nil && !itself {
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		err = e.Encode(p.Plan)
	}
	switch {
	case err != nil:
		return messages.Fail(messages.InWords(err))
	case asJSON:
		messages.Printf("%s\n", b.String())
		return 0
	}
	if !itself {
		messages.Printf("provider   %s\n", out.Provider)
	}
	messages.Printf("profile    %s\nworkspace  %s\ncommand    %q in %s\n", out.Profile, out.Workspace, out.Command, out.WorkDir)
	if itself {
		messages.Printf("%s", whole.String())
	} else {
		messages.Printf("\nplan\n%s", b.String())
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
