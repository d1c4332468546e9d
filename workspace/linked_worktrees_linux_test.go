package workspace

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/workspace/internal/fixture"
	"github.com/pccrun/pccrun/workspace/quarantine"
)

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
		"a directory that shares it":            {"", monitor, []string{"mkdir -p r/.git; echo 'ref: refs/heads/x' > r/.git/HEAD; echo ../../.git > r/.git/commondir; program r/tools"}, "r", status, "inert r/.git/commondir"},
		"of another name":                       {"", "git config alias.x '!./tools/fsm'; git commit -qm x --allow-empty; ", []string{share + "echo ../.git > x/commondir; program x/tools"}, "x", "git x", "inert x/commondir"},
		"a program that another repository has": {"", "git init -q a; " + monitor, []string{"program a/tools; git worktree add -q r; program r/tools"}, "r", status, "inert r/tools/fsm"},
		"hooks that another repository has":     {"", "git init -q a; " + hooks, []string{"hook a/.githooks; git worktree add -q r; hook r/.githooks"}, "r", commit, "inert r/.githooks/pre-commit"},
		"hooks beside a worktree's own":         {"", hooks + "git worktree add -q a", []string{"hook .git/worktrees/a/.githooks; git worktree add -q r; hook r/.githooks"}, "r", commit, "inert .git/worktrees/a/.githooks inert r/.githooks/pre-commit"},
		"a link to another repository's":        {"", "git init -q a; " + hooks, []string{"hook a/.githooks; git worktree add -q r; ln -s ../a/.githooks r/.githooks"}, "r", commit, "inert r/.githooks"},
		"a .git file that led to nothing":       {"", monitor, []string{"mkdir sub; echo gitdir: ../x > sub/.git", share + "echo ../.git > x/commondir; program sub/tools"}, "sub", status, "inert sub/.git inert sub/.git inert x/commondir"},
		"a link that led to nothing":            {"", monitor, []string{"mkdir sub; ln -s ../x sub/.git", share + "echo ../.git > x/commondir; program sub/tools"}, "sub", status, "inert sub/.git inert sub/.git inert x/commondir"},
		"one that stood, to hooks":              {"", hooks + "mkdir sub; echo gitdir: ../x > sub/.git", []string{share + "echo ../.git > x/commondir; hook sub/.githooks"}, "sub", commit, "inert sub/.githooks/pre-commit inert x/commondir"},
		"the user's own hooks, by one":          {"[core]\nhooksPath = .githooks\n", "mkdir sub; echo gitdir: ../x > sub/.git", []string{"git init -q t; mv t/.git x; hook sub/.githooks"}, "sub", commit, "inert sub/.githooks/pre-commit"},
		"the user's own program, by one":        {"[core]\nfsmonitor = ./tools/fsm\n", "mkdir sub; ln -s ../x sub/.git", []string{"git init -q t; mv t/.git x; program sub/tools"}, "sub", status, "inert sub/tools/fsm"},
		"a commondir that led to nothing":       {"", monitor, []string{"mkdir sub; echo gitdir: ../x > sub/.git; " + share + "echo ../s > x/commondir", "ln -s .git s; program sub/tools"}, "sub", status, "inert x/commondir"},
		"one that led to no repository":         {"", monitor, []string{"mkdir sub s; echo gitdir: ../x > sub/.git; " + share + "echo ../s > x/commondir", "rmdir s; ln -s .git s; program sub/tools"}, "sub", status, "inert x/commondir"},
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

