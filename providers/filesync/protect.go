package filesync

import (
	"path/filepath"
	"slices"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace"
)

// Protection returns what holds protected names back, as an apply of an overlay does: what a rule
// names, and a link where a rule's first half leads.
func Protection(rules []profiles.ProtectRule) func(rel string, isLink bool) string {
	const root = "/workspace" // the rules are relative to one, wherever it lies
	rules = slices.DeleteFunc(slices.Clone(rules), func(r profiles.ProtectRule) bool { return r.Review })
	var ways []workspace.Way
	for i := range rules {
		ways = append(ways, workspace.Ways(root, &rules[i])...)
	}
	return func(rel string, isLink bool) string {
		full := filepath.Join(root, rel)
		for i := range rules {
			if rules[i].Matches(root, full) {
				return rules[i].Pattern
			}
		}
		if isLink {
			for i := range ways {
				if ways[i].Matches(root, full) {
					return ways[i].Whole
				}
			}
		}
		return ""
	}
}
