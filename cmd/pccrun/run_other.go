//go:build !linux

package main

import (
	"runtime"

	"github.com/pccrun/pccrun/profiles"
)

// runVerb says that nothing can run here.
func runVerb(profiles.Request) int {
	return fail("provider native: not built for " + runtime.GOOS + " yet")
}