// A linked worktree that stood is not pinned. What would lead git there to another repository is quarantined while the
// run goes on, when it is over, and after the launcher was killed.
func TestLinkedTreeMisled(t *testing.T) {
	const evil = "evil() { git init -q $1; git -C $1 config core.fsmonitor 'touch '$PWD'/ran; false'; }; "
	for name, c := range map[string]struct{ before, run, want string }{
		"a repository in its place":       {"", "evil e; rm trees/a/.git; mv e/.git trees/a", "trees/a/.git"},
		"a file that leads elsewhere":     {"", "evil e; echo gitdir: ../../e/.git > trees/a/.git", "trees/a/.git"},
		"one that leads through a link":   {"", "evil e; mkdir -p d/x; ln -s e/.git f; echo gitdir: ../../f > trees/a/.git", "trees/a/.git"},
		"a link":                          {"", "evil e; ln -sf ../../e/.git trees/a/.git", "trees/a/.git"},
		"another shared directory":        {"", "evil e; echo ../../../e/.git > .git/worktrees/a/commondir", ".git/worktrees/a/commondir"},
		"a directory of another worktree": {"", "evil e; git worktree add -q b; echo ../../../e/.git > .git/worktrees/b/commondir; cp b/.git trees/a/.git", ".git/worktrees/b/commondir"},
		"none, and objects":               {"", "evil e; rm -r .git/worktrees/a; mv e/.git .git/worktrees/a", ".git/worktrees/a/objects"},
		"a link on the way":               {"", "evil e/a; mv trees old; ln -s e trees", "trees"},
		"an old link on the way":          {"mkdir d; ln -s $PWD/e d/trees; evil e/a", "mv trees old; mv d/trees .", "trees"},
		"a link to its administration":    {"mkdir d; evil e; ln -s $PWD/e/.git d/a", "rm -r .git/worktrees; mv d .git/worktrees", ".git/worktrees/a"},
		"a configuration of its own":      {"git config extensions.worktreeConfig true", "git -C trees/a config --worktree core.fsmonitor 'touch '$PWD'/ran; false'", ".git/worktrees/a/config.worktree"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, when := range []string{"control", "during", "at the end", "after a kill"} {
				w := newWatchman(t)
				w.sh(asUser + evil + "git commit -q --allow-empty -m 1; git worktree add -q trees/a; " + c.before)
				ran := func() bool {
					w.sh("rm -f ran; git -C trees/a status > /dev/null 2>&1 || true")
					_, err := os.Lstat(w.path("ran"))
					return err == nil
				}
				text := w.begin().Append(nil)
				if when == "during" {
					w.guard.Watch()
				}
				w.sh(asUser + evil + c.run)
				switch when {
				case "control":
					w.guard.Close()
					require.True(t, ran(), "control: git executes it")
					continue
				case "during":
					require.Eventually(t, func() bool { return !ran() }, time.Minute, 10*time.Millisecond, "git executes it while the run goes on")
				case "after a kill":
					w.guard.Close()
					s, _, err := ParseStanding(string(text))
					require.NoError(t, err)
					w.guard, err = NewGuard(s, nil, nil, w.stash(), func(Finding) {})
					require.NoError(t, err)
				}
				require.Contains(t, w.end(), "stashed "+c.want, when)
				require.False(t, ran(), when)
			}
		})
	}
}

