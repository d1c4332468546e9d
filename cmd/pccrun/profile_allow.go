//go:build !launcher

package main

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// profileAllow adds rules for hosts to the user's own profile, by default to default. Never to a file of the
// workspace, which a command could change too.
func profileAllow(args []string) int {
	profile := ""
	list, err := options(args, flags{"--profile": &profile})
	if err == nil && len(list) == 0 {
		err = misuse("profile allow: no rule", "pccrun profile allow HOST; see pccrun help profile")
	}
	if err != nil {
		return failUsage(err)
	}
	req := profiles.Request{Host: profiles.ThisHost(), Profile: profile}
	policy, err := profiles.Resolve(req)
	if err != nil {
		return failWith(err)
	}
	asked := req
	asked.Allow = list
	if _, err := profiles.Resolve(asked); err != nil {
		for _, mistake := range profiles.Mistakes(err) { // nobody has written the flag
			fail("profile allow: "+strings.TrimPrefix(inWords(mistake), "flag --allow: "), profiles.Hint(mistake))
		}
		return refused
	}
	file, err := profiles.FileOf(req, policy)
	if err != nil {
		return failWith(err)
	}
	var edits []profiles.Edit
	for i, rule := range list {
		at := slices.IndexFunc(policy.Network.Allow, func(r profiles.NetRule) bool { return r.Text == rule })
		switch {
		case at >= 0:
			say("allowed already: " + rule + ": " + policy.Network.Allow[at].Origin.String())
		case !slices.Contains(list[:i], rule):
			edits = append(edits, profiles.Edit{Keys: []string{"network", "allow"}, Key: rule})
		}
	}
	if len(edits) == 0 {
		return 0
	}
	text, after, err := amended(req, policy, file, edits)
	if err != nil {
		return failWith(err)
	}
	for _, e := range edits {
		if !holdsRule(after, "allow", e.Key) {
			return fail("profile allow: "+e.Key+": still denied: "+strings.Join(after.Warnings, "; "), "")
		}
	}
	if err := file.Write(req, policy, text); err != nil {
		failSession(err)
		return refused
	}
	for _, e := range edits {
		say("written: " + file.Path + ": network.allow has " + e.Key + standsInPlace(policy, file))
		file.New = false // said once
	}
	return 0
}

// amended is a profile's file with edits made, and the policy of a request as it would be then.
func amended(req profiles.Request, policy *profiles.Policy, file *profiles.File, edits []profiles.Edit) (text string, after *profiles.Policy, err error) {
	if text, err = file.Amended(policy, edits); err != nil {
		return "", nil, err
	}
	req.Draft = &profiles.Draft{Path: file.Path, Text: text}
	after, err = profiles.Resolve(req)
	return text, after, err
}

// holdsRule reports whether a policy has a network rule, and no deny of all.
func holdsRule(p *profiles.Policy, list, text string) bool {
	from := p.Network.Allow
	if list == "local" {
		from = p.Network.Local
	}
	return slices.ContainsFunc(from, func(r profiles.NetRule) bool { return r.Text == text })
}

// standsInPlace says what a profile that is new does to the built-in one of its name.
func standsInPlace(policy *profiles.Policy, file *profiles.File) string {
	if file.New && slices.Contains(profiles.Builtin(), policy.Profile) {
		return "; it now replaces the built-in " + policy.Profile
	}
	return ""
}
