package main

// A result is what a machine says of itself, on the disk that it was lent.
type result struct {
	Setup   string
	Release string   // of its kernel
	Problem string   // what kept the machine from being what the set-up says
	Before  outcome  // what the user saw
	After   *outcome // and after the doctor's fix was followed, if there was one
	Fix     string   // the commands of the fix
	FixSaid string   // what they printed
}

// An outcome is what a user saw of pccrun.
type outcome struct {
	Code       int
	Said       string // by the launcher, on standard error
	Doctor     string // the JSON of `pccrun doctor --json`
	DoctorSaid string
	Tests      []testRun
	Escape     string // the JSON lines of `pccrun escape --json`
	EscapeSaid string
	EscapeCode int
	TookMS     map[string]int64
}

// A testRun is one test binary.
type testRun struct {
	Package                 string
	Code                    int
	Output                  string // without -v: failures only
	Passed, Failed, Skipped int
	Names                   []string // of failures
}
