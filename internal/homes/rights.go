package homes

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// Rights are what a policy lets a run do beyond its home, as the flags that say it: for a line where
// a run may do more than the one before, whose programs it may execute.
func Rights(p *profiles.Policy) []string {
	list := []string{} // none is another thing than not known
	add := func(flag, value string) { list = append(list, flag+" "+value) }
	for _, r := range p.Network.Allow {
		add("--allow", r.Text)
	}
	for _, r := range p.Network.Local {
		add("--local", r.Text)
	}
	for _, r := range p.Network.Sockets {
		add("--socket", r.Path)
	}
	for _, u := range p.Use {
		if u.Name != profiles.GitConfig {
			add("--use", u.Name)
		}
	}
	for _, in := range p.Network.Inject {
		add("--inject", in.Env)
	}
	for _, r := range p.Environment.Pass {
		add("--env", r.Pattern)
	}
	for _, r := range p.Files {
		if r.Access >= profiles.Read && r.Glob == "" && r.Origin.Source != "default" && !strings.HasPrefix(r.Origin.Source, "built-in ") {
			add("--"+r.Access.String(), r.Path)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
