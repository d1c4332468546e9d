//go:build thin && linux

package main

// syncVerb is the whole program's: the rules for secrets cost a launch more than all of its mounts.
func syncVerb(args []string) int { return runWhole(append([]string{"sync"}, args...)) }