// git removes, moves, prunes and repairs worktrees that stood, also those with a configuration, since nothing of them is
// pinned that is the same in the workspace. What is written there is quarantined, and what stood put back.
func TestLinkedTreeRemoved(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + `mkdir -p .vscode .husky; echo tasks > .vscode/tasks.json; echo registry > .npmrc; echo hook > .husky/h; git config core.hooksPath .husky
		git config extensions.worktreeConfig true; git add -f .; git commit -qm 1; for d in a b c d e f g h; do git worktree add -q trees/$d; done
		for d in b e; do git -C trees/$d config --worktree core.fsmonitor 'touch '$PWD'/ran; false'; done
		cp .git/worktrees/e/config.worktree .git/worktrees/f; git worktree add -q ../elsewhere; rm -r trees/h ../elsewhere
		git worktree add -q trees/stale; rm -r trees/stale; mkdir trees/stale; echo mine > trees/stale/.npmrc`)
	time.Sleep(2 * racy) // what is younger is pinned: its change could not be told
	require.Equal(t, []string{".git/config", ".git/hooks", ".husky", ".npmrc", ".vscode", "trees/stale/.npmrc"},
		slices.DeleteFunc(pinPaths(t, w.root, scanOf(t, w.query)), func(p string) bool { return strings.HasSuffix(p, "/attributes") }))
	w.begin()
	w.guard.Watch()
	time.Sleep(2 * grace)
	w.sh(asUser + `git worktree remove trees/a; git worktree remove --force trees/e; git worktree move trees/b moved; rm -r trees/c; git worktree prune
		mv trees/d other; git worktree repair other; git -C other commit -q --allow-empty -m 1; git worktree add -q trees/a b 2> /dev/null || git worktree add -q trees/a -B h
		echo evil > trees/f/.npmrc; echo evil > trees/f/.husky/h; rm trees/g/.npmrc; git -C trees/f config --worktree alias.x '!evil'`)
	found := w.end()
	for i, path := range found {
		found[i] = strings.TrimSuffix(path, "/h") // a file of hooks is one look's, the directory another's
	}
	require.Equal(t, []string{"inert .git/worktrees/f/config.worktree", "review .git/worktrees/f/config.worktree", "review trees/f/.husky", "review trees/f/.npmrc", "review trees/g/.npmrc", "stashed trees/f/.husky", "stashed trees/f/.npmrc"}, found)
	for _, name := range []string{"moved/.vscode/tasks.json", "moved/.npmrc", "trees/stale/.npmrc", "other/.npmrc", "trees/a/.husky/h"} {
		require.FileExists(t, w.path(name))
	}
	w.sh(`for d in moved other trees/a trees/f trees/g; do test -z "$(git -C $d -c core.fsmonitor= status --short)"; done; git worktree list | wc -l | grep -q 6; git fsck
		grep fsmonitor .git/worktrees/f/config.worktree; ! grep evil .git/worktrees/f/config.worktree`)
}

