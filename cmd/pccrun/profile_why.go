//go:build !launcher

package main

import (
	"cmp"
	"strings"

	"github.com/pccrun/pccrun/internal/state"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// showWhy prints what made up a policy, and why: pccrun help environment lists the variables that pccrun reads.
func showWhy(req *profiles.Request, p *profiles.Policy) int {
	dirs, err := state.Find(req.Host.Getenv, p.Home)
	if err != nil {
		return failWith(err)
	}
	var set []string
	for _, e := range req.Host.Environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "PCCRUN_") && name != "PCCRUN_LAUNCHER" || strings.HasPrefix(name, "PARALLEL_CC_") || strings.HasPrefix(name, "XDG_") && strings.HasSuffix(name, "_HOME") {
			set = append(set, name)
		}
	}
	provider, by, err := run.Chosen(req)
	if err != nil {
		return fail(inWords(err), profiles.Hint(err))
	}
	if req.JSON {
		printJSON(object{
			{"profile", p.Profile}, {"picked_by", p.PickedBy}, {"workspace", p.Workspace}, {"workdir", p.WorkDir}, {"home", p.Home}, {"provider", provider},
			{"layers", p.Layers}, {"variables", set}, {"config_dir", dirs.Config}, {"state_dir", dirs.State}, {"cache_dir", dirs.Cache},
		})
		return 0
	}
	for _, row := range [...][2]string{
		{"profile", p.Profile + ", picked by " + p.PickedBy}, {"workspace", p.Workspace}, {"starts in", p.WorkDir}, {"home", p.Home}, {"provider", provider + ", picked by " + by},
		{"profiles", dirs.Config + "/profiles"}, {"sessions", dirs.State}, {"caches", dirs.Cache}, {"variables", cmp.Or(strings.Join(set, ", "), "none")},
	} {
		printf("%-10s %s\n", row[0], printable(row[1]))
	}
	for i, l := range p.Layers {
		title := ""
		if i == 0 {
			title = "rules from"
		}
		printf("%-10s %s\n", title, printable(l))
	}
	return 0
}
