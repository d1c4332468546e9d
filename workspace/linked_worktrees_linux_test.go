package workspace

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

// What a repository has of a worktree that is lost with the run goes, and neither one that stood nor one that
// is there, or in a place that is kept.
func TestGuardRemovesLostTrees(t *testing.T) {
	w := newWatchman(t)
	top := filepath.Dir(w.root)
	w.sh("git -c user.name=x -c user.email=x@x commit -qm x --allow-empty; git worktree add -q ../old; rm -rf ../old")
	w.begin()
	w.sh("for d in lost kept there; do git worktree add -q ../$d; done; rm -rf ../lost ../kept")
	w.guard.TreeLost = func(tree, admin string) bool {
		require.Equal(t, w.path(".git/worktrees/"+filepath.Base(tree)), admin)
		return tree != top+"/kept"
	}
	require.Equal(t, []string{"inert .git/worktrees/lost"}, w.end())
	require.NoDirExists(t, w.path(".git/worktrees/lost"))
	for _, name := range []string{"old", "kept", "there"} {
		require.DirExists(t, w.path(".git/worktrees/"+name))
	}
}

// A working tree that a run makes of a repository which stood, or leads to one, has
// nothing that its configuration would have git run there: git itself says so, after one
// run or two.
func TestGuardWaysToConfigurationsThatStood(t *testing.T) {
	const (
		program = `program() { mkdir -p $1; printf '#!/bin/sh\ntouch '$TOP'/ran\n' > $1/fsm; chmod +x $1/fsm; }; `
		hook    = `hook() { mkdir -p $1; printf '#!/bin/sh\ntouch '$TOP'/ran\n' > $1/pre-commit; chmod +x $1/pre-commit; }; `
		monitor = "git config core.fsmonitor ./tools/fsm; git commit -qm x --allow-empty; "
		hooks   = "git config core.hooksPath .githooks; git commit -qm x --allow-empty; "
		share   = "mkdir -p x; echo 'ref: refs/heads/x' > x/HEAD; "
		commit  = "git commit -qm x --allow-empty"
		status  = "git status"
	)
	for name, c := range map[string]struct {
		user, before string
		runs         []string
		where, use   string
		want         string
	}{
		"a directory that shares it":            {"", monitor, []string{"mkdir -p r/.git; echo 'ref: refs/heads/x' > r/.git/HEAD; echo ../../.git > r/.git/commondir; program r/tools"}, "r", status, "inert r/.git/commondir inert r/tools/fsm"},
		"of another name":                       {"", "git config alias.x '!./tools/fsm'; git commit -qm x --allow-empty; ", []string{share + "echo ../.git > x/commondir; program x/tools"}, "x", "git x", "inert x/commondir inert x/tools/fsm"},
		"a program that another repository has": {"", "git init -q a; " + monitor, []string{"program a/tools; git worktree add -q r; program r/tools"}, "r", status, "inert r/tools/fsm"},
		"hooks that another repository has":     {"", "git init -q a; " + hooks, []string{"hook a/.githooks; git worktree add -q r; hook r/.githooks"}, "r", commit, "inert r/.githooks"},
		"hooks beside a worktree's own":         {"", hooks + "git worktree add -q a", []string{"hook .git/worktrees/a/.githooks; git worktree add -q r; hook r/.githooks"}, "r", commit, "inert .git/worktrees/a/.githooks inert r/.githooks"},
		"a link to another repository's":        {"", "git init -q a; " + hooks, []string{"hook a/.githooks; git worktree add -q r; ln -s ../a/.githooks r/.githooks"}, "r", commit, "inert r/.githooks"},
		"a .git file that led to nothing":       {"", monitor, []string{"mkdir sub; echo gitdir: ../x > sub/.git", share + "echo ../.git > x/commondir; program sub/tools"}, "sub", status, "inert sub/.git inert sub/.git inert x/commondir"},
		"a link that led to nothing":            {"", monitor, []string{"mkdir sub; ln -s ../x sub/.git", share + "echo ../.git > x/commondir; program sub/tools"}, "sub", status, "inert sub/.git inert sub/.git inert x/commondir"},
		"one that stood, to hooks":              {"", hooks + "mkdir sub; echo gitdir: ../x > sub/.git", []string{share + "echo ../.git > x/commondir; hook sub/.githooks"}, "sub", commit, "stashed x"},
		"the user's own hooks, by one":          {"[core]\nhooksPath = .githooks\n", "mkdir sub; echo gitdir: ../x > sub/.git", []string{"git init -q t; mv t/.git x; hook sub/.githooks"}, "sub", commit, "stashed x"},
		"the user's own program, by one":        {"[core]\nfsmonitor = ./tools/fsm\n", "mkdir sub; ln -s ../x sub/.git", []string{"git init -q t; mv t/.git x; program sub/tools"}, "sub", status, "stashed x"},
		"a commondir that led to nothing":       {"", monitor, []string{"mkdir sub; echo gitdir: ../x > sub/.git; " + share + "echo ../s > x/commondir", "ln -s .git s; program sub/tools"}, "sub", status, "inert sub/.git inert x/commondir"},
		"one that led to no repository":         {"", monitor, []string{"mkdir sub s; echo gitdir: ../x > sub/.git; " + share + "echo ../s > x/commondir", "rmdir s; ln -s .git s; program sub/tools"}, "sub", status, "inert sub/.git inert x/commondir"},
		"the user's own program":                {"[core]\nfsmonitor = ./tools/fsm\n", "", []string{"git init -q r; program r/tools"}, "r", status, "inert r/tools/fsm"},
		"in another place":                      {"[core]\nfsmonitor = ./tools/fsm\n", "", []string{"git init -q r; program r/tools"}, "r", status, "inert r/tools/fsm"},
		"the user's own script":                 {"[core]\nfsmonitor = sh tools/fsm\n", "", []string{"git init -q r; program r/tools"}, "r", status, "inert r/tools/fsm"},
		"a script that was not there":           {"", "git config core.fsmonitor 'sh tools/fsm'", []string{"program tools"}, ".", status, "stashed tools/fsm"},
		"a way out that came with a directory":  {"", "git init -q ../other; git -C ../other config core.fsmonitor ./tools/fsm", []string{"mkdir sub d; echo gitdir: ../x/other/.git > sub/.git; ln -s $TOP/other d/other", "mv d x; program sub/tools"}, "sub", status, "inert sub/.git"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				top := filepath.Dir(w.root)
				global := top + "/home/.gitconfig"
				if w.query.Home = top + "/home"; name == "in another place" {
					w.query.XDG, global = top+"/xdg", top+"/xdg/git/config"
				}
				fixture.Write(t, global, c.user)
				const as = "export GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x; "
				w.sh(as + c.before)
				var found []string
				for _, run := range c.runs {
					w.begin()
					w.sh(as + "TOP=" + top + "; " + program + hook + run)
					if guarded {
						found = append(found, w.end()...)
					} else {
						w.guard.Close()
					}
				}
				if guarded {
					require.Equal(t, c.want, strings.Join(found, " "))
				}
				cmd := exec.Command("sh", "-c", as+c.use)
				cmd.Dir = w.path(c.where)
				cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+global, "GIT_CONFIG_SYSTEM=/dev/null")
				out, _ := cmd.CombinedOutput()
				_, err := os.Lstat(top + "/ran")
				require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard git runs it: %s", out)
			}
		})
	}
}

