//go:build !launcher

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/native"
	"github.com/pccrun/pccrun/providers/native/bundle"
	"github.com/pccrun/pccrun/run"
)

func specVerb(args []string) int {
	req, o, err := readSpec(args)
	switch {
	case err != nil:
		return failUsage(err)
	case o.format == "seatbelt":
		return specSeatbelt(req, o.home)
	case o.bundle == "":
		o.bundle = "."
	}
	req.Host = profiles.ThisHost()
	policy, err := profiles.Resolve(*req)
	if err != nil {
		return failWith(err)
	}
	dir, err := filepath.Abs(o.bundle)
	if err != nil {
		return fail("spec: " + inWords(err))
	}
	if policy.Decide(dir).Access >= profiles.Overlay {
		return fail("spec: "+dir+": the command could change the bundle there", "--bundle DIR names another place")
	}
	persist := policy.Decide(policy.Home).Access == profiles.Persist || policy.FreshHome
	if persist { // what a runtime would be given there, the launcher could not look after
		req.Home, req.FreshHome = profiles.Private.String(), false
		if policy, err = profiles.Resolve(*req); err != nil {
			return failWith(err)
		}
	}
	for _, w := range policy.Warnings {
		say(w)
	}
	// The runtime has no proxy, so there is no network at all, and nothing in
	// the environment that names one.
	offline := *policy
	offline.Network.Allow, offline.Network.Local, offline.Network.Inject = nil, nil, nil
	planned, err := native.Alone(&offline, &req.Host, req.Command)
	if err != nil {
		return run.PrintRefusal(err)
	}
	if req.DryRun {
		return run.PrintPlan(&offline, run.Planned{
			Provider: providers.Native, WorkDir: planned.Plan.Command.Dir, Command: req.Command, Warnings: planned.Warnings, Answers: planned.Answers, Plan: planned.Describe(),
		}, req.JSON, true)
	}
	if list := planned.Plan.Overlays(); len(list) > 0 {
		return fail("spec: filesystem "+list[0].Target+": overlay: a bundle has nowhere to keep what it changes", "--read or --private in place of --overlay")
	}
	if closed := unsearchable(dir); closed != "" && planned.Plan.Identity.Root {
		return fail("spec: "+closed+": the identity that the command gets in place of root cannot search it", "--bundle DIR names another place, or chmod o+x "+closed)
	}
	b, err := bundle.New(planned, dir)
	if err != nil {
		return run.PrintRefusal(err)
	}
	b.Spec.Process.Terminal = o.terminal
	if persist {
		b.Lose("home", "~ is private and has no seeds")
	}
	if n := len(policy.Network.Allow) + len(policy.Network.Local); n > 0 {
		b.Lose("network", "there is no proxy: what "+strconv.Itoa(n)+" rules allow cannot be reached")
	}
	if err := b.Write(); errors.Is(err, os.ErrExist) {
		return fail("spec: "+inWords(err), "remove the bundle, or name another directory with --bundle")
	} else if err != nil {
		return fail("spec: " + inWords(err))
	}
	return reportBundle(b, req.JSON)
}

// unsearchable returns the directory on the way to a path, itself included,
// that not everybody may search.
func unsearchable(path string) string {
	for ; path != "/"; path = filepath.Dir(path) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o001 == 0 {
			return path
		}
	}
	return ""
}

// reportBundle says what was written, and what is lost.
func reportBundle(b *bundle.Bundle, asJSON bool) int {
	config := filepath.Join(b.Dir, "config.json")
	if asJSON {
		list := each(b.Losses, func(l bundle.Loss) object { return object{{"name", l.Name}, {"text", l.Text}} })
		printJSON(object{{"bundle", b.Dir}, {"config", config}, {"losses", list}})
		return 0
	}
	for _, l := range b.Losses {
		say("left out: " + l.Name + ": " + l.Text)
	}
	printf("%s\n", config)
	return 0
}
