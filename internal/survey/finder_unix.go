//go:build unix

package survey

import (
	"fmt"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
	"github.com/pccrun/pccrun/profiles"
)

// A finder adds to [links] what the policy and this machine have beside links: rules, trees, tools, the home.
type finder struct {
	links
	layers   map[string]string // see [Home.Layers]
	signing  Signing
	sshTexts []Text // files of the system's that ssh takes from its user only
}

// newFinder returns a finder with room for what the rules name.
func newFinder(policy *profiles.Policy) *finder {
	n := len(policy.Files) + len(policy.Tighten)
	return &finder{links: links{paths: paths{
		policy: policy, places: make([]Place, 0, 2*n),
		seen: make(map[string]int, 2*n), dirs: make(map[string]inode, n), single: make(map[string]bool, n),
	}}}
}

// tools shows what the programs of PATH need, where nothing but the defaults
// hides it, and the command itself.
func (f *finder) tools(t Tools, command []string) {
	show := func(path, why string) {
		if f.policy.Decide(path).Access < profiles.Read && ByDefault(f.policy, path) {
			f.add(path, profiles.Read, why)
		}
	}
	for _, path := range command {
		show(path, "the command")
	}
	for _, tool := range t.Show {
		show(tool.Path, tool.Why)
	}
}

// patterns refuses rules whose pattern would have to be looked for outside the
// workspace: only that is walked, and a rule must not be half kept.
func (f *finder) patterns(table []profiles.FileRule) {
	for i := range table {
		r := &table[i]
		if r.Glob != "" && !Below(r.Path, f.policy.Workspace) && f.err == nil {
			f.err = hint.Errorf("name the directory itself: "+r.Path,
				"filesystem %s: patterns work only in the workspace (%s)", r.Text(), r.Origin)
		}
	}
}

// opensNothing reports whether a built-in rule opens a path of the workspace by which nothing stands, or a link that has
// come since the policy was read: that would say what the rule opens.
func opensNothing(f *paths, path string, d *profiles.Decision) bool {
	if d.Access != profiles.Write || d.Rule.Path != path || path == f.policy.Workspace || !Below(path, f.policy.Workspace) || !strings.HasPrefix(d.Rule.Origin.Source, "built-in ") {
		return false
	}
	_, end, err := f.hops(path)
	return err != nil || end.Path != path || end.Node == Absent
}

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
