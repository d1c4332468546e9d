package namespaces

import (
	"slices"
	"strings"
)

// Own returns which of the directories that every sandbox has of its own a path lies in,
// "" for none: what the host has there is neither shown nor in the way. Has reports
// whether it is one of the nodes and links of the sandbox's /dev, or lies in one of the
// two directories there: all of that may be written.
func Own(path string) (tree string, has bool) {
	for _, own := range [...]string{"/proc", "/sys", "/dev"} {
		if below(path, own) {
			tree = own
		}
	}
	name, in := strings.CutPrefix(path, "/dev/")
	if !in {
		return tree, false
	}
	top, _, _ := strings.Cut(name, "/")
	return tree, top == "shm" || top == "pts" || slices.Contains(deviceNodes[:], name) ||
		slices.ContainsFunc(deviceLinks[:], func(link [2]string) bool { return link[0] == name })
}

// RuntimeDir is private whatever the policy says: to connect(2) to a service's socket no
// mount is an obstacle, and what pccrun tells the command of lies there. A rule may name
// what is in it.
const RuntimeDir = "/run"
