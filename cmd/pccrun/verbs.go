//go:build !launcher

package main

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
	"github.com/pccrun/pccrun/test/escape"
)

// verbs returns the table, in the order in which usage shows it. A function,
// so that a launch pays nothing for it.
func verbs() []verb {
	return []verb{
		{"run", "run a command in a sandbox", runCommand, func() string { return runUsage + flagTable(rare) }},
		{"profile", "list, show, check and change profiles; print their schema", profileVerb, func() string { return profileUsage }},
		{"why", "explain whether a path, host or variable is allowed, and by which rule", whyVerb, func() string { return whyUsage }},
		{"learn", "run a command, and propose changes to its profile", learnVerb, func() string { return learnUsage }},
		{"diff", "show what a run changed in its overlays", diffVerb, func() string { return diffUsage }},
		{"apply", "write what a run changed in its overlays to the host", applyVerb, func() string { return applyUsage }},
		{"discard", "delete what a run changed in its overlays", discardVerb, func() string { return discardUsage }},
		{"download", "download what a run changed at a cloud, after a failure", downloadVerb, func() string { return downloadUsage }},
		{"snapshot", "save what a run changed in its overlays, for other runs to start from", snapshotVerb, func() string { return snapshotUsage }},
		{"ps", "list sessions", psVerb, func() string { return psUsage }},
		{"logs", "print the events of a session, its refusals or its hosts", logsVerb, func() string { return logsUsage }},
		{"exec", "run another command in a running session", execVerb, func() string { return execUsage }},
		{"stats", "print the resources that a session uses", statsVerb, func() string { return statsUsage }},
		{"review", "show what a session left to review, and restore what was quarantined", reviewVerb, func() string { return reviewUsage }},
		{"trust", "trust the workspace's own profile with its present content", trustVerb, func() string { return trustUsage }},
		{"kill", "end sessions", killVerb, func() string { return killUsage }},
		{"home", "list, remove and export persistent homes", homeVerb, func() string { return homeUsage }},
		{"gc", "remove what old and crashed sessions left", gcVerb, func() string { return gcUsage }},
		{"escape", "test the sandbox with escape attempts", escapeVerb, func() string { return escape.Usage }},
		{"doctor", "test which guarantees this machine can keep, and how to fix the rest", doctorVerb, func() string { return doctorUsage }},
		{"spec", "write a run as an OCI bundle for runc, or as a macOS sandbox profile", specVerb, func() string { return specUsage }},
		{"completion", "print a completion script for bash, zsh or fish", completionVerb, func() string { return completionUsage }},
		{"help", "print this, or the help of a verb", helpVerb, func() string { return "usage: pccrun help [-v] [VERB]\n" }},
		{"version", "print the version", versionVerb, func() string { return "usage: pccrun version\n" }},
		{"sync", "", syncVerb, func() string { return syncUsage }},
	}
}

// Main is the whole program, less the exit.
func Main(args []string) int {
	if code, is := stage(args); is {
		return code
	}
	if code, is := escapeHidden(args); is {
		return code
	}
	if code, is := syncHidden(args); is {
		return code
	}
	switch {
	case len(args) == 0, args[0] == "":
		return fail("no command", "pccrun -- COMMAND runs one; see pccrun help")
	case args[0] == "--help" || args[0] == "-h":
		return helpVerb(verbosely(args, nil))
	case len(args) > 1 && args[0] == "completion" && args[1] == "--":
		return complete(args[2:])
	case args[0] == "--version":
		run.SettleUnfinished(thisProgram())
		return versionVerb(nil)
	case strings.HasPrefix(args[0], "-"):
		if asksHelp(args) {
			return helpVerb(verbosely(args, []string{"run"}))
		}
		return runCommand(args)
	}
	table := verbs()
	if i := slices.IndexFunc(table, func(v verb) bool { return v.name == args[0] }); i >= 0 {
		if asksHelp(args[1:]) {
			return helpVerb(verbosely(args, args[:1:1]))
		}
		if i > 0 && table[i].name != "help" { // a run does so itself
			run.SettleUnfinished(thisProgram())
		}
		return table[i].run(args[1:])
	}
	return fail("unknown verb "+quote(args[0]), "put -- before a command: pccrun -- "+commandLine(args)+suggestVerb(args[0], table)+"; pccrun help lists the verbs")
}

// suggestVerb is the beginning of the hint for a verb that does not exist, ""
// where none is near.
func suggestVerb(word string, table []verb) string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].name
	}
	if near := profiles.Nearest(word, names); near != "" && len(word) > 2 {
		return "; or did you mean pccrun " + near + "?"
	}
	return ""
}

// verbosely adds -v to a request for help where the command line has it.
func verbosely(args, verb []string) []string {
	if slices.Contains(args, "-v") {
		verb = append(verb, "-v")
	}
	return verb
}
