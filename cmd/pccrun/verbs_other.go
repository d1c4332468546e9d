//go:build !unix

package main

// killVerb says that nothing can be ended here: nothing can run here.
func killVerb([]string) int { return fail("kill: not built for this system yet") }

// reviewVerb says that nothing can be reviewed here.
func reviewVerb([]string) int { return fail("review: not built for this system yet") }
