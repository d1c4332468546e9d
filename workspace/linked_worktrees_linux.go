package workspace

import (
	"cmp"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
	"github.com/pccrun/pccrun/workspace/gitdir"
	"github.com/pccrun/pccrun/workspace/quarantine"
	"github.com/pccrun/pccrun/workspace/vcs"
)

// Linked worktrees are pinned like any directory. So `git worktree remove` of one that stood fails inside, and has
// removed a part of it by then: the end of the run finishes it.

// namedInOtherTrees pins what the workspace's git configurations have git execute in linked worktrees that lie outside of it,
// also where that leads into the workspace.
func (s *scan) namedInOtherTrees() error {
	if s.q.Main == nil {
		return nil
	}
	main := &s.q.Main.forGuard
	for _, tree := range s.otherTrees {
		for _, value := range slices.Concat(main.stood.Hooks, main.stood.Commands) {
			rule := profiles.ProtectRule{Pattern: value + " in git's configuration"}
			t, err := s.follow(tree, value)
			switch {
			case err != nil:
				return err
			case t.found && inside(s.root, t.end.Path):
				if s.noteExecuted(t.end.Path); t.end.Kind == Dir {
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

// linkedTree returns the working tree of a .git file that stood and is pinned.
func (k *Known) linkedTree() (dir string, is bool) {
	return filepath.Dir(k.Path), k.Pin && k.Kind == File && filepath.Base(k.Path) == ".git"
}

// inRemovedTree reports whether a path lay in a linked worktree that is gone as a whole.
func (g *Guard) inRemovedTree(path string) bool {
	var st unix.Stat_t
	return slices.ContainsFunc(g.standing.Known, func(k Known) bool {
		dir, linked := k.linkedTree()
		return linked && inside(dir, path) && beneath.Gone(g.stat(dir, &st))
	})
}

// linkedFiles returns the .git files that stood, stand yet, and lead to a linked worktree's part of a repository.
func (gs Guards) linkedFiles(admin string) (list []string) {
	for _, p := range gs {
		for _, k := range p.standing.Known {
			var st unix.Stat_t
			dir, linked := k.linkedTree()
			if !linked || inside(dir, admin) || p.stat(k.Path, &st) != nil || !k.is(&st) { // else the host has put another there
				continue
			}
			if to, err := vcs.GitFile(p.readOwn, k.Path); err == nil && gitdir.ByText(dir, to) == admin {
				list = append(list, k.Path)
			}
		}
	}
	return list
}

// finishRemoval finishes what `git worktree remove` began. A mount keeps git from removing what is pinned, and what is
// around it, and git may have removed by then what says where the worktree is: nobody would find it again. What is left is
// quarantined, so that nothing is lost of what the command could not have removed.
func (g *Guard) finishRemoval() (errs []error) {
	for _, rel := range g.standing.Repos {
		var st unix.Stat_t
		admin := g.abs(rel)
		if _, stood := g.standing.Git[admin+"/gitdir"]; !stood || !beneath.Gone(g.stat(admin+"/gitdir", &st)) && !beneath.Gone(g.stat(admin+"/HEAD", &st)) {
			continue
		}
		for _, file := range g.peers.linkedFiles(admin) {
			if owner, dir := g.near(file), filepath.Dir(file); dir != owner.standing.Root {
				_, err := owner.quarantine(dir, Removed)
				errs = append(errs, err)
			}
		}
		_, err := g.quarantine(admin, Removed)
		errs = append(errs, err)
	}
	return errs
}

// restoreGitdir writes the file by which a repository finds a linked worktree that stood, in the place of one that led
// elsewhere: without it git removes what the repository has of the worktree, its index too.
func (i *gitCheck) restoreGitdir(path string) {
	files := i.guard.peers.linkedFiles(filepath.Dir(path))
	if len(files) != 1 {
		return
	}
	dir, name, err := i.guard.near(path).parent(path)
	if err == nil {
		defer unix.Close(dir)
		defer allowWrites(dir)()
		var st unix.Stat_t
		if err = unix.Fstat(dir, &st); err == nil {
			err = quarantine.WriteNewFor(ownedAs(&st), dir, name, []byte(files[0]+"\n"), 0o644)
		}
	}
	i.fail(path, err)
}
