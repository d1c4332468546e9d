package workspace

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/quarantine"
)

// What git could not remove of a worktree that stood is quarantined when the run is over. One that
// was broken before, or that git did not begin with, stays; what is quarantined can be put back.
func TestRemovedWorktree(t *testing.T) {
	w := newWatchman(t)
	w.sh(`mkdir .vscode; echo tasks > .vscode/tasks.json; git add -f .vscode; git -c user.name=a -c user.email=a@b commit -qm 1
		for d in a b c; do git worktree add -q trees/$d; done; rm .git/worktrees/c/gitdir; echo mine > trees/a/mine`)
	w.begin()
	w.sh(`rm .git/worktrees/a/gitdir trees/a/.vscode/tasks.json`)
	found := w.end()
	require.Contains(t, found, "stashed trees/a")
	require.Contains(t, found, "stashed .git/worktrees/a")
	require.NoFileExists(t, w.path("trees/a/mine"))
	for _, name := range []string{"trees/b/.git", "trees/c/.git", ".git/worktrees/b/gitdir", ".git/worktrees/c/HEAD"} {
		require.FileExists(t, w.path(name))
	}
	list, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	for _, f := range list {
		if f.Why == Removed {
			require.False(t, f.Protected())
			require.NoError(t, f.Restore(w.session))
		}
	}
	text, err := os.ReadFile(w.path("trees/a/mine"))
	require.NoError(t, err)
	require.Equal(t, "mine\n", string(text))
}
