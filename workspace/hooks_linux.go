package workspace

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pccrun/pccrun/workspace/beneath"
)

// A configuration that stood, the user's own or that of a repository, can name hooks and programs relative to the
// working tree (core.hooksPath, git-config(1)). In a working tree that came into being during the run, of a new
// repository or of one that stood, the command has written what lies there. What is as in the workspace stays.

// workingTrees quarantines what git would run in working trees that came into being, or of repositories that did.
func (i *gitCheck) workingTrees(list []string) {
	for _, tree := range list {
		for _, value := range i.guard.standing.Hooks {
			if end, kind := i.unlike(tree, value); kind&(fs.ModeDir|fs.ModeSymlink) != 0 {
				if inside(end, tree) {
					end = tree // as by the value "."
				}
				i.foreign = append(i.foreign, Finding{Path: end, Why: "git would run hooks from it in a new working tree"})
			}
		}
		for _, value := range i.guard.standing.Commands {
			if end, kind := i.unlike(tree, value); end != "" && !kind.IsDir() {
				i.foreign = append(i.foreign, Finding{Path: end, Why: "an existing configuration has git run what lies at this path of a working tree"})
			}
		}
	}
}

// unlike returns what lies by a path in a new working tree, or the link on the way that is nearest to its root; "" for
// nothing, and for what is as in the workspace.
func (i *gitCheck) unlike(tree, value string) (end string, kind fs.FileMode) {
	end = filepath.Join(tree, value)
	if i.guard.isPinned(end) || i.guard.peers.near(end) == nil {
		return "", 0
	}
	now := presentView{i.guard}
	for at := end; len(at) > len(tree); at = filepath.Dir(at) {
		if kind, _ := now.Kind(at); kind&fs.ModeSymlink != 0 {
			end = at
		}
	}
	kind, there := now.Kind(end)
	rel, in := beneath.Path(i.guard.standing.Root, end)
	if !there || in && i.guard.sameAsWorkspace(rel, strings.TrimPrefix(end, strings.TrimSuffix(tree, "/")+"/")) {
		return "", 0
	}
	return end, kind
}

// isPinned reports whether a path, or a directory above it, stood and is pinned.
func (g *Guard) isPinned(at string) bool {
	for ; len(at) > len(g.standing.Root); at = path.Dir(at) {
		if rel, _ := beneath.Path(g.standing.Root, at); g.stood[rel] || slices.Contains(g.standing.Executed, at) ||
			slices.ContainsFunc(g.standing.Known, func(k Known) bool { return k.Pin && k.Path == at }) {
			return true
		}
	}
	return false
}
