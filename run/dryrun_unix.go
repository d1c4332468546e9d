//go:build unix

package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

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
func (p *prepared) print() int {
	return PrintPlan(p.policy, Planned{p.Name, p.workDir, p.req.Command, p.notes, p.answers, p.planned.plan.Describe()}, p.req.JSON, p.req.Verbose)
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

// PrintPlan prints what a run would do: in ten lines, in full or as JSON.
func PrintPlan(policy *profiles.Policy, p Planned, asJSON, full bool) int {
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
	case !full:
		printBrief(policy, &out, text)
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

// printBrief prints a plan in ten lines. Of the provider's part it takes the names of variables.
func printBrief(policy *profiles.Policy, out *planJSON, text []byte) {
	row := func(name string, list ...string) {
		const most = 8
		if n := len(list) - most; n > 0 {
			list = append(slices.Clip(list[:most]), fmt.Sprintf("and %d more", n))
		}
		messages.Printf("%-12s %s\n", name, cmp.Or(strings.Join(list, ", "), "none"))
	}
	files := map[profiles.Access][]string{}
	for _, r := range slices.Concat(policy.Files, policy.Tighten) {
		files[r.Access] = append(files[r.Access], r.Text())
	}
	hosts := texts(slices.Concat(policy.Network.Allow, policy.Network.Local))
	for _, s := range policy.Network.Sockets {
		hosts = append(hosts, s.Path)
	}
	var plan struct{ Env []string }
	_ = json.Unmarshal(text, &plan) // another provider's has none, or under another name
	var limits []string
	for i, name := range profiles.LimitNames() {
		if l := policy.Resources.Limit(i); l.Value > 0 {
			value := profiles.LimitText(i, l.Value)
			if slices.Contains([]string{"memory", "filesize", "disk"}, name) {
				value = messages.SizeText(l.Value)
			}
			limits = append(limits, name+" "+value)
		}
	}
	count, weak := map[string]int{}, []string{}
	for _, g := range out.Guarantees {
		if count[g.State]++; g.State == profiles.Weak.String() {
			weak = append(weak, g.Guarantee)
		}
	}
	row("command", fmt.Sprintf("%q in %s, by %s", out.Command, out.WorkDir, out.Provider))
	row("profile", out.Profile+", picked by "+policy.PickedBy)
	row("writable", slices.Concat(files[profiles.Write], files[profiles.Overlay], files[profiles.Persist])...)
	row("private", files[profiles.Private]...)
	row("hidden", append([]string{"homes"}, files[profiles.Hide]...)...)
	row("network", hosts...)
	row("environment", plan.Env...)
	row("limits", limits...)
	row("guarantees", fmt.Sprintf("%d kept, %d missing, %d weak: %s", count[profiles.Kept.String()], count[profiles.Missing.String()], len(weak), cmp.Or(strings.Join(weak, " "), "none")))
	row("more", "every mount, variable, limit and guarantee: pccrun -v --dry-run")
}

func texts(rules []profiles.NetRule) (list []string) {
	for _, r := range rules {
		list = append(list, r.Text)
	}
	return list
}
