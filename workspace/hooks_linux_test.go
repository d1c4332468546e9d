package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
)

// What a worktree has of programs as they stood stays, and so does a directory that has the name of one.
func TestGuardProgramsAsTheyStood(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + `mkdir tools; echo exit 0 > tools/fsm; chmod +x tools/fsm; ln -s fsm tools/two; git add tools; git commit -qm x; git config core.fsmonitor './tools/fsm x/y'; git config core.pager ./tools/two; git config alias.l '!less'`)
	w.begin()
	w.sh(asUser + "git worktree add -q r; git clone -q . c; mkdir x r/less; echo x > x/y; echo x > r/less/a.css")
	require.Empty(t, w.end())
}

// Hooks at a path relative to the working tree, as a configuration that stood
// names it, are run in no working tree that came into being: git itself says so.
func TestGuardHooksOfNewWorkingTrees(t *testing.T) {
	hook := `hook() { mkdir -p $1; printf '#!/bin/sh\ntouch "'$PWD'/ran"\n' > $1/pre-commit; chmod +x $1/pre-commit; }; `
	own := "git config core.hooksPath .githooks; "
	commit := "git -c user.name=x -c user.email=x@x commit -qm x --allow-empty; "
	program := `program() { mkdir -p $1; printf '#!/bin/sh\ntouch "'$PWD'/ran"\n' > $1/fsm; chmod +x $1/fsm; }; `
	monitor := "git config core.fsmonitor ./tools/fsm; "
	for name, c := range map[string]struct {
		user                 string // the user's own configuration
		before, plant, where string
		want                 []string
	}{
		"a new repository, the user's path": {"[core]\nhooksPath = .githooks\n", "", "git init -q r; hook r/.githooks", "r", []string{"inert r/.githooks"}},
		"by an include":                     {"[include]\npath = more\n", "", "git init -q r; hook r/.githooks", "r", []string{"inert r/.githooks"}},
		"where no repository stood":         {"[core]\nhooksPath = .githooks\n", "rm -rf .git", "git init -q r; hook r/.githooks", "r", []string{"inert r/.githooks"}},
		"behind a link":                     {"[core]\nhooksPath = .githooks\n", "", "git init -q r; hook other; ln -s ../other r/.githooks", "r", []string{"inert r/.githooks"}},
		"behind a link on the way":          {"[core]\nhooksPath = tools/hooks\n", "", "git init -q r; hook t/hooks; ln -s ../t r/tools", "r", []string{"inert r/tools"}},
		"a working tree elsewhere": {"[core]\nhooksPath = .githooks\n", "", "git init -q --bare .git/modules/m; git --git-dir .git/modules/m config core.bare false; git --git-dir .git/modules/m config core.worktree ../../../w; mkdir w r; echo gitdir: ../.git/modules/m | tee w/.git > r/.git; hook w/.githooks", "r",
			[]string{"inert r/.git", "inert w/.githooks"}},
		"a new worktree of a repository that stood": {"", own + commit, "git worktree add -q r; hook r/.githooks", "r", []string{"inert r/.githooks"}},
		"a hook that stood is copied": {"", own + "mkdir .githooks; echo exit 0 > .githooks/commit-msg; git add .githooks; " + commit, "git worktree add -q r; hook r/.githooks", "r",
			[]string{"inert r/.githooks"}},
		"a copy that is another": {"", own + "mkdir .githooks; echo exit 0 > .githooks/pre-commit; chmod +x .githooks/pre-commit; git add .githooks; " + commit, "git worktree add -q r; hook r/.githooks", "r",
			[]string{"inert r/.githooks"}},
		"a program in a new worktree":  {"", monitor + "mkdir tools; printf '#!/bin/sh\n' > tools/fsm; chmod +x tools/fsm; git add tools; " + commit, "git worktree add -q r; program r/tools", "r", []string{"inert r/tools/fsm"}},
		"a program behind a link":      {"", monitor + commit, "git worktree add -q r; program t; ln -s ../t r/tools", "r", []string{"inert r/tools"}},
		"in a second tree":             {"", monitor + commit, "mkdir r; ln -s ../.git r/.git; program r/tools", "r", []string{"inert r/.git", "inert r/tools/fsm"}},
		"a program that was not there": {"", monitor + commit, "program tools", ".", []string{"stashed tools/fsm"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			home := filepath.Dir(w.root) + "/home"
			fixture.Write(t, home+"/.gitconfig", c.user)
			fixture.Write(t, home+"/more", "[core]\nhooksPath = .githooks\n")
			w.query.Home = home
			w.sh(c.before)
			w.begin()
			w.sh(hook + program + c.plant)
			use := func() {
				cmd := exec.Command("sh", "-ec", commit)
				cmd.Dir = w.path(c.where)
				cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+home+"/.gitconfig", "GIT_CONFIG_SYSTEM=/dev/null")
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
			}
			use()
			require.FileExists(t, w.path("ran"), "control: before the last look it runs")
			require.NoError(t, os.Remove(w.path("ran")))
			require.Equal(t, c.want, w.end())
			use()
			require.NoFileExists(t, w.path("ran"))
		})
	}
}
