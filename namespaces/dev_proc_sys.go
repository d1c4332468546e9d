package namespaces

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/internal/survey"
)

// Own says what the command finds at a path of /dev, /proc or /sys, where no rule
// covers it: tree is "" for any other path. With nested, nothing of /proc and /sys is
// covered. What a process may do with the files of another it says nothing of.
func Own(path string, nested bool) (tree string, read, write bool) {
	in := func(list []string) bool {
		return slices.ContainsFunc(list, func(dir string) bool { return below(path, dir) })
	}
	tree = survey.KernelTree(path)
	switch tree {
	case "":
		return "", false, false
	case "/dev":
		write = survey.OwnDevice(path) || below(path, "/dev/pts") || below(path, "/dev/shm")
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
