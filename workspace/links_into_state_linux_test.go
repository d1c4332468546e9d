package workspace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/internal/fixture"
)

// What lies where nothing is searched gets a name by a link from elsewhere: such a
// link is quarantined, and one that stood is the user's.
func TestGuardShortcuts(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p d node_modules .git/annex; ln -s .git/hooks old; ln -s .git/refs stood; ln -s d/x node_modules/p")
	w.begin()
	w.sh(`git init -q .git/objects/x/r; git -C .git/objects/x/r config core.fsmonitor "touch $PWD/ran;:"; echo x > .git/objects/x/.envrc
		ln -s .git/objects/x sub; ln -s ../old/../objects/x d/by; ln -s "$PWD/.git/refs/later" later; ln -s .git meta; ln -s ../.git/logs/x node_modules/x
		ln -s d fine; ln -s /etc out; ln -s nowhere lost; ln -s ../objects/x .git/refs/y; ln -s / d/root
		mkdir -p .git/annex/objects/a; ln -s .git/annex/objects/a/k annexed; ln -s ../.git/objects/x/.git/annex/y d/not`)
	w.sh("git -C sub/r status; rm ran; test -e sub/.envrc") // the control
	require.Equal(t, []string{"inert .git/objects/x", "inert .git/refs/y", "inert d/by", "inert d/not", "inert later", "inert meta", "inert node_modules/x", "inert sub"}, w.end())
	for _, name := range []string{"old", "stood", "fine", "out", "lost", "d/root", "annexed", "node_modules/p"} {
		_, err := os.Lstat(w.path(name))
		require.NoError(t, err, name)
	}
}

// However long the way is, as far as the kernel goes it is followed; what all links
// take together is bounded, and beyond it they are quarantined.
func TestGuardShortcutsFar(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.sh(`mkdir -p a .git/objects/x; l=$(printf 'a/../%.0s' $(seq 600)); ln -s "${l}.git/objects/x" l99
		for i in $(seq 98 -1 70); do ln -s "${l}l$((i+1))" l$i; done; ln -s a near; test -d l70`)
	require.Len(t, w.end(), 31) // and the directory
	_, err := os.Lstat(w.path("near"))
	require.NoError(t, err)

	w = newWatchman(t)
	w.begin()
	w.sh("mkdir a; ln -s a l1; ln -s a l2")
	w.guard.halt()
	_, err = w.guard.look()
	require.NoError(t, err)
	room := 3
	w.guard.inerter().shortcuts(w.guard.tree, &room)
	require.Equal(t, []string{"inert l2"}, w.end())
}

// Where programs keep what is theirs no names count, and git's objects are not read: a
// link from the workspace gives what lies there a name, and one from beside them too.
func TestGuardShortcutsIntoState(t *testing.T) {
	w := newWatchman(t)
	state := filepath.Dir(w.root) + "/state"
	require.NoError(t, os.Mkdir(state, 0o700))
	w.sh("mkdir -p a/b; ln -s ../../state/p a/b/l")
	guards, _ := w.beside()
	q := Query{Root: state, Protect: append(fixture.Protect(".git/hooks"), fixture.Review(".git/config")...), Aside: true, Kept: true}
	found := scanOf(t, q)
	kept, err := NewGuard(found.Standing("20261121T120000Z-0a0b0c0d", q), found, nil, guards[0].stash, func(f Finding) { w.told <- f })
	require.NoError(t, err)
	guards = Together(guards[0], kept)
	w.sh(`mkdir -p ../state/p/.vscode ../state/objects/pack ../state/objects/info; ln -s ../state/p sub; ln -s "$PWD/../state/later" later; ln -s /etc out
		git init -q ../state/objects/0f/r; git -C ../state/objects/0f/r config core.fsmonitor "touch $PWD/ran;:"
		ln -s objects/0f/r ../state/snapshot; ln -s p ../state/q; ln -s "$PWD" ../state/ws; mv a/b moved`)
	w.sh("git -C ../state/snapshot status; rm ran; test -e sub/.vscode; test -e moved/l/.vscode") // the control
	all, err := guards.Finish()
	require.NoError(t, err)
	guards.Close()
	require.ElementsMatch(t, []string{"inert sub", "inert moved/l", "inert later", "inert " + state + "/snapshot", "inert " + state + "/objects/0f/r"}, w.names(all))
	w.sh("test -L out; test -L ../state/q; test -L ../state/ws")
}

// What stood is known from the index as well, where nothing is read again.
func TestGuardShortcutsStood(t *testing.T) {
	w := newWatchman(t)
	w.query.IndexDir = filepath.Dir(w.root) + "/index"
	w.sh("mkdir d .hg; ln -s ../.git/refs d/old; ln -s / .hg/old; ln -sf ../x .git/lfs")
	time.Sleep(2 * racy)
	scanOf(t, w.query)
	w.begin()
	w.sh("touch d/f .hg/f .git/f; ln -s ../.git/refs d/new; rm d/f .hg/f .git/f")
	require.Equal(t, []string{"inert d/new"}, w.end())
}