// A repository that the host removes during a run, and the command makes anew, is new.
func TestGuardRepositoryMadeAnew(t *testing.T) {
	for name, c := range map[string]struct{ run, want string }{
		"made":  {"git init -q c; printf '#!/bin/sh\ntouch '$PWD'/ran\n' > c/.git/hooks/pre-commit; chmod +x c/.git/hooks/pre-commit", "inert c/.git/hooks/pre-commit"},
		"moved": {"mkdir c; mv old c/.git", "inert c/.git/hooks/pre-commit"},
	} {
		for _, guarded := range []bool{false, true} {
			w := newWatchman(t)
			w.sh("git init -q c; rm -rf c/.git/hooks/*; cp -r c/.git old; rm old/HEAD; printf '#!/bin/sh\ntouch '$PWD'/ran\n' > old/hooks/pre-commit; chmod +x old/hooks/pre-commit")
			w.begin()
			w.sh("rm -rf c; cp .git/HEAD old; " + c.run)
			if guarded {
				require.Contains(t, w.end(), c.want, name)
			} else {
				w.guard.Close()
			}
			w.sh(asUser + "cd c; git commit -qm x --allow-empty")
			_, err := os.Lstat(w.path("ran"))
			require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard git runs it: %s", name)
		}
	}
}

// What the host removes as a whole, as a second run does with its worktrees and clones, is
// nothing to hear of; a pinned file that it takes out of one is.
func TestGuardRemovedByTheHost(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "git init -q c; git worktree add -q a; git init -q d; echo x > .npmrc")
	w.begin()
	const removal = "rm -rf c; git worktree remove a; rm d/.git/config .npmrc"
	w.sh(removal)
	require.Equal(t, []string{"review .npmrc", "review d/.git/config"}, w.end())

	// The control: of names that nobody protects none is told.
	w = newWatchman(t)
	w.query.Protect = fixture.Review(".git/config", ".git/hooks")
	w.sh(asUser + "git init -q c; git worktree add -q a; git init -q d; echo x > .npmrc")
	w.begin()
	w.sh(removal)
	require.NotContains(t, w.end(), "review .npmrc")
}

