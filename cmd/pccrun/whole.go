package main

// Where nothing may be executed from memory the thin program writes the whole one
// to a file, becomes it, and tells it by a variable what to remove.
const (
	wholeFile     = "pccrun-whole-" // begins the names; the pid of who made it follows, and when
	wholeVariable = "PCCRUN_WHOLE"
)
