package workspace

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
)

// A linked worktree may have the protected names that the workspace has, with what these hold:
// git checks them out. All else is quarantined as anywhere, and what was changed afterwards too.
func TestMirrored(t *testing.T) {
	w := newWatchman(t)
	w.sh(`mkdir .vscode .husky out; echo tasks > .vscode/tasks.json; echo more > .vscode/more.json; echo hook > .husky/pre-commit; echo registry > .npmrc
		echo "SECRET=1" > .envrc; ln -s x .pccrun.jsonc; git add -f .vscode .husky .npmrc; git -c user.name=a -c user.email=a@b commit -qm 1`)
	w.begin()
	w.guard.Watch()
	time.Sleep(2 * grace)
	w.sh(`set +e; git worktree add -q trees/a 2>&1; ln -s x trees/a/.pccrun.jsonc; mkdir -p trees/b trees/c/.vscode trees/d trees/e/.husky
		for d in b d e; do echo "gitdir: ../../.git/worktrees/a" > trees/$d/.git; done
		echo tasks > trees/c/.vscode/tasks.json; echo SECRET=1 > trees/b/.envrc; echo regis > trees/b/.npmrc; echo registry > trees/d/x; ln trees/d/x trees/d/.npmrc; mkdir -p trees/d/.vscode; echo tasks > trees/d/.vscode/other.json
		echo hook > trees/e/.husky/pre-commit; sleep 0.1; chmod 755 trees/e/.husky/pre-commit; true`)
	aside := func(name string) {
		t.Helper()
		await.Until(t, name+" is gone", func() bool { _, err := os.Lstat(w.path(name)); return os.IsNotExist(err) })
	}
	for _, name := range []string{"trees/c/.vscode", "trees/b/.envrc", "trees/b/.npmrc", "trees/d/.npmrc", "trees/d/.vscode", "trees/e/.husky", "trees/a/.pccrun.jsonc"} {
		aside(name)
	}
	for _, name := range []string{"trees/a/.vscode/tasks.json", "trees/a/.husky/pre-commit", "trees/a/.npmrc"} {
		require.FileExists(t, w.path(name))
	}
	// A beginning is let be while the run goes on; what is written to a file that stood the test,
	// or beside it, is heard of.
	w.sh(`printf tas > trees/a/.vscode/more.json.new; true`)
	aside("trees/a/.vscode")
	w.sh(`echo evil >> trees/a/.husky/pre-commit`)
	aside("trees/a/.husky")
	w.sh(`printf reg > trees/a/.npmrc`)
	time.Sleep(20 * time.Millisecond)
	require.FileExists(t, w.path("trees/a/.npmrc"))
	require.Contains(t, w.end(), "stashed trees/a/.npmrc", "the beginning is not all")
}

// The post-run check alone, as after a launcher that was killed, believes what is the same.
func TestMirroredAtTheEnd(t *testing.T) {
	w := newWatchman(t)
	w.sh(`mkdir .vscode; echo tasks > .vscode/tasks.json; echo registry > .npmrc; git add -f .; git -c user.name=a -c user.email=a@b commit -qm 1`)
	s := w.begin()
	w.guard.Close()
	w.sh(`git worktree add -q trees/a; git worktree add -q trees/b; echo evil > trees/b/.npmrc`)
	parsed, _, err := ParseStanding(string(s.Append(nil)))
	require.NoError(t, err)
	late, err := NewGuard(parsed, nil, nil, w.stash(), func(Finding) {})
	require.NoError(t, err)
	found, err := late.Finish()
	require.NoError(t, err)
	late.Close()
	require.Contains(t, w.names(found), "stashed trees/b/.npmrc")
	require.NotContains(t, w.names(found), "stashed trees/a/.npmrc")
	require.FileExists(t, w.path("trees/a/.vscode/tasks.json"))
}

// A link in what is compared says what the one says that stood, and leads to what holds the same.
func TestMirroredLinks(t *testing.T) {
	for name, c := range map[string]struct {
		run  string
		want []string
	}{
		"checked out":            {"", nil},
		"another target":         {"ln -sfn ../x trees/a/.vscode/skills", []string{"stashed trees/a/.vscode"}},
		"in the place of a file": {"echo evil > x; ln -sf ../x trees/a/.vscode/tasks.json", []string{"stashed trees/a/.vscode"}},
		"its end is changed":     {"echo evil > trees/a/ai/skill", []string{"stashed trees/a/.vscode"}},
		"a link on its way":      {"mv trees/a/ai x; ln -s ../../x trees/a/ai", []string{"stashed trees/a/.vscode"}},
	} {
		w := newWatchman(t)
		w.sh(`mkdir .vscode ai; echo tasks > .vscode/tasks.json; echo skill > ai/skill; ln -s ../ai .vscode/skills; ln -s /usr/share .vscode/share; git add -f .; git -c user.name=a -c user.email=a@b commit -qm 1`)
		w.begin()
		w.sh("git worktree add -q trees/a; " + c.run)
		require.ElementsMatch(t, c.want, slices.DeleteFunc(w.end(), func(s string) bool { return strings.HasPrefix(s, "review") }), name)
	}
}
