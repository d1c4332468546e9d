//go:build !launcher

package main

import (
	"slices"
	"strings"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// verbs returns the table, in the order in which usage shows it. A function,
// so that a launch pays nothing for it.
func verbs() []verb {
	return []verb{
		{"run", "run a command in a sandbox", runCommand, ""},
		{"profile", "list, show, check and change profiles; print their schema", profileVerb, "list|show|check|allow|schema PROFILE"},
		{"task", "give a coding agent work in a work tree of its own, and get a branch", taskVerb, "list|show|diff|stop|rm|clean"},
		{"checkpoint", "save a task's commit and conversation, for other tasks to start from", checkpointVerb, "list|rm"},
		{"sandbox", "accept the commands of parallel-cc, for scripts that use them", sandboxVerb, "run|status|logs|download|kill|health|checkpoint|resume"},
		{"why", "explain whether a path, host or variable is allowed, and by which rule", whyVerb, "read|write|exec|connect|env PATH"},
		{"learn", "run a command, and propose changes to its profile", learnVerb, ""},
		{"diff", "show what a run changed in its overlays", diffVerb, "PATH PATH"},
		{"apply", "write what a run changed in its overlays to the host", applyVerb, "PATH PATH"},
		{"discard", "delete what a run changed in its overlays", discardVerb, ""},
		{"download", "download what a run changed at a cloud, after a failure", downloadVerb, "SESSION"},
		{"snapshot", "save what a run changed in its overlays, for other runs to start from", snapshotVerb, ""},
		{"ps", "list sessions", psVerb, ""},
		{"logs", "print the events of a session, its refusals or its hosts", logsVerb, "SESSION"},
		{"attach", "show a run that was started with --detach, and type to it", attachVerb, "RUNNING"},
		{"detach", "detach the terminal that is attached to a run", detachVerb, "RUNNING"},
		{"exec", "run another command in a running session", execVerb, "RUNNING"},
		{"stats", "print the resources that a session uses", statsVerb, "SESSION"},
		{"review", "show what a session left to review, and restore what was quarantined", reviewVerb, "SESSION|PATH PATH"},
		{"trust", "trust the workspace's own profile with its present content", trustVerb, ""},
		{"kill", "end sessions", killVerb, "RUNNING RUNNING"},
		{"home", "list, remove and export persistent homes", homeVerb, "list|login|diff|size|reset|export PATH"},
		{"gc", "remove what old and crashed sessions left", gcVerb, ""},
		{"escape", "test the sandbox with escape attempts", escapeVerb, ""},
		{"doctor", "test which guarantees this machine can keep, and how to fix the rest", doctorVerb, ""},
		{"spec", "write a run as an OCI bundle for runc, or as a macOS sandbox profile", specVerb, ""},
		{"completion", "print a completion script for bash, zsh or fish", completionVerb, "bash|zsh|fish"},
		{"help", "print this, or the help of a verb", helpVerb, "VERB VERB"},
		{"version", "print the version", versionVerb, ""},
		{"sync", "", syncVerb, "pack|extract PATH"},
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
	if code, is := placeVerb(args); is {
		return code
	}
	if code, is := detachStage(args); is {
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
		run.CheckKilled(thisProgram())
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
			run.CheckKilled(thisProgram())
		}
		return table[i].run(args[1:])
	}
	if err := notHere(args[0]); err != nil {
		return failUsage(err)
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
