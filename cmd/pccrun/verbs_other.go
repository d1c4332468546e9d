//go:build !unix

package main

// killVerb says that nothing can be ended here: nothing can run here.
func killVerb([]string) int { return fail("kill: not built for this system yet") }

// reviewVerb says that nothing can be reviewed here.
func reviewVerb([]string) int { return fail("review: not built for this system yet") }

// checkpointVerb says that there are no tasks here.
func checkpointVerb([]string) int { return fail("checkpoint: not built for this system yet") }

// tasksAt finds none.
func tasksAt() map[string]atWork { return nil }

// taskVerb says that no agent can work here.
func taskVerb([]string) int { return fail("task: not built for this system yet") }

// sandboxVerb says the same.
func sandboxVerb([]string) int { return fail("sandbox: not built for this system yet") }
