//go:build unix

package task

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/pccrun/pccrun/internal/hint"
)

// FindWorktree returns the linked work tree of a repository that a name means: its path, the last element of that, or the
// branch that is checked out there.
func FindWorktree(ctx context.Context, top, name string) (string, error) {
	r, err := open(ctx, top)
	if err != nil {
		return "", err
	}
	list, err := r.ask(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return "", err
	}
	var found, all []string
	for i, entry := range strings.Split(strings.TrimSpace(list), "\n\n") {
		path, rest, _ := strings.Cut(strings.TrimPrefix(entry, "worktree "), "\n")
		if i == 0 { // the first is the repository's own
			continue
		}
		all = append(all, filepath.Base(path))
		if name == path || name == filepath.Base(path) || strings.Contains("\n"+rest+"\n", "\nbranch refs/heads/"+name+"\n") {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 1:
		// The repository's own files say so, and a run may have written them: what stands there has to say it too.
		if git, common, err := gitDirs(found[0]); err != nil || git == common || CommonDir(found[0]) != r.common {
			return "", hint.Errorf("git worktree list lists them", "worktree %q: %s is no linked work tree of this repository", name, found[0])
		}
		return found[0], nil
	case 0:
		if len(all) == 0 {
			return "", hint.Errorf("git worktree add DIR makes one; without --worktree a task has one of its own", "worktree %q: the repository has no linked work trees", name)
		}
		return "", hint.Errorf("one of "+strings.Join(all, ", "), "no linked work tree %q", name)
	}
	return "", hint.Errorf("name one by its path: "+strings.Join(found, ", "), "worktree %q: there are %d", name, len(found))
}
