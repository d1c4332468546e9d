package filesync

import (
	"path"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/changes"
)

// Protection returns what holds protected names back, as an apply of an overlay does.
func Protection(rules []profiles.ProtectRule) func(rel string, isLink bool) string {
	const root = "/workspace" // the rules are relative to one, wherever it lies
	p := changes.NewProtection(rules, root)
	return func(rel string, isLink bool) string {
		deny, _ := p.Of(path.Join(root, rel), isLink)
		return deny
	}
}
