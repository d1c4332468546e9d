//go:build !unix

package main

// reviewVerb says that nothing can be reviewed here: nothing can run here.
func reviewVerb([]string) int { return fail("review: not built for this system yet") }
