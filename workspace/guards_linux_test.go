package workspace

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/profiles"
	"github.com/pccrun/pccrun/workspace/beneath"
)

// beside begins guards over the workspace and over other trees, of which those in
// it and in each other are closed to the ones around.
func (w *watchman) beside(roots ...string) (guards Guards, records []*Standing) {
	time.Sleep(2 * racy)
	stash := w.stash()
	all := append([]string{w.root}, roots...)
	var main *Found
	for i, root := range all {
		q := w.query
		q.Trees = roots
		if i > 0 {
			q = Query{Root: root, Protect: w.query.Protect, Aside: true, Main: main}
			for _, other := range all {
				if rest, in := beneath.Path(root, other); in && rest != "" {
					q.Files = append(q.Files, profiles.FileRule{Path: other, Access: profiles.Private})
				}
			}
		}
		found := scanOf(w.t, q)
		s := found.Standing("20261121T120000Z-0a0b0c0d", q)
		if i == 0 {
			main = found
		} else {
			s.AddCommands(records[0])
		}
		g, err := NewGuard(s, found, nil, stash, func(f Finding) { w.told <- f })
		require.NoError(w.t, err)
		guards, records = append(guards, g), append(records, s)
	}
	return Together(guards...), records
}

// killed ends guards as the kill of their launcher does, and returns those of the next one.
func (w *watchman) killed(guards Guards, records []*Standing) Guards {
	guards.Close()
	stash := w.stash()
	for i := range guards {
		s, _, err := ParseStanding(string(records[i].Append(nil)))
		require.NoError(w.t, err)
		guards[i], err = NewGuard(s, nil, nil, stash, func(Finding) {})
		require.NoError(w.t, err)
	}
	return Together(guards...)
}

// A repository in one tree may lead to one in another: what is new there is made
// inert by the guard that looks after it, and what stood stays.
func TestGuardsLeadToEachOther(t *testing.T) {
	w := newWatchman(t)
	other := filepath.Dir(w.root) + "/other"
	w.sh("git init -q ../other; git -C ../other config core.fsmonitor mine; git -C ../other -c user.name=u -c user.email=u commit -q --allow-empty -m x; git -c user.name=u -c user.email=u commit -q --allow-empty -m x; echo x > ../other/.git/hooks/post-merge")
	guards, _ := w.beside(other)
	w.sh(`git worktree add -q ../other/tree; git -C ../other worktree add -q ../ws/tree
		mkdir a b; echo "gitdir: $PWD/../other/odd" > a/.git
		mkdir -p ../other/odd/refs ../other/odd/hooks; echo ref: refs/heads/main > ../other/odd/HEAD; ln -s ../.git/objects ../other/odd/objects
		printf '[core]\n\tfsmonitor = evil\n' > ../other/odd/config
		echo "gitdir: /nowhere" > b/.git; echo x > ../other/.envrc`)
	found, err := guards.Finish()
	require.NoError(t, err)
	guards.Close()
	require.ElementsMatch(t, []string{"stashed " + other + "/.envrc", "inert " + other + "/odd/config", "inert " + other + "/odd/objects", "inert a/.git", "inert b/.git"}, w.names(found))
	w.sh("git -C ../other/tree status; git -C tree status; test -e ../other/.git/hooks/post-merge; git -C ../other config core.fsmonitor")
}

// The workspace in a tree is looked after by its own guard, and by no other.
func TestGuardsWithin(t *testing.T) {
	w := newWatchman(t)
	top := filepath.Dir(w.root)
	w.sh("mkdir ../d; git config core.fsmonitor mine")
	guards, records := w.beside(top, top+"/d")
	require.Equal(t, guards[0], guards.near(w.root+"/x"))
	require.Equal(t, guards[1], guards.near(top+"/x"))
	require.Nil(t, guards.near("/nowhere"))
	for _, r := range records[1:] {
		require.Empty(t, r.Repos)
		require.Empty(t, r.Known)
	}
	w.sh(`echo x > .envrc; echo x > ../.envrc; echo x > ../d/.envrc; mkdir ../e; echo "gitdir: ../ws/.git" > ../e/.git; git worktree add -q ../tree`)
	found, err := guards.Finish()
	require.NoError(t, err)
	guards.Close()
	require.ElementsMatch(t, []string{"stashed .envrc", "stashed " + top + "/.envrc", "stashed " + top + "/d/.envrc", "inert " + top + "/e/.git"}, w.names(found))
	w.sh("git config core.fsmonitor; git -C ../tree status")
}

// Records of one run stand one behind the other, and one that is cut short says so,
// wherever that is but at the end of one.
func TestParseStandings(t *testing.T) {
	w := newWatchman(t)
	other := filepath.Dir(w.root) + "/other"
	require.NoError(t, os.Mkdir(other, 0o700))
	guards, records := w.beside(other)
	guards.Close()
	text := string(records[1].Append(records[0].Append(nil)))
	list, rest, err := ParseStandings(text + "123\n")
	require.NoError(t, err)
	require.Equal(t, "123\n", rest)
	require.Len(t, list, 2)
	require.Equal(t, other, list[1].Root)
	require.Equal(t, text, string(list[1].Append(list[0].Append(nil))))
	one := len(records[0].Append(nil))
	for n := range text {
		_, _, err := ParseStandings(text[:n])
		if n == one {
			require.NoError(t, err)
			continue
		}
		require.True(t, CutShort(err), "%d: %v", n, err)
	}
}

// Where programs keep repositories, the 256 directories over which git spreads its
// objects are not read, and everything else is.
func TestKept(t *testing.T) {
	w := newWatchman(t)
	w.sh("git init -q --bare a; mkdir a/objects/0f a/objects/pack/0f a/objects/0g a/0f objects objects/0f")
	dirs := scanOf(t, w.query).Stats.Dirs
	w.query.Kept = true
	require.Equal(t, dirs-1, scanOf(t, w.query).Stats.Dirs)
	w.begin()
	w.sh("for d in a/objects/0g a/objects/pack/0f a/0f objects/0f; do git init -q $d/x; git -C $d/x config core.fsmonitor evil; done")
	require.Equal(t, []string{"inert a/0f/x/.git/config", "inert a/objects/0g/x/.git/config", "inert a/objects/pack/0f/x/.git/config", "inert objects/0f/x/.git/config"}, w.end())
}

// Trees are watched side by side, but for those of which the post-run check is enough.
func TestGuardsWatch(t *testing.T) {
	w := newWatchman(t)
	top := filepath.Dir(w.root)
	w.sh("mkdir ../a ../b")
	guards, _ := w.beside(top+"/a", top+"/b")
	guards[2].Last = true
	require.Equal(t, 2, guards.watching())
	guards.Watch()
	w.sh("for d in . ../a ../b; do for i in $(seq 40); do mkdir $d/$i; echo x > $d/$i/.envrc; done; done")
	for range 80 {
		require.NotContains(t, await.Receive(t, "it is quarantined", w.told).Path, top+"/b/")
	}
	require.FileExists(t, top+"/b/40/.envrc")
	found, err := guards.Finish()
	require.NoError(t, err)
	guards.Close()
	require.Len(t, found, 120)
	require.NoFileExists(t, top+"/b/40/.envrc")
}
