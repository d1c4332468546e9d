package main

import "github.com/pccrun/pccrun/profiles"

// runVerb runs what the request asks for and returns the status to exit with.
func runVerb(req profiles.Request) int {
	if _, err := profiles.Resolve(req); err != nil {
		return failWith(err)
	}
	return fail("nothing can be run yet: no provider is built in")
}
