//go:build !unix

package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/providers"
)

// thisMachine is not built for this system yet.
func thisMachine(*profiles.Request, providers.Host) (providers.Provider, error) { return nil, nil }

// worksHere are the verbs that neither start a sandbox nor read what one left.
var worksHere = []string{"completion", "help", "sync", "version", "--version"}

// machineStage refuses what this system cannot do, whatever else the command line says.
func machineStage(args []string) (code int, is bool) {
	if len(args) == 0 || asksHelp(args) || slices.Contains(worksHere, args[0]) {
		return 0, false
	}
	what := args[0]
	if strings.HasPrefix(what, "-") {
		what = "run"
	} else if !slices.ContainsFunc(verbs(), func(v verb) bool { return v.name == what }) {
		return 0, false
	}
	return fail(providers.StartsNone(what), providers.Elsewhere), true
}

// The verbs of what runs here: machineStage refuses them.
var killVerb, reviewVerb, checkpointVerb, taskVerb, sandboxVerb func([]string) int

func tasksAt() map[string]atWork { return nil }

func (r *homeRequest) login(string, *homes.Entry) int { return failSession(errors.ErrUnsupported) }
