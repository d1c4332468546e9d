package workspace

import (
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/vcs"
)

// removed finishes what `git worktree remove` began. A mount on a protected name that stood keeps
// git from removing it and what is around it, and git has by then removed what says where the
// worktree is: nobody would find it again. What is left goes to the stash, so that nothing is lost
// of what the command could not have removed.
func (g *Guard) removed() (errs []error) {
	for file, tree := range g.standing.Trees { // of one in another tree, where something stayed pinned
		var st unix.Stat_t
		other := g.peers.near(file)
		pinned := other != nil && slices.ContainsFunc(other.standing.Known, func(k Known) bool { return k.Pin && k.Path == file })
		if pinned && other.stat(file, &st) == nil && g.stat(tree.Admin, &st) == unix.ENOENT {
			_, err := other.aside(filepath.Dir(file), Removed)
			errs = append(errs, err)
		}
	}
	for _, rel := range g.standing.Repos {
		admin := g.abs(rel)
		var st unix.Stat_t
		if filepath.Base(filepath.Dir(admin)) != "worktrees" || g.stat(admin, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || !g.touched(&st) ||
			g.stat(admin+"/gitdir", &st) != unix.ENOENT {
			continue
		}
		for _, other := range g.peers {
			for _, tree := range other.standing.Repos {
				file := other.abs(tree)
				text, err := other.content(file)
				if filepath.Base(file) != ".git" || filepath.Dir(file) == other.standing.Root || err != nil {
					continue
				}
				to, err := vcs.ParseGitFile(text)
				if err == nil && !filepath.IsAbs(to) {
					to = filepath.Join(filepath.Dir(file), to)
				}
				if err != nil || filepath.Clean(to) != admin || other.stat(file, &st) != nil || other.touched(&st) {
					continue
				}
				_, err = other.aside(filepath.Dir(file), Removed)
				errs = append(errs, err)
			}
		}
		_, err := g.aside(admin, Removed)
		errs = append(errs, err)
	}
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}
