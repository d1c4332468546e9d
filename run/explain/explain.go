// Package explain says what a command finds on this machine, before it runs: at a path, in a variable,
// under a command's name.
//
// The answers come from the survey and the rules of a launch. Nothing is started for them, and no question
// changes anything.
package explain

import (
	"github.com/pccrun/pccrun/internal/survey"
	"github.com/pccrun/pccrun/namespaces"
	"github.com/pccrun/pccrun/profiles"
)

// Found is what a command finds at a path.
type Found struct {
	profiles.Decision
	Scratch bool // what is changed there is gone at exit
}

// RuntimeDir is a directory of the sandbox's own, where names of the host's can be shown.
const RuntimeDir = survey.RuntimeDir

// OwnPath says what the command finds at a path of /dev, /proc or /sys, where no rule covers
// it: see [namespaces.Own].
func OwnPath(path string, nested bool) (tree string, read, write bool) {
	return namespaces.Own(path, nested)
}

// KeepsGit reports whether a path is that of the configuration of git of which a persistent home has its own.
func KeepsGit(p *profiles.Policy, path string) bool {
	return !p.FreshHome && p.Uses(profiles.GitConfig) && p.Decide(p.Home).Access == profiles.Persist && path == p.Home+"/.gitconfig"
}
