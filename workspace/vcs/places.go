package vcs

import "strings"

// InsideGit reports whether a path is, or lies below, a directory named .git.
func InsideGit(rel string) bool {
	return strings.HasPrefix(rel+"/", ".git/") || strings.Contains(rel+"/", "/.git/")
}

// InsideModules reports whether a path lies where git keeps the repositories of
// submodules, by whatever names.
func InsideModules(rel string) bool { return strings.Contains("/"+rel+"/", "/.git/modules/") }

// OfSubmodule reports whether a path lies in the repository of a submodule, or of one of
// a linked worktree: git keeps each in the repository around.
func OfSubmodule(path string) bool {
	if InsideModules(path) {
		return true
	}
	_, rest, _ := strings.Cut("/"+path, "/.git/worktrees/")
	_, rest, _ = strings.Cut(rest, "/")
	return strings.HasPrefix(rest, "modules/")
}

// InsideStore reports whether a path lies in the objects, references or logs of
// something.
func InsideStore(rel string) bool {
	for _, name := range [...]string{"/objects/", "/refs/", "/logs/"} {
		if strings.Contains(rel+"/", name) {
			return true
		}
	}
	return false
}

// IsFan reports whether a name is one of the 256 over which git spreads its objects.
func IsFan(name string) bool {
	return len(name) == 2 && strings.Trim(name, "0123456789abcdef") == ""
}

// InFan reports whether a path leads to what git spreads its objects over, which is
// not read where programs keep repositories.
func InFan(rel string) bool {
	store := false
	for name := range strings.SplitSeq(rel, "/") {
		if store && IsFan(name) {
			return true
		}
		store = name == "objects"
	}
	return store
}
