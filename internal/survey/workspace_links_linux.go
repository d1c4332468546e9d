package survey

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// systemTrees are what programs need, wherever a link in a workspace leads.
var systemTrees = [...]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu", "/proc", "/sys", "/dev", "/run"}

// commonTrees may be hidden in part, not as a whole.
var commonTrees = [...]string{"/etc", "/opt", "/var", "/tmp"}

// leads hides what a link of the workspace leads to, where a pattern matches
// the link's name. Whoever can write in the workspace can plant such a link, so
// it must not take away the system, the home or the workspace as a whole: that
// is said, and stays as the policy has it under its own name. What else is
// hidden outside the workspace is said too.
func (f *links) leads(m workspace.Match) bool {
	access := f.atMost(m.Target, m.Rule.Access)
	outside := !Below(m.Target, f.policy.Workspace)
	if access < profiles.Read && f.isWhole(m.Target) {
		f.notes = append(f.notes, m.Path+" leads to "+m.Target+", which this rule does not hide ("+m.Rule.Origin.String()+")")
		return false
	}
	if d := f.policy.Decide(m.Target); !outside && d.Rule.Path == m.Target && d.Rule.Glob == "" {
		return true // named, which beats a pattern, for a directory as for a file
	}
	if outside && access < f.policy.Decide(m.Target).Access {
		f.notes = append(f.notes, m.Target+" is hidden, since "+m.Path+" leads there")
	}
	f.add(m.Target, access, m.Rule.Origin.String())
	return true
}

// isWhole reports whether hiding a path would hide more than files of a
// project: a tree of the system or part of it, what holds the workspace or a
// home, or a device.
func (f *links) isWhole(path string) bool {
	var st unix.Stat_t
	if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return true
	}
	holds := func(tree string) bool { return tree != "" && Below(tree, path) }
	return holds(f.policy.Workspace) || holds(f.policy.Home) || slices.ContainsFunc(f.policy.Homes, holds) ||
		slices.ContainsFunc(commonTrees[:], holds) ||
		slices.ContainsFunc(systemTrees[:], func(tree string) bool { return holds(tree) || Below(path, tree) })
}
