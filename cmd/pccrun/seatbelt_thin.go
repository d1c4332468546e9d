//go:build thin && linux

package main

import "github.com/pccrun/pccrun/profiles"

// whyOnDarwin is the whole program's: expressions are nothing that a launch needs.
func whyOnDarwin(args []string, _ *profiles.Request, _ []string, _ string) int {
	return runWhole(append([]string{"why"}, args...))
}
