//go:build !linux

package main

import (
	"errors"
	"os"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/run"
)

// What outlives its terminal is for Linux.

func detachStage([]string) (code int, is bool) { return 0, false }

func attachVerb([]string) int { return fail("attach: not built for this system yet") }
func detachVerb([]string) int { return fail("detach: not built for this system yet") }

func detachedTask([]string, *func(dir, name string)) (code int, gone bool) {
	return detached(nil, nil)
}

func detached(*profiles.Request, *run.Program) (code int, gone bool) {
	return fail("flag --detach: not built for this system yet"), true
}

// What learn asks of this machine.

func observe([]string) (*seen, int, error) { return nil, 0, errors.ErrUnsupported }

func hasOtherNames(string) bool { return false }

func openTerminal(bool) *os.File { return nil }

func yes(*os.File, string) bool { return false }

// specVerb says that there is no plan here that a bundle could be made of.
func specVerb(args []string) int {
	switch req, o, err := readSpec(args); {
	case err != nil:
		return failUsage(err)
	case o.format == "seatbelt":
		return specSeatbelt(req, o.home)
	}
	return fail("spec: bundles are made on Linux only", "--format seatbelt prints a profile for macOS")
}
