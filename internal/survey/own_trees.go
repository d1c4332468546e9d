package survey

import (
	"slices"
	"strings"
)

// What each sandbox has in its /dev: nodes of the host's, and links.
var (
	DeviceNodes = [...]string{"null", "zero", "full", "random", "urandom", "tty"}
	DeviceLinks = [...][2]string{{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"}}
)

// kernelTrees are those of which each sandbox has its own.
var kernelTrees = [...]string{"/proc", "/sys", "/dev"}

// KernelTree returns the one that a path is in, "" for any other path.
func KernelTree(path string) string {
	for _, tree := range kernelTrees {
		if Below(path, tree) {
			return tree
		}
	}
	return ""
}

// OwnDevice reports whether a path is of a device that each sandbox has: a node, a terminal,
// in whose place it has one of its own, or a link to what the command has open.
func OwnDevice(path string) bool {
	name, ok := strings.CutPrefix(path, "/dev/")
	return ok && (slices.Contains(DeviceNodes[:], name) || strings.HasPrefix(name, "pts/") ||
		slices.ContainsFunc(DeviceLinks[:], func(l [2]string) bool { return Below(path, "/dev/"+l[0]) }))
}

// inOwnDev reports whether a path below /dev is one of the sandbox's own.
func inOwnDev(path string) bool {
	return path == "/dev" || OwnDevice(path) || Below(path, "/dev/pts") || Below(path, "/dev/shm")
}

// RuntimeDir is private whatever the policy says: to connect(2) to a service's socket no
// mount is an obstacle, and what pccrun tells the command of lies there. A rule may name
// what is in it.
const RuntimeDir = "/run"
