package workspace

import (
	"cmp"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// Linked worktrees are pinned like any directory. So `git worktree remove` of one that stood fails inside, and has
// removed a part of it by then: the end of the run finishes it.

// linkedTree notes the directory that a repository has for a linked worktree, if git can find both, and the worktree's .git
// file, "" where the command cannot write.
func (s *scan) linkedTree(admin, file string, ino uint64) {
	_, _, head := s.node(admin + "/HEAD")
	if _, _, found := s.node(admin + "/gitdir"); found && head && ofWorktree(admin) && !inside(filepath.Dir(file), admin) {
		s.trees[admin] = LinkedTree{file, ino}
	}
}

// namedBeside pins what the workspace's git configurations have git execute in linked worktrees that lie outside of it,
// also where that leads into the workspace.
func (s *scan) namedBeside() error {
	if s.q.Main == nil {
		return nil
	}
	main := &s.q.Main.after
	for _, tree := range s.besides {
		for _, value := range slices.Concat(main.stood.Hooks, main.stood.Commands) {
			rule := profiles.ProtectRule{Pattern: value + " in git's configuration"}
			t, err := s.follow(tree, value)
			switch {
			case err != nil:
				return err
			case t.found && inside(s.root, t.end.Path):
				if s.place(t.end.Path); t.end.Kind == Dir {
					err = s.programs(t.end.Path, rule)
				}
			case t.found && inside(main.rules.root, t.end.Path):
				err = s.pin(t.end.Path, rule)
			}
			if err = cmp.Or(err, s.leadsTo(tree, value, rule)); err != nil {
				return err
			}
		}
	}
	return nil
}

// dissolved reports whether a path lay in a linked worktree that is gone as a whole, or in the directory that the
// repository has for it.
func (g *Guard) dissolved(path string) bool {
	var st unix.Stat_t
	for admin, tree := range g.standing.Trees {
		for _, dir := range [...]string{filepath.Dir(tree.File), admin} {
			if inside(dir, path) && beneath.Gone(g.stat(dir, &st)) {
				return true
			}
		}
	}
	return false
}

// removed finishes what `git worktree remove` began. A mount keeps git from removing what is pinned, and what is around
// it, and git may have removed by then what says where the worktree is: nobody would find it again. What is left is
// quarantined, so that nothing is lost of what the command could not have removed.
func (g *Guard) removed() (errs []error) {
	for admin, tree := range g.standing.Trees {
		var st unix.Stat_t
		owner := g.peers.near(admin)
		if owner == nil || !beneath.Gone(owner.stat(admin+"/gitdir", &st)) && !beneath.Gone(owner.stat(admin+"/HEAD", &st)) {
			continue
		}
		if tree.File != "" && g.stat(tree.File, &st) == nil && st.Ino == tree.Ino && !g.touched(&st) { // else the host has put another there
			_, err := g.aside(filepath.Dir(tree.File), Removed)
			errs = append(errs, err)
		}
		_, err := owner.aside(admin, Removed)
		errs = append(errs, err)
	}
	return errs
}
