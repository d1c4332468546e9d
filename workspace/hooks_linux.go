package workspace

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// A configuration that stood, the user's own or that of a repository, can name a
// directory of hooks relative to the working tree (core.hooksPath, git-config(1)).
// In a working tree that came into being during the run, of a new repository or
// of one that stood, what lies there was written by the command.

// workingTrees quarantines what git would run in the working trees of repositories that are new.
func (i *inerter) workingTrees(found []suspect) {
	standing := i.guard.standing
	if len(found) == 0 || len(standing.Hooks)+len(standing.Commands) == 0 {
		return
	}
	for _, path := range standing.Placed {
		i.stood[path] = true
	}
	for _, s := range found {
		programs := standing.Own
		if len(standing.Commands) > len(programs) && i.leadsToStood(s) {
			programs = standing.Commands
		}
		for _, tree := range i.newTrees(s) {
			i.workingTree(tree)
			i.commands(tree, programs)
		}
	}
}

// untouched reports whether the run cannot have changed to what a path leads from a working tree: all is pinned that
// leads there, or the workspace's own leads there.
func (i *inerter) untouched(tree, value string, t *trail, whose *inerter) bool {
	if whose != nil && !i.stood[t.end.Path] {
		return false
	}
	pinned := func(path string) bool {
		k := i.at(path)
		return k == nil || slices.ContainsFunc(k.guard.standing.Known, func(n Known) bool {
			var st unix.Stat_t
			return n.Pin && n.Path == path && k.guard.stat(path, &st) == nil && n.is(&st)
		})
	}
	if !slices.ContainsFunc(t.links, func(n Node) bool { return !pinned(n.Path) }) && !slices.ContainsFunc(t.hops, func(path string) bool { return !pinned(path) }) {
		return true
	}
	main, _, err := i.follow(i.guard.peers[0].standing.Root, value)
	return err == nil && !t.proc && main.found && main.end.Path == t.end.Path
}

// newTrees returns the working trees of what is new.
func (i *inerter) newTrees(s suspect) []string {
	path := i.view.abs(s.rel)
	list := []string{workTreeOf(path)}
	if s.hit.name != "" {
		return list
	}
	for _, name := range [...]string{"/config", "/config.worktree"} {
		// Errors are of a configuration that has been quarantined by now.
		b, _ := i.view.readFile(path+name, vcs.MaxConfig)
		for _, tree := range vcs.WorkTrees(vcs.ParseConfig(b)) {
			if t, whose, err := i.follow(path, tree); err == nil && whose != nil {
				list = append(list, t.end.Path)
			}
		}
	}
	return list
}

// workTreeOf returns the working tree of what is named .git, and of a bare
// repository itself: hooks are run there.
func workTreeOf(path string) string {
	if filepath.Base(path) == ".git" {
		return filepath.Dir(path)
	}
	return path
}

// leadsToStood reports whether a directory of git, or what is named .git and leads to one,
// is a repository that stood, or shares one: its configuration counts there.
func (i *inerter) leadsToStood(s suspect) bool {
	gitDir, whose := i.view.abs(s.rel), i
	if s.hit.name != "" {
		t, k, _, err := i.repository(gitDir)
		if err != nil || k == nil || !t.found {
			return false
		}
		gitDir, whose = t.end.Path, k
	}
	if b, err := whose.view.readFile(gitDir+"/commondir", vcs.MaxGitFile); err == nil {
		t, k, err := whose.follow(gitDir, vcs.ParsePathFile(b))
		if err != nil || k == nil {
			return false
		}
		gitDir, whose = t.end.Path, k
	}
	rel, _ := beneath.Path(whose.view.root, gitDir)
	return whose.guard.repos[rel]
}

// commands quarantines the programs of a new working tree that a configuration which stood
// names relative to it, but for those that are as they stood.
func (i *inerter) commands(tree string, programs []string) {
	const why = "git would run it: an existing configuration names it"
	for _, value := range programs {
		t, whose, err := i.follow(tree, value)
		switch {
		case err != nil:
			first, _, _ := strings.Cut(filepath.Clean(value), "/")
			i.aside(filepath.Join(tree, first), "git would run it, through too many links")
		case !t.found || t.end.Kind != File || i.sameProgram(&t, whose) || i.untouched(tree, value, &t, whose):
		case len(t.links) > 0:
			i.aside(t.links[0].Path, why)
		case whose != nil:
			whose.aside(t.end.Path, why)
		}
	}
}

// sameProgram reports whether a program is one that stood where it could not be changed.
// What has its path in another working tree does not count: the command may have written
// that as well.
func (i *inerter) sameProgram(at *trail, whose *inerter) bool {
	if whose == nil {
		return len(at.links) == 0 // outside, by a path that the configuration says
	}
	if i.stood[at.end.Path] {
		return true
	}
	now, err := whose.view.readFile(at.end.Path, maxProgram)
	if err != nil {
		return false
	}
	for _, path := range i.guard.standing.Placed {
		if filepath.Base(path) != filepath.Base(at.end.Path) {
			continue
		}
		whose := i.at(path)
		if whose == nil {
			continue
		}
		if had, err := whose.view.readFile(path, maxProgram); err == nil && bytes.Equal(had, now) {
			return true
		}
	}
	return false
}

// maxProgram bounds a program that is compared.
const maxProgram = 16 << 20

func (i *inerter) workingTree(tree string) {
	for _, value := range i.guard.standing.Hooks {
		t, whose, err := i.follow(tree, value)
		switch {
		case err != nil:
			first, _, _ := strings.Cut(filepath.Clean(value), "/")
			i.aside(filepath.Join(tree, first), "git would find hooks there, through too many links")
		case !t.found || t.end.Kind != Dir || i.stood[t.end.Path] || i.untouched(tree, value, &t, whose):
		case len(t.links) > 0:
			i.aside(t.links[0].Path, "git would find hooks through it in a new working tree")
		case whose != nil:
			whose.hooks(t.end.Path, func(name string) bool { return i.same(t.end.Path, name) })
		}
	}
}

// same reports whether a hook is what stands by its name where hooks stood: a
// worktree of the same repository has a copy of each.
func (i *inerter) same(dir, name string) bool {
	now, err := i.view.readFile(dir+"/"+name, vcs.MaxConfig)
	if err != nil {
		return false
	}
	for stood := range i.stood {
		whose := i.at(stood)
		if whose == nil {
			continue
		}
		if n, _, ok := whose.view.node(stood + "/" + name); !ok || n.Kind != File {
			continue
		}
		if had, err := whose.view.readFile(stood+"/"+name, vcs.MaxConfig); err == nil && bytes.Equal(had, now) {
			return true
		}
	}
	return false
}

// hooks quarantines what is in a directory of hooks, but for samples, which git
// does not run, and what is spared.
func (i *inerter) hooks(path string, spare func(name string) bool) {
	n, _, ok := i.view.node(path)
	switch {
	case !ok:
		return
	case n.Kind != Dir:
		i.aside(path, "git would run its target")
		return
	}
	i.each(path, func(_ int, e os.DirEntry) {
		at := path + "/" + e.Name()
		if n, _, ok := i.view.node(at); !strings.HasSuffix(at, ".sample") && ok && n.Kind != Dir && (n.Kind != File || !spare(e.Name())) {
			i.aside(at, "a hook of a repository that is new")
		}
	})
}
