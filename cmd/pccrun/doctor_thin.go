//go:build thin && linux

package main

// doctorVerb is the whole program's, which starts this one for its trials.
func doctorVerb(args []string) int { return runWhole(append([]string{"doctor"}, args...)) }
