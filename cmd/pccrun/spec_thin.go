//go:build thin && linux

package main

// specVerb is the whole program's: the types of the format and its JSON are
// nothing that a launch needs.
func specVerb(args []string) int { return runWhole(append([]string{"spec"}, args...)) }
