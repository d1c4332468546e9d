package main

import (
	"path"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/state"
)

const allowUsage = `usage: pccrun allow RULE… [--profile NAME|FILE]

Adds rules for hosts to your own profile, so that they apply to every run, as
--allow RULE applies to one. The rest of the file is kept, with its comments.

The file is the one that --profile names by its path, else your profile of that
name in $XDG_CONFIG_HOME/pccrun/profiles. If there is none, it is created and
extends the built-in one. Without --profile it is the profile default. A file in
the workspace is never changed, because a command could change it too.

  --profile NAME|FILE  the profile to change

example: pccrun allow github.com --profile claude
         pccrun allow @npm '*.corp.example'
`

func allowVerb(args []string) int {
	profile := ""
	list, err := options(allowUsage, args, flags{"--profile": &profile})
	if err == nil && len(list) == 0 {
		err = misuse("allow: no rule", "pccrun allow HOST; see pccrun help allow")
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
			fail("allow: "+strings.TrimPrefix(inWords(mistake), "flag --allow: "), profiles.Hint(mistake))
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
	base := ""
	if file.New {
		base = policy.Profile
	}
	text, err := profiles.Amend(file.Path, file.Text, base, edits)
	if err != nil {
		return failWith(err)
	}
	req.Draft = &profiles.Draft{Path: file.Path, Text: text}
	after, err := profiles.Resolve(req)
	if err != nil {
		return failWith(err)
	}
	for _, e := range edits {
		if !holdsRule(after, "allow", e.Key) {
			return fail("allow: "+e.Key+": still denied: "+strings.Join(after.Warnings, "; "), "")
		}
	}
	req.Draft = nil
	if err := writeProfile(&req, policy, file, text); err != nil {
		failSession(err)
		return refused
	}
	for _, e := range edits {
		say("written: " + file.Path + ": network.allow has " + e.Key + standsInPlace(policy, file))
		file.New = false // said once
	}
	return 0
}

// writeProfile writes a profile, whole or not at all, if it is still what was read.
func writeProfile(req *profiles.Request, policy *profiles.Policy, file *profiles.File, text string) error {
	root, err := state.Open(path.Dir(file.Path), policy.Workspace)
	if err != nil {
		return err
	}
	defer root.Close()
	now, err := profiles.FileOf(*req, policy)
	if err != nil {
		return err
	}
	if now.Text != file.Text {
		return misuse(file.Path+": changed while pccrun edited it, and was not written", "run it again")
	}
	return state.WriteFile(root, path.Base(file.Path), []byte(text), state.Durable)
}

// standsInPlace says what a profile that is new does to the built-in one of its name.
func standsInPlace(policy *profiles.Policy, file *profiles.File) string {
	if file.New && slices.Contains(profiles.Builtin(), policy.Profile) {
		return "; it now replaces the built-in " + policy.Profile
	}
	return ""
}
