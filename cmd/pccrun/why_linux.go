package main

import (
	"os"
	"strings"

	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
)

// surveyed returns what a launch would put at a path that exists, if that is
// not what the table says: programs of PATH are shown, tracked files that are
// unchanged are not hidden, a worktree's repository is there.
func surveyed(p *profiles.Policy, host *profiles.Host, path string) (d profiles.Decision, differs bool) {
	if _, err := os.Lstat(path); err != nil {
		return d, false
	}
	survey, err := namespaces.Look(p, namespaces.Options{Getenv: host.Getenv})
	if err != nil {
		say("a run would not start: " + err.Error())
		return d, false
	}
	deepest := namespaces.Place{}
	for _, place := range survey.Places {
		covers := place.Path == path || place.Path == "/" || strings.HasPrefix(path, place.Path+"/")
		if covers && place.Node != namespaces.Link && len(place.Path) >= len(deepest.Path) {
			deepest = place
		}
	}
	if deepest.Path == "" || deepest.Protect || deepest.Access == p.Decide(path).Access {
		return d, false
	}
	rule := profiles.FileRule{Path: deepest.Path, Access: deepest.Access, Origin: profiles.Origin{Source: "this machine", Key: deepest.Why}}
	return profiles.Decision{Access: deepest.Access, Rule: rule}, true
}

// vacated says until when something stands at a path that is private, but that
// nothing could be mounted at; "" for any other.
func vacated(p *profiles.Policy, path string) string {
	if !namespaces.Vacant(p, path) {
		return ""
	}
	if r, ok := p.Protected(path); ok && r.Review {
		return "the end of the run, and then removed"
	}
	return "the launcher sees it, and then removed"
}