// What a run changes, replaces or removes of what is protected in a linked worktree is put back while the run goes on,
// when it is over, and after the launcher was killed. Nothing is put back where no directory is, and nothing that leads
// to what has changed.
func TestLinkedTreePutBack(t *testing.T) {
	const stood = "644 registry 750 600 tasks skill config skill\n"
	for name, c := range map[string]struct {
		run, want, stands string
		atEnd             bool
	}{
		"written to":             {"echo evil > $T/a/.npmrc", "restored: .npmrc", stood, false},
		"another file":           {"echo evil > x; chmod 755 x; mv x $T/a/.npmrc", "restored: .npmrc", stood, false},
		"a link":                 {"ln -sf $PWD/.npmrc $T/a/.npmrc", "restored: .npmrc", stood, false},
		"a file in a directory":  {"echo evil > $T/a/.vscode/tasks.json", "restored: .vscode/tasks.json", stood, false},
		"a new one in it":        {"echo evil > $T/a/.vscode/new", "restored: .vscode", stood, false},
		"what a link leads to":   {"echo evil > $T/a/ai/skill", "restored: ai/skill", stood, false},
		"in one that was moved":  {"git worktree move $T/a $T/b; echo evil > $T/b/.npmrc", "restored: .npmrc", stood, false},
		"removed":                {"rm $T/a/.npmrc", "removed, restored: .npmrc", stood, true},
		"a directory removed":    {"rm -r $T/a/.vscode", "removed, restored: .vscode", stood, true},
		"one in it removed":      {"rm $T/a/.vscode/tasks.json", "removed, restored: .vscode/tasks.json", stood, true},
		"one around it removed":  {"rm -r $T/a/.cargo", "removed, not restored: no such file or directory: .cargo/config", strings.Replace(stood, "config ", "", 1), true},
		"nothing":                {"", "", stood, true},
		"the worktree, by git":   {"git worktree remove --force $T/a", "", "", true},
		"the worktree, and anew": {"git worktree remove --force $T/a; mkdir $T/a", "", "", true},
	} {
		for _, dir := range []string{".claude/worktrees", "../trees"} {
			t.Run(name+", "+dir, func(t *testing.T) {
				t.Parallel()
				for _, when := range []string{"control", "at the end", "during", "after a kill"} {
					w := newWatchman(t)
					w.sh(asUser + "mkdir -p .vscode ai .cargo " + dir + `; echo registry > .npmrc; echo tasks > .vscode/tasks.json; echo skill > ai/skill; echo config > .cargo/config; ln -s ../ai/skill .vscode/skill
						git add -f .; git commit -qm 1; git worktree add -q ` + dir + "/a; for d in . " + dir + "/a; do chmod 644 $d/.npmrc; chmod 750 $d/.vscode; chmod 600 $d/.vscode/tasks.json; done; echo mine > .vscode/mine")
					roots := []string{}
					if strings.HasPrefix(dir, "..") {
						roots = append(roots, filepath.Dir(w.root)+"/trees")
					}
					at := filepath.Join(w.root, dir, "a")
					if strings.Contains(c.run, " $T/b;") {
						at = filepath.Join(w.root, dir, "b")
					}
					stands := func() string {
						cmd := exec.Command("sh", "-c", `echo $(stat -c %a .npmrc; cat .npmrc; stat -c %a .vscode .vscode/tasks.json; cat .vscode/tasks.json .vscode/skill .cargo/config ai/skill; ls .vscode | grep -v 'skill\|tasks.json')`)
						cmd.Dir = at
						out, _ := cmd.Output()
						return strings.TrimPrefix(string(out), "\n")
					}
					guards, records := w.beside(roots...)
					if when == "during" {
						guards.Watch()
					}
					w.sh(asUser + "T=" + dir + "; " + cmp.Or(c.run, ":"))
					switch when {
					case "control":
						guards.Close()
						require.Equal(t, c.want == "" || strings.HasPrefix(c.want, "removed, not"), stands() == c.stands, "control: it is not as it was: %s", stands())
						continue
					case "during":
						if !c.atEnd {
							require.Eventually(t, func() bool { return stands() == c.stands }, time.Minute, 10*time.Millisecond, "it is not put back while the run goes on")
						}
					case "after a kill":
						guards = w.killed(guards, records)
					}
					found, err := guards.Finish()
					require.NoError(t, err)
					guards.Close()
					require.Equal(t, c.stands, stands(), when)
					var said []string
					for _, f := range found {
						if f.Kind == Review {
							said = append(said, f.What+": "+strings.TrimPrefix(f.Path, at+"/"))
						}
					}
					if when == "during" && strings.HasPrefix(c.want, "restored: .vscode/") && len(said) == 1 && said[0] == "restored: .vscode" {
						continue // the look was at the file before it changed, and at its directory afterwards
					}
					require.Equal(t, c.want, strings.Join(said, "\n"), when)
				}
			})
		}
	}
}

