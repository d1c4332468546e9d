//go:build (linux || darwin) && !launcher

package main

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/profiles"
)

// diff says what in the home is another than what was copied into it the last time.
func (r *homeRequest) diff(stateDir string, e *homes.Entry) int {
	p, err := r.policy(e)
	if err != nil {
		return failWith(err)
	}
	h, err := homes.OpenShared(stateDir, e.Key)
	if err != nil {
		return failSession(err)
	}
	defer h.Close()
	list := h.Diff(p)
	if r.json {
		rows := []object{}
		for _, d := range list {
			rows = append(rows, object{{"path", d.Path}, {"what", d.What}, {"keys", append([]string{}, d.Keys...)}, {"login", d.Login}})
		}
		printJSON(object{{"workspace", e.Record.Workspace.Path}, {"profile", e.Record.Name}, {"differences", rows}})
		return 0
	}
	const most = 20
	for _, d := range list {
		text := d.What + ": ~" + strings.TrimPrefix(filepath.ToSlash(d.Path), p.Home)
		if keys := d.Keys; len(keys) > 0 && !d.Login {
			text += ": " + strings.Join(keys[:min(len(keys), most)], ", ")
			if more := len(keys) - most; more > 0 {
				text += " and " + strconv.Itoa(more) + " more"
			}
		}
		printf("%s\n", printable(text))
	}
	if len(list) == 0 {
		say("no seed of this home has changed")
	}
	return 0
}

// policy is that by which the home was filled.
func (r *homeRequest) policy(e *homes.Entry) (*profiles.Policy, error) {
	name := strings.TrimPrefix(strings.TrimSuffix(e.Record.Profile, homes.NoLogin), "built-in ")
	return profiles.Resolve(profiles.Request{Host: profiles.ThisHost(), Workspace: r.workspace, Profile: name, Home: profiles.Persist.String(), NoLogin: strings.HasSuffix(e.Record.Profile, homes.NoLogin)})
}
