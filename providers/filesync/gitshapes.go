package filesync

import "strings"

// inGit reports whether a path is, or lies below, a .git.
func inGit(rel string) bool { return strings.Contains("/"+rel+"/", "/.git/") }
