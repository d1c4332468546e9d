// Pccrun runs a command in a sandbox: it sees the files that a policy shows
// it, reaches the hosts that the policy names, uses the memory and processes
// that the policy grants, and leaves nothing behind that runs later.
//
//	pccrun [flags] -- COMMAND [ARG…]
//	pccrun VERB [flags]
//
// Built with the tag launcher it runs commands, and executes the program with
// all verbs, which it carries, for the rest.
package main

import (
	"os"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/providers/inside"
	"github.com/pccrun/pccrun/run"
)

// A verb is one row of the table: `pccrun name …`.
type verb struct {
	name string
	line string // what it does, in one line, for usage and completion, which leave out one without
	run  func(args []string) int
	args string // what completion offers for its first word, and after a blank for the others: see [values]
}

// current is a command line with the verb of now in place of one that it has replaced: those go on, and stand in no help.
func current(args []string) []string {
	former := map[string][]string{
		"net":     {"logs", "--net"},
		"denials": {"logs", "--denied"},
		"config":  {"profile", "show", "--why"},
		"allow":   {"profile", "allow"},
	}
	if len(args) > 0 && (args[0] == "status" || strings.HasPrefix(args[0], "sandbox-")) { // parallel-cc's; sandbox-run counts otherwise
		return append([]string{"sandbox"}, args...)
	}
	if len(args) > 1 && args[0] == "config" && slices.Contains([]string{"set", "get", "list"}, args[1]) { // likewise
		return append([]string{"sandbox"}, args...)
	}
	if len(args) == 0 || former[args[0]] == nil {
		return args
	}
	return append(former[args[0]], args[1:]...)
}

func main() {
	run.EndQuietly()
	args := current(os.Args[1:])
	os.Exit(finish(args, Main(args)))
}

// thisProgram is what package run needs of it.
func thisProgram() run.Program {
	return run.Program{Version: version, Whole: wholeProgram, Become: become, Provider: newProvider}
}

// stage does what both programs begin with: it refuses a set-uid start, and plays the part of a run for which
// pccrun has started itself.
func stage(args []string) (code int, is bool) {
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return fail("set-uid and set-gid are refused: remove the bit from the program"), true
	}
	if len(args) == 3 && args[0] == inside.Verb && args[1] == inside.Launch { // elsewhere, for the spool
		return run.Inside(thisProgram(), args[2]), true
	}
	if len(args) > 0 && args[0] == inside.Verb { // in a container, as its first process
		return inside.Main(args[1:]), true
	}
	return machineStage(args)
}

// The linker sets them in a release.
var (
	version = unreleased
	commit  = "" // what was built
	date    = "" // of the commit, as 2026-11-29
)

const unreleased = "(devel)"

// Where nothing may be executed from memory the launcher writes the whole program
// to a file, becomes it, and tells it by a variable what to remove.
const (
	wholeFile     = "pccrun-whole-" // begins the names; the pid of who made it follows, and when
	wholeVariable = "PCCRUN_WHOLE"
)

// asksHelp reports whether --help stands first, or last where no command
// follows: who has typed half of a line and forgotten a flag puts it there.
func asksHelp(args []string) bool {
	is := func(arg string) bool { return arg == "--help" || arg == "-h" }
	return len(args) > 0 && (is(args[0]) || is(args[len(args)-1]) && !slices.Contains(args, "--"))
}
