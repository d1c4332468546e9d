package filesync

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// maxExpansions is how many links a path may go through (path_resolution(7)), and maxSteps how many names: a target that comes from
// a sandbox is not to take hours.
const (
	maxExpansions = 40
	maxSteps      = 8 * maxDepth
)

// checkLink refuses a link at rel whose target lies outside of the top, or in a repository's own directory, also
// through other links. readlink returns the target of what is at a path, if it is a link. What is not there counts
// as a directory: it may become one.
func checkLink(rel, target string, readlink func(rel string) (target string, isLink bool)) error {
	if target == "" || len(target) > maxPath || strings.IndexByte(target, 0) >= 0 {
		return errors.New("the link has an impossible target")
	}
	var at []string
	if dir := parentOf(rel); dir != "" {
		at = strings.Split(dir, "/")
	}
	rest := target
	for expanded, steps := 0, 0; rest != ""; steps++ {
		if rest[0] == '/' {
			return fmt.Errorf("the link leads outside: %s", target)
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		rest = strings.TrimLeft(rest, "/")
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			if len(at) == 0 {
				return fmt.Errorf("the link leads outside: %s", target)
			}
			at = at[:len(at)-1]
			continue
		case readsAsGit(name):
			return fmt.Errorf("the link leads into a .git directory: %s", target)
		case len(at) >= 2*maxDepth || steps > maxSteps:
			return fmt.Errorf("the link leads too deep: %s", target)
		}
		if err := checkName(name); err != nil {
			return fmt.Errorf("where the link leads: %w", err)
		}
		at = append(at, name)
		here := path.Join(at...)
		if len(here) > maxPath {
			return fmt.Errorf("the link leads too deep: %s", target)
		}
		next, isLink := readlink(here)
		if !isLink {
			continue
		}
		if expanded++; expanded > maxExpansions {
			return nil // it leads in a circle, and nowhere
		}
		at = at[:len(at)-1]
		if next == "" || next[0] == '/' {
			return fmt.Errorf("the link leads outside through another link: %s", target)
		}
		if rest != "" {
			next += "/" + rest
		}
		rest = next
	}
	return nil
}
