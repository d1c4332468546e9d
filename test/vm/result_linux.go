package main

import "time"

// A result is what a machine says of itself, on the disk that it was lent.
type result struct {
	Setup    string
	Release  string   // of its kernel
	Problem  string   // what kept the machine from being what the set-up says
	Before   outcome  // what the user saw
	After    *outcome // and after all that was advised was followed, if something was
	Followed []followed
	Took     time.Duration // as this machine's clock has it, with the boot
	earlier  bool          // it was read, and said in another run
}

// A followed is advice that was followed, as root.
type followed struct{ By, Script, Said string }

// An outcome is what a user saw of pccrun.
type outcome struct {
	Code       int
	Said       string // by the launcher, on standard error
	Plan       string // the JSON of a dry run with limits, after advice was followed
	Doctor     string // the JSON of `pccrun doctor --json`
	DoctorSaid string
	Tests      []testRun
	Escape     string // the JSON lines of `pccrun escape --json`
	EscapeSaid string
	EscapeCode int
	TookMS     map[string]int64
	note       func(string)
}

// A testRun is one test binary.
type testRun struct {
	Package string
	Whole   bool // all of its tests, and not a choice
	Code    int
	Output  string // with -test.v=test2json
}
