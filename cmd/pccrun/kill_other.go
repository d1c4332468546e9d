//go:build !unix

package main

const killUsage = "usage: pccrun kill is not built for this system yet\n"

// killVerb says that nothing can be ended here: nothing can run here.
func killVerb([]string) int { return fail("kill: not built for this system yet") }
