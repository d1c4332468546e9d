package main

// Where nothing may be executed from memory the launcher writes the whole program
// to a file, becomes it, and tells it by a variable what to remove.
const (
	wholeFile     = "pccrun-whole-" // begins the names; the pid of who made it follows, and when
	wholeVariable = "PCCRUN_WHOLE"
)
