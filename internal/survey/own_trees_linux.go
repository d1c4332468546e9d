package survey

import (
	"fmt"
	"strings"

	"github.com/pccrun/pccrun/profiles"
)

// owned judges a rule for what the sandbox has of its own. It reports whether nothing is
// to be mounted: what the rule asks is so, or is refused.
func (f *paths) owned(path string, access profiles.Access, why string) (done bool) {
	tree, has := KernelTree(path), OwnDevice(path)
	refuse := func(format string, args ...any) bool {
		f.err = &profiles.Error{Cause: fmt.Sprintf("filesystem %s: %s: %s (%s)", path, access, fmt.Sprintf(format, args...), why)}
		return true
	}
	switch {
	case tree == "":
		return false
	case access >= profiles.Overlay && !(access == profiles.Write && has):
		return refuse("the sandbox replaces %s, and shows nothing of the host's there", tree)
	case access >= profiles.Read:
		if d := f.policy.Decide(tree); path != tree && d.Access < profiles.Read {
			return refuse("%s has the access %s (%s)", tree, d.Access, d.Rule.Origin)
		}
		if tree == "/dev" && !inOwnDev(path) {
			f.notes = append(f.notes, path+" is not shown: the sandbox has no devices of the host ("+why+")")
		}
		return true
	case path == tree || tree == "/sys":
		return false
	case tree == "/dev":
		return !inOwnDev(path) // what the host has in its own is not in the way
	}
	switch name, _, _ := strings.Cut(path[len("/proc/"):], "/"); {
	case strings.Trim(name, "0123456789") == "":
		return refuse("/proc shows no processes of the host")
	case name == "self", name == "thread-self":
		return refuse("/proc/%s differs for each process", name)
	}
	return false
}

// runs adds [RuntimeDir], and refuses a rule that opens the whole of it.
func (f *finder) runs() {
	f.add(RuntimeDir, profiles.Private, "sockets and state of the host's services")
	if d := f.policy.Decide(RuntimeDir); d.Rule.Path == RuntimeDir && d.Access >= profiles.Read && f.err == nil {
		f.err = &profiles.Error{
			Cause: fmt.Sprintf("filesystem %s: %s: always private, because the sockets of the host's services are there (%s)", RuntimeDir, d.Access, d.Rule.Origin),
			Hint:  "name the path in it: --" + d.Access.String() + " " + RuntimeDir + "/NAME",
		}
	}
}
