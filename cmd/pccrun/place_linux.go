//go:build place

package main

import (
	"os"
	"slices"

	"github.com/pccrun/pccrun/netproxy/inspect"
	"github.com/pccrun/pccrun/netproxy/inspect/wire"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
	"github.com/pccrun/pccrun/providers/remote"
	"github.com/pccrun/pccrun/run"
)

// Main is the program that goes up to a cloud, less the exit: the parts of a run there, what the engine asks for, and
// another command in the run. It has no client of any provider, which makes it a third of the whole program.
func Main(args []string) int {
	if code, is := stage(args); is {
		return code
	}
	switch {
	case slices.Equal(args, []string{wire.Verb}):
		return inspect.Main()
	case len(args) > 0 && args[0] == remote.Place:
		return remote.InPlace(args[1:], os.Stdout, os.Stderr)
	case len(args) > 0 && args[0] == "exec":
		return execVerb(args[1:])
	}
	return fail("this is the part of pccrun that works in a cloud's sandbox")
}

func verbs() []verb { return nil }

// become is nil: no other program does what this one is asked for.
var become func() int

// detached is the user's own machine's.
func detached(*profiles.Request, *run.Program) (code int, gone bool) {
	return fail("flag --detach: not in a cloud's sandbox"), true
}

// newProvider makes this machine.
func newProvider(_ string, req *profiles.Request, host providers.Host) (providers.Provider, error) {
	return thisMachine(req, host)
}

// wholeProgram returns this program as a file.
func wholeProgram() (*os.File, error) { return os.Open("/proc/self/exe") }