// A protected file stays pinned in a linked worktree where it is not what the workspace has, where another name of it
// would be written with it, and in a repository of its own.
func TestLinkedTreePinned(t *testing.T) {
	for name, c := range map[string]struct{ before, pinned string }{
		"another file":      {"echo y > .npmrc", "trees/a/.npmrc"},
		"another mode":      {"chmod 600 .npmrc", "trees/a/.npmrc"},
		"another directory": {"mkdir .vscode trees/a/.vscode; echo x > trees/a/.vscode/x", "trees/a/.vscode"},
		"what a link is to": {"mkdir .vscode trees/a/.vscode ai trees/a/ai; for d in . trees/a; do ln -s ../ai $d/.vscode; done; echo x > trees/a/ai/x", "trees/a/ai"},
		"a link":            {"for d in . trees/a; do echo x > $d/x; ln -sf x $d/.npmrc; done", "trees/a/.npmrc"},
		"hooks of its own":  {"git -C trees/a -c protocol.file.allow=always submodule --quiet add $PWD sub; echo x > .git/worktrees/a/modules/sub/hooks/post-merge", ".git/worktrees/a/modules/sub/hooks"},
		"another name":      {"ln -f trees/a/.npmrc .npmrc", "trees/a/.npmrc"},
		"one within":        {"mkdir -p .vscode trees/a/.vscode; echo x > .vscode/x; ln .vscode/x trees/a/.vscode/x", "trees/a/.vscode"},
		"a repository":      {"git init -q trees/a/c", "trees/a/c/.git/hooks"},
		"the control":       {"mkdir .vscode trees/a/.vscode ai trees/a/ai; for d in . trees/a; do ln -s ../ai $d/.vscode; echo x > $d/ai/x; done; echo y > .vscode/y; git -C trees/a -c protocol.file.allow=always submodule --quiet add $PWD sub", ""},
	} {
		w := newWatchman(t)
		w.sh(asUser + "git commit -q --allow-empty -m 1; git worktree add -q trees/a; for d in . trees/a; do echo x > $d/.npmrc; done; " + c.before)
		time.Sleep(2 * racy)
		pins := strings.Join(pinPaths(t, w.root, scanOf(t, w.query)), "\n") + "\n"
		require.Equal(t, c.pinned != "", strings.Contains(pins, "trees/a/"), "%s: %s", name, pins)
		require.Contains(t, pins, c.pinned+"\n", name)
	}
}

// What git could not remove of a worktree that stood, since something in it is hidden, or belongs to a submodule, is
// quarantined when the run is over. One that was broken before stays; what is quarantined can be put back.
func TestLinkedTreeHalfRemoved(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + `git commit -q --allow-empty -m 1
		for d in a b c; do git worktree add -q trees/$d; done; rm .git/worktrees/c/gitdir; echo mine > trees/a/.env`)
	w.begin()
	w.sh(`rm .git/worktrees/a/gitdir trees/a/.git`)
	require.Equal(t, []string{"stashed .git/worktrees/a", "stashed trees/a"}, w.end())
	for _, name := range []string{"trees/b/.git", "trees/c/.git", ".git/worktrees/b/gitdir", ".git/worktrees/c/HEAD"} {
		require.FileExists(t, w.path(name))
	}
	list, err := quarantine.ReadFindings(w.session)
	require.NoError(t, err)
	for _, f := range list {
		require.Equal(t, Removed, f.Why)
		require.False(t, f.Protected())
		require.NoError(t, f.Restore(w.session))
	}
	text, err := os.ReadFile(w.path("trees/a/.env"))
	require.NoError(t, err)
	require.Equal(t, "mine\n", string(text))
}