// Where a linked worktree is, its repository says: git worktree repair makes one there.
func TestGuardWorktreesElsewhere(t *testing.T) {
	const forge = "mkdir -p .git/worktrees/e; cp .git/HEAD .git/worktrees/e; echo ../.. > .git/worktrees/e/commondir; echo $TOP/%s/.git > .git/worktrees/e/gitdir"
	for name, c := range map[string]struct {
		before, run string
		want        []string
	}{
		"new":             {"", strings.ReplaceAll(forge, "%s", "outside"), []string{"inert .git/worktrees/e/gitdir"}},
		"changed":         {"git worktree add -q a", "echo $TOP/outside/.git > .git/worktrees/a/gitdir", []string{"inert .git/worktrees/a/gitdir"}},
		"of another":      {"git worktree add -q $TOP/theirs", strings.ReplaceAll(forge, "%s", "theirs"), []string{"inert .git/worktrees/e/gitdir"}},
		"gone by the end": {"", strings.ReplaceAll(forge, "%s", "tmp"), nil},
		"the user's":      {"git worktree add -q $TOP/theirs", "cp .git/worktrees/theirs/gitdir x; cat x > .git/worktrees/theirs/gitdir; git worktree add -q b", nil},
	} {
		for _, guarded := range []bool{false, true} {
			w := newWatchman(t)
			top := "TOP=" + filepath.Dir(w.root) + "; "
			w.sh(asUser + top + "git commit -q --allow-empty -m x; mkdir $TOP/outside; " + c.before)
			w.begin()
			w.sh(top + c.run)
			if guarded {
				require.Equal(t, c.want, w.end(), name)
			} else {
				w.guard.Close()
			}
			w.sh("git worktree repair > /dev/null 2>&1 || true")
			wrote := exec.Command("sh", "-c", "test -e ../outside/.git || grep -s worktrees/e ../theirs/.git")
			wrote.Dir = w.root
			require.Equal(t, !guarded && c.want != nil, wrote.Run() == nil, "control: without a guard git writes there: %s", name)
		}
	}
}

// A .git link that came just before the run is not the run's, wherever it leads.
func TestGuardLinkJustBefore(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWatchman(t)
		w.sh("git init -q ../outside; mkdir sub")
		w.begin()
		w.guard.Close()
		w.sh("ln -s ../../outside/.git sub/.git")
		found := scanOf(t, w.query)
		s := found.Standing("20261121T120000Z-0a0b0c0d", w.query)
		var err error
		w.guard, err = NewGuard(s, found, nil, w.stash(), func(Finding) {})
		require.NoError(t, err)
		w.guard.remember()
		if again {
			w.sh("rm sub/.git; ln -s $PWD/../outside/.git sub/.git")
		}
		require.Equal(t, again, slices.Contains(w.end(), "inert sub/.git"), "the control: the run has made one that says something else")
	}
}

// What git executes in a linked worktree is pinned, and what holds that: in the workspace, beside it, and where a worktree
// beside it leads into the workspace.
func TestLinkedTreePinned(t *testing.T) {
	const own = ".git .npmrc .vscode tools/fsm .husky"
	for name, c := range map[string]struct {
		dir, before     string
		pinned, anchors string // in the worktree
		main, tops      string // in the workspace, beside what stands there anyway
	}{
		"in the workspace":             {"trees", "", own, "tools", ".git/worktrees/a/commondir", "trees trees/a .git/worktrees .git/worktrees/a"},
		"beside it":                    {"../beside", "", own, "tools", ".git/worktrees/a/commondir", ".git/worktrees .git/worktrees/a"},
		"by a link into the workspace": {"../beside", "mkdir -p of/shared; cp tools/fsm of/shared; rm -r $T/tools; ln -s $PWD/of/shared $T/tools", ".git .npmrc .vscode tools .husky", "", ".git/worktrees/a/commondir of/shared/fsm", ".git/worktrees .git/worktrees/a of of/shared"},
		"the control, no worktree":     {"../beside", "git worktree remove --force $T; git worktree prune", "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			top := filepath.Dir(w.root)
			tree := filepath.Join(w.root, c.dir, "a")
			w.sh(asUser + `mkdir tools .vscode .husky ../beside; for f in tools/fsm .npmrc .vscode/tasks.json .husky/pre-commit; do echo x > $f; done
				git config core.fsmonitor ./tools/fsm; git config core.hooksPath .husky; git add -f .; git commit -qm 1
				T=` + tree + "; git worktree add -q $T; " + c.before)
			main := scanOf(t, w.query)
			found := []*Found{main, scanOf(t, Query{Root: top + "/beside", Protect: w.query.Protect, Aside: true, Main: main})}
			pinned, anchored := map[string]bool{}, map[string]bool{}
			for _, f := range found {
				for _, p := range f.Pins {
					pinned[p.Path] = true
				}
				for _, path := range f.Anchors {
					anchored[path] = true
				}
			}
			for _, list := range []struct {
				are         map[string]bool
				names, root string
			}{{pinned, c.pinned, tree}, {anchored, c.anchors, tree}, {pinned, c.main, w.root}, {anchored, c.tops, w.root}} {
				for _, name := range strings.Fields(list.names) {
					require.True(t, list.are[list.root+"/"+name], "%s: %v", name, list.are)
				}
			}
			require.Equal(t, c.pinned != "", anchored[tree] || strings.Contains(strings.Join(slices.Collect(maps.Keys(pinned)), "\n"), tree+"/"))
		})
	}
}

