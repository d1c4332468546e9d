package namespaces

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernelTrees are those of which each sandbox has its own.
var kernelTrees = [...]string{"/proc", "/sys", "/dev"}

// kernelTree returns the one that a path is in, "" for any other path.
func kernelTree(path string) string {
	for _, tree := range kernelTrees {
		if below(path, tree) {
			return tree
		}
	}
	return ""
}

// ownDevice reports whether a path is of a device that each sandbox has: a node, a terminal,
// in whose place it has one of its own, or a link to what the command has open.
func ownDevice(path string) bool {
	name, ok := strings.CutPrefix(path, "/dev/")
	return ok && (slices.Contains(deviceNodes[:], name) || strings.HasPrefix(name, "pts/") ||
		slices.ContainsFunc(deviceLinks[:], func(l [2]string) bool { return below(path, "/dev/"+l[0]) }))
}

// Own says what the command finds at a path of /dev, /proc or /sys, where no rule
// covers it: tree is "" for any other path. With nested, nothing of /proc and /sys is
// covered. What a process may do with the files of another it says nothing of.
func Own(path string, nested bool) (tree string, read, write bool) {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(dir string) bool { return below(path, dir) })
	}
	tree = kernelTree(path)
	switch tree {
	case "":
		return "", false, false
	case "/dev":
		write = ownDevice(path) || below(path, "/dev/pts") || below(path, "/dev/shm")
		return tree, write || path == tree, write
	case "/proc":
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "/proc/"), "/")
		switch {
		case name == "1" && strings.Count(path, "/") > 2:
			return tree, false, false // it is not dumpable: proc(5)
		case name == "self" || name == "thread-self" || strings.Trim(name, "0123456789") == "":
			return tree, true, path != "/proc/"+name
		case !nested && (in(procMasks[:]) || in(procEmpty[:])):
			return tree, false, false
		}
	case "/sys":
		if !nested && in(sysEmpty[:]) {
			return tree, false, false
		}
	}
	_, err := os.Lstat(filepath.Clean(path)) // the same kernel's
	return tree, err == nil, false
}

// RuntimeDir is private whatever the policy says: to connect(2) to a service's socket no
// mount is an obstacle, and what pccrun tells the command of lies there. A rule may name
// what is in it.
const RuntimeDir = "/run"
