package filesync

import (
	"path"
	"strings"
)

// maxExpansions is how many links a path may go through (path_resolution(7)).
const maxExpansions = 40

// linkTrouble says why a link at rel may not have a target: it would lead out of the top, or into
// a repository's own directory, also through other links. look returns the target of what stands
// at a path, if it is a link. What is not there counts as a directory: it may become one.
func linkTrouble(rel, target string, look func(rel string) (target string, isLink bool)) string {
	if target == "" || len(target) > maxPath || strings.IndexByte(target, 0) >= 0 {
		return "the link has an impossible target"
	}
	var at []string
	if dir := parentOf(rel); dir != "" {
		at = strings.Split(dir, "/")
	}
	rest := target
	for expanded := 0; rest != ""; {
		if rest[0] == '/' {
			return "the link leads outside: " + target
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		rest = strings.TrimLeft(rest, "/")
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			if len(at) == 0 {
				return "the link leads outside: " + target
			}
			at = at[:len(at)-1]
			continue
		case readsAsGit(name):
			return "the link leads into a .git directory: " + target
		case len(at) >= 2*maxDepth:
			return "the link leads too deep: " + target
		}
		if why := nameTrouble(name); why != "" {
			return "where the link leads: " + why
		}
		at = append(at, name)
		next, isLink := look(path.Join(at...))
		if !isLink {
			continue
		}
		if expanded++; expanded > maxExpansions {
			return "" // it leads in a circle, and nowhere
		}
		at = at[:len(at)-1]
		if next == "" || next[0] == '/' {
			return "the link leads outside through another link: " + target
		}
		if rest != "" {
			next += "/" + rest
		}
		rest = next
	}
	return ""
}