// What `git worktree remove` could not remove of a worktree that stood is quarantined when the run is over, in the
// workspace and beside it, also after a kill. One that was broken before stays, and so does what the host has put in the
// place of one; what is quarantined can be put back.
func TestRemovedWorktree(t *testing.T) {
	for _, killed := range []bool{false, true} {
		w := newWatchman(t)
		beside := filepath.Dir(w.root) + "/beside"
		w.sh(asUser + `git commit -q --allow-empty -m 1; mkdir ../beside
			for d in trees/a trees/b trees/c trees/e ../beside/d ../outside; do git worktree add -q $d; done; rm .git/worktrees/c/gitdir; echo mine > trees/a/mine`)
		guards, records := w.beside(beside)
		w.sh(`rm .git/worktrees/a/gitdir .git/worktrees/d/HEAD .git/worktrees/outside/HEAD; touch .git/worktrees/c/x; rm -r .git/worktrees/e trees/e; mkdir trees/e; echo host > trees/e/.git`)
		if killed {
			guards = w.killed(guards, records)
		}
		found, err := guards.Finish()
		require.NoError(t, err)
		guards.Close()
		said := w.names(found)
		for _, path := range []string{"trees/a", ".git/worktrees/a", ".git/worktrees/d", ".git/worktrees/outside", beside + "/d"} {
			require.Contains(t, said, "stashed "+path)
			if !filepath.IsAbs(path) {
				path = w.path(path)
			}
			require.NoDirExists(t, path)
		}
		for _, name := range []string{"trees/b/.git", "trees/c/.git", ".git/worktrees/b/gitdir", ".git/worktrees/c/HEAD", "trees/e", "../outside/.git"} {
			_, err := os.Lstat(w.path(name))
			require.NoError(t, err, name)
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
}

// The file by which a repository finds a linked worktree may be written as `git worktree repair` does. One that leads
// elsewhere is quarantined, and of a worktree that stood its own takes the place: else git removes what it has of it.
func TestGuardGitdirRewritten(t *testing.T) {
	for name, c := range map[string]struct{ before, run, where, want string }{
		"repaired":            {"mv trees/a trees/moved", "git worktree repair trees/moved", "trees/moved", ""},
		"the same":            {"", "echo $PWD/trees/a/.git > .git/worktrees/a/gitdir", "trees/a", ""},
		"to no worktree":      {"", "mkdir x; echo $PWD/x/.git > .git/worktrees/a/gitdir", "trees/a", "inert .git/worktrees/a/gitdir"},
		"to another's":        {"git worktree add -q trees/b", "echo $PWD/trees/b/.git > .git/worktrees/a/gitdir", "trees/a", "inert .git/worktrees/a/gitdir"},
		"to a file of its":    {"", "echo $PWD/trees/a/README > .git/worktrees/a/gitdir", "trees/a", "inert .git/worktrees/a/gitdir"},
		"in what is closed":   {"", "mkdir x; echo $PWD/x/.git > .git/worktrees/a/gitdir; chmod 511 .git/worktrees/a", "trees/a", "inert .git/worktrees/a/gitdir"},
		"a link in its place": {"", "ln -sf ../../HEAD .git/worktrees/a/gitdir", "trees/a", "inert .git/worktrees/a/gitdir"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "git commit -q --allow-empty -m 1; git worktree add -q trees/a; " + c.before)
			w.begin()
			w.sh(c.run)
			require.Equal(t, c.want, strings.Join(w.end(), " "))
			text, err := os.ReadFile(w.path(".git/worktrees/a/gitdir"))
			require.NoError(t, err)
			require.Equal(t, w.path(c.where)+"/.git\n", string(text))
			w.sh("git -C " + c.where + " status --short; git worktree prune; test -e .git/worktrees/a/HEAD")
		})
	}
}