// What is in a worktree that is not pinned is what stood there, or holds what the workspace has, however it got there:
// in the workspace, and in another directory. What nobody has changed stays, wherever a link leads. git itself says so.
func TestLinkedTreeAnother(t *testing.T) {
	const evil = "evil() { printf '#!/bin/sh\ntouch '$TOP'/ran\n' > $1; chmod +x $1; }; "
	for name, c := range map[string]struct{ before, run, want string }{
		"a directory where the worktree was": {"cp -a $T/a $T/old; rm $T/old/.git; evil $T/old/tools/fsm", "mv $T/a $T/moved; mv $T/old $T/a; cp $T/moved/.git $T/a", "a/tools/fsm"},
		"another worktree where one was":     {"git worktree add -q $T/b; evil $T/b/tools/fsm", "mv $T/a $T/moved; mv $T/b $T/a", "a/tools/fsm"},
		"a directory around it":              {"mkdir $T/old; evil $T/old/fsm", "mv $T/a/tools $T/moved; mv $T/old $T/a/tools", "a/tools/fsm"},
		"a program":                          {"", "evil $T/a/tools/fsm", "a/tools/fsm"},
		"one that was not there":             {"rm $T/a/tools/fsm", "evil $T/a/tools/fsm", "a/tools/fsm"},
		"a directory of the workspace":       {"mkdir shared; cp tools/fsm shared; rm -r $T/a/tools; ln -s $PWD/shared $T/a/tools", "evil shared/fsm", "shared/fsm"},
		"nothing, and a link that leads out": {"mkdir $TOP/out; evil $TOP/out/fsm; rm -r $T/a/tools; ln -s $TOP/out $T/a/tools", "", ""},
		"nothing, and a link into the tools": {"rm -r $T/a/tools; ln -s $PWD/tools $T/a/tools", "", ""},
		"nothing, and a program of its own":  {"evil $T/a/tools/fsm", "", ""},
	} {
		for where, dir := range map[string]string{"in the workspace": "trees", "beside it": "../beside"} {
			if where == "in the workspace" && strings.HasPrefix(c.want, "shared") {
				continue // it is pinned
			}
			t.Run(name+", "+where, func(t *testing.T) {
				t.Parallel()
				for _, when := range []string{"control", "at the end", "during", "after a kill"} {
					w := newWatchman(t)
					beside := filepath.Dir(w.root) + "/beside"
					vars := asUser + evil + "TOP=" + filepath.Dir(w.root) + " T=" + dir + "; "
					w.sh(vars + `mkdir tools $TOP/beside; printf '#!/bin/sh\n' > tools/fsm; chmod +x tools/fsm; git config core.fsmonitor ./tools/fsm; git add .; git commit -qm 1
						git worktree add -q $T/a; ` + c.before)
					guards, records := w.beside(beside)
					ran := func() bool {
						w.sh("rm -f ../ran; for d in a m; do git -C " + dir + "/$d status > /dev/null 2>&1 || true; done")
						_, err := os.Lstat(filepath.Dir(w.root) + "/ran")
						return err == nil
					}
					if when == "during" && c.want != "" {
						guards.Watch()
					}
					w.sh(vars + "{ " + cmp.Or(c.run, ":") + "; } || true") // its files may be gone before it is done
					switch {
					case when == "control":
						guards.Close()
						require.True(t, ran() || strings.Contains(c.before, "tools $T/a/tools"), "control: git executes it")
						continue
					case when == "during" && c.want != "":
						require.Eventually(t, func() bool { return !ran() }, time.Minute, 10*time.Millisecond, "git executes it while the run goes on")
					case when == "after a kill":
						guards = w.killed(guards, records)
					}
					found, err := guards.Finish()
					require.NoError(t, err)
					guards.Close()
					if c.want == "" {
						require.Empty(t, w.names(found), when)
						continue
					}
					want := filepath.Join(w.root, dir, c.want)
					if strings.HasPrefix(c.want, "shared") {
						want = w.path(c.want)
					}
					require.Contains(t, strings.Join(w.names(found), "\n")+"\n", strings.TrimPrefix(want, w.root+"/")+"\n", when)
					require.False(t, ran(), when)
				}
			})
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

// TestFewer: while a run goes on, a directory of which git has removed a part holds nothing new.
func TestFewer(t *testing.T) {
	dir := fixture.Dir(t)
	require.NoError(t, os.MkdirAll(dir+"/hooks/deep", 0o755))
	for _, name := range []string{"/hooks/a", "/hooks/b", "/hooks/deep/c"} {
		fixture.Write(t, dir+name, "x")
	}
	var st unix.Stat_t
	require.NoError(t, unix.Stat(dir+"/hooks/deep/c", &st))
	require.Eventually(t, func() bool { return !changedSince(st.Ctim.Nano(), time.Now()) }, time.Minute, time.Millisecond)
	since := time.Now()
	same := func(fewer bool) bool {
		u := unchanged{since: since, fewer: fewer}
		return u.at(openDirT(t, dir), "hooks", "hooks")
	}
	require.True(t, same(false))
	require.NoError(t, os.Remove(dir+"/hooks/a"))
	require.NoError(t, os.RemoveAll(dir+"/hooks/deep"))
	require.False(t, same(false), "the control: it is put back at the end")
	require.True(t, same(true))
	require.NoError(t, os.Rename(dir+"/hooks/b", dir+"/hooks/pre-commit"))
	require.False(t, same(true), "a new name")
}
