package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// asUser is git as the user of the host runs it.
const asUser = `git() { command git -c user.name=x -c user.email=x@x -c protocol.file.allow=always "$@"; }; `

// What git writes in its own directory goes where a link leads, and what it finds in
// there it runs: rc is a file of the user's own that is written to, ran one that a
// program makes that was started.
func TestGuardGitWritesThroughLinks(t *testing.T) {
	const commit = "echo y > f; git add f; GIT_EDITOR=true git commit -q; "
	evil := func(dir string) string {
		return `printf '#!/bin/sh\ntouch '$PWD'/../rc\n' | tee ` + dir + `/hooks/pre-receive > ` + dir + `/hooks/post-checkout; chmod +x ` + dir + `/hooks/*; `
	}
	submodule := `git init -q ../sub; git -C ../sub commit -q --allow-empty -m x; git submodule --quiet add "$PWD/../sub" s; git commit -qm s; git submodule --quiet deinit s; rm -rf .git/modules; `
	for name, c := range map[string]struct {
		before, plant, use string
		want               []string
	}{
		"the message that a squashed branch left": {"", `echo 'touch pwned' > .git/SQUASH_MSG; ln -sf ../../rc .git/COMMIT_EDITMSG`, commit, []string{"inert .git/COMMIT_EDITMSG"}},
		"onto the configuration":                  {"", `printf '[core]\nfsmonitor=x' > .git/SQUASH_MSG; mkdir -p .git/x; ln -sf ../config .git/x/y; ln -sf x/y .git/COMMIT_EDITMSG`, commit + "! git config core.fsmonitor || touch ../rc; ", []string{"inert .git/COMMIT_EDITMSG", "inert .git/x"}},
		"a log":                                   {"", "ln -sf ../../../rc .git/logs/HEAD", "git commit -qm x --allow-empty", []string{"inert .git/logs/HEAD"}},
		"the logs of branches":                    {"", "mkdir -p ../d; rm -rf .git/logs/refs/heads; ln -s ../../../../d .git/logs/refs/heads", "git commit -qm x --allow-empty; ! test -e ../d/main || touch ../rc", []string{"inert .git/logs/refs/heads"}},
		"all logs":                                {"", "rm -rf .git/logs; mkdir ../d; ln -s ../../d .git/logs", "git commit -qm x --allow-empty; ! test -e ../d/HEAD || touch ../rc", []string{"inert .git/logs"}},
		"references that are packed":              {"", `rm -f .git/packed-refs; ln -s ../../rc .git/packed-refs; git branch 'x;touch${IFS}pwned'`, "git pack-refs --all", []string{"inert .git/logs/refs/heads/x;touch${IFS}pwned", "inert .git/packed-refs", "inert .git/refs/heads/x;touch${IFS}pwned"}},
		"another's references": {"git init -q ../o; git -C ../o commit -q --allow-empty -m x; git -C ../o pack-refs --all", "rm -f .git/packed-refs; ln -s ../../o/.git/packed-refs .git/packed-refs",
			"git branch evil; git pack-refs --all; ! grep -q evil ../o/.git/packed-refs || touch ../rc", []string{"inert .git/packed-refs"}},
		"a lock":                      {"", "cp .git/index ../i; rm .git/index; ln -s ../../rc .git/index", "git commit -qm x --allow-empty", []string{"inert .git/index"}},
		"what was fetched":            {"git init -q ../o; git -C ../o commit -q --allow-empty -m x", "ln -s ../../rc .git/FETCH_HEAD", "git fetch -q ../o HEAD", []string{"inert .git/FETCH_HEAD"}},
		"in a repository that is new": {"", "git init -q r; ln -s ../../../rc r/.git/COMMIT_EDITMSG", "cd r; git commit -qm x --allow-empty", []string{"inert r/.git/COMMIT_EDITMSG"}},
		"in a bare one":               {"", "git init -q --bare r; ln -s ../../rc r/packed-refs; git push -q ./r HEAD", "git -C r pack-refs --all", []string{"inert r/packed-refs"}},
		"in a worktree":               {"git worktree add -q w", "ln -sf ../../../../rc .git/worktrees/w/COMMIT_EDITMSG", "cd w; git commit -qm x --allow-empty", []string{"inert .git/worktrees/w/COMMIT_EDITMSG"}},

		"a link that was moved with its directory": {"mkdir old; ln -s ../../../rc old/HEAD", "rm -rf .git/logs; mv old .git/logs", "git commit -qm x --allow-empty", []string{"inert .git/logs/HEAD"}},
		"a link of old further down":               {"mkdir -p old/d; ln -s ../../rc old/d/n; cp .git/HEAD old/HEAD; mkdir old/objects old/refs", "mv old r; rm r/HEAD; git init -q --bare r; mv r/d/n r/packed-refs", "git -C r pack-refs --all", []string{"inert r/packed-refs"}},
		"a message that was moved with its worktree": {"git worktree add -q w; mkdir -p old/x; ln -s ../../../../rc old/x/COMMIT_EDITMSG", "cp -n .git/worktrees/w/[!hC]* old/x/ || true; test -e old/x/commondir; mv old/x .git/worktrees/x; echo gitdir: $PWD/.git/worktrees/x > w/.git2; mkdir y; mv w/.git2 y/.git; echo $PWD/y/.git > .git/worktrees/x/gitdir",
			"cd y; git commit -qm x --allow-empty", []string{"inert .git/worktrees/x/COMMIT_EDITMSG"}},

		"a submodule's repository that is a link": {submodule, "mkdir .git/modules; git clone -q --bare ../sub .git/objects/zz; git --git-dir=.git/objects/zz config core.bare false; ln -s ../objects/zz .git/modules/s; " + evil(".git/objects/zz"),
			"git submodule --quiet update --init || true", []string{"inert .git/modules/s", "inert .git/objects/zz"}},
		"a submodule's repository in a worktree": {submodule + "git worktree add -q w; git config -f w/.gitmodules submodule.s.path s; sed -i 's/submodule \"s\"/submodule \"m\\/objects\\/s\"/' w/.gitmodules",
			"d=.git/worktrees/w/modules/m; mkdir -p $d/refs $d/objects; echo none > $d/HEAD; git clone -q --bare ../sub $d/objects/s; git --git-dir=$d/objects/s config core.bare false; " + evil("$d/objects/s"),
			"cd w; git submodule --quiet update --init || true", []string{"inert .git/worktrees/w/modules/m/HEAD", "inert .git/worktrees/w/modules/m/objects/s"}},
		"a file that leads to a repository": {"", "git init -q r; git init -q --bare .git/objects/zz; " + evil(".git/objects/zz") + "echo gitdir: $PWD/.git/objects/zz > p; git -C r remote add origin $PWD/p",
			"cd r; git commit -qm x --allow-empty; git push -q origin HEAD || true", []string{"inert .git/objects/zz"}},
		"an address of old": {"", "git init -q --bare r; " + evil("r") + "mkdir -p .git/remotes; echo URL: $PWD/r > .git/remotes/origin",
			"git push -q origin HEAD || true", []string{"inert .git/remotes/origin", "inert r/hooks/post-checkout", "inert r/hooks/pre-receive"}},
		"among the logs":                {"", "mkdir -p .git/logs/refs; git init -q --bare .git/logs/refs/zz; " + evil(".git/logs/refs/zz"), "git push -q .git/logs/refs/zz HEAD || true", []string{"inert .git/logs/refs/zz"}},
		"among the objects of a number": {"", "mkdir -p .git/objects/0f; git init -q --bare .git/objects/0f/zz; " + evil(".git/objects/0f/zz"), "git push -q .git/objects/0f/zz HEAD || true", []string{"inert .git/objects/0f/zz"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				w.sh(asUser + c.before)
				w.begin()
				w.sh(asUser + c.plant)
				if guarded {
					require.Equal(t, c.want, w.end())
				} else {
					w.guard.Close()
				}
				w.sh(asUser + c.use)
				_, err := os.Lstat(filepath.Dir(w.root) + "/rc")
				require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard it is written to")
			}
		})
	}
}

// What lies too deep to be git's is quarantined, and does not keep anybody from the rest.
func TestGuardDeepNames(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.sh("p=.git/logs/refs$(printf '/d%.0s' $(seq 70)); mkdir -p $p; ln -s / $p/l; ln -sf ../../rc .git/logs/HEAD")
	require.Equal(t, []string{"inert .git/logs/HEAD", "inert .git/logs/refs" + strings.Repeat("/d", 63)}, w.end())
}

// Links that git itself makes stay, and so do those that stood.
func TestGuardLeavesGitsLinks(t *testing.T) {
	w := newWatchman(t)
	w.sh("mkdir -p .hg/store; ln -s f old; ln -sf ../x .git/x; mkdir -p n/.git/logs; for f in refs logs/refs objects info packed-refs; do ln -s $PWD/.git/$f n/.git/$f; done; cp .git/HEAD n/.git/HEAD")
	w.begin()
	w.sh(asUser + `git -c core.preferSymlinkRefs=true symbolic-ref HEAD refs/heads/other; test -L .git/HEAD
		ln -s host:1 .hg/wlock; ln -s host:1 .hg/store/lock; git gc -q; git repack -qad --write-midx; git commit-graph write --split --reachable; git -C n status -s`)
	require.Empty(t, w.end())
	w.sh("! test -e .git/objects/info/commit-graphs; ! test -e .git/objects/pack/multi-pack-index; git fsck --strict --no-dangling")
}

// What somebody pushes at this moment lies among the objects for a moment, and is theirs;
// a repository is none by that name either.
func TestGuardLeavesQuarantine(t *testing.T) {
	w := newWatchman(t)
	w.begin()
	w.sh("cd .git/objects; mkdir -p tmp_objdir-incoming-a/ab tmp_objdir-incoming-a/pack incoming-b/pack; echo x > tmp_objdir-incoming-a/pack/tmp_pack_x; ln -s ../../../../rc tmp_objdir-incoming-a/pack/l; git init -q --bare tmp_objdir-incoming-a/cd/r; mkdir -p other/ab bundles/d; echo x > bundles/b")
	require.Equal(t, []string{"inert .git/objects/bundles/d", "inert .git/objects/other", "inert .git/objects/tmp_objdir-incoming-a/cd/r", "inert .git/objects/tmp_objdir-incoming-a/pack/l"}, w.end())
	w.sh("test -e .git/objects/tmp_objdir-incoming-a/pack/tmp_pack_x; test -d .git/objects/incoming-b/pack; test -e .git/objects/bundles/b")
}

// Of a worktree whose repository lies elsewhere no tree holds what a commit writes in.
func TestGuardLinksOutside(t *testing.T) {
	w := newWatchman(t)
	top := filepath.Dir(w.root)
	w.sh(asUser + "git worktree add -q -b side ../side; git branch other; git pack-refs --all")
	w.root += "/../side"
	w.root = filepath.Clean(w.root)
	w.query.Root = w.root
	for i := range w.query.Files {
		w.query.Files[i].Path = w.root
	}
	s := w.begin()
	again, _, err := ParseStanding(string(s.Append(nil)))
	require.NoError(t, err)
	require.Equal(t, s.Stores, again.Stores)
	require.Len(t, s.Stores, 3)
	w.sh(asUser + `d=../ws/.git; ln -sf ../../../../rc $d/worktrees/side/COMMIT_EDITMSG; ln -sf ../../../../../rc $d/logs/refs/heads/side
		git init -q --bare $d/objects/zz; mkdir -p $d/objects/0f; git init -q --bare $d/objects/0f/zz; git init -q --bare $d/refs/heads/zz; git -c user.name=x commit -q --allow-empty -m x`)
	require.FileExists(t, top+"/rc", "control: git writes through them")
	require.NoError(t, os.Remove(top+"/rc"))
	var want []string
	for _, name := range strings.Fields("logs/refs/heads/side objects/0f/zz objects/zz refs/heads/zz worktrees/side/COMMIT_EDITMSG") {
		want = append(want, "inert "+top+"/ws/.git/"+name)
	}
	require.Equal(t, want, w.end())
	w.sh(asUser + "git commit -q --allow-empty -m x")
	require.NoFileExists(t, top+"/rc")
}

// A submodule's repository has its working tree where git has made one: elsewhere a
// commit would become hooks, and behind a link whatever it leads to.
func TestGuardWorkingTreeOfSubmodule(t *testing.T) {
	const submodule = "git init -q o; echo x > o/f; git -C o add f; git -C o commit -qm x; mkdir .git/modules; git clone -q o s; mv s/.git .git/modules/m; echo gitdir: ../.git/modules/m > s/.git; "
	for name, c := range map[string]struct {
		before, plant, made string
		want                []string
	}{
		"in the hooks": {"", submodule + "git --git-dir .git/modules/m config core.worktree ../../hooks", ".git/hooks/f", []string{"inert .git/modules/m/config", "inert s/.git"}},
		"in its own repository": {"", submodule + "git --git-dir .git/modules/m config core.worktree ../../../.git; echo gitdir: modules/m > .git/.git", ".git/f",
			[]string{"inert .git/.git", "inert .git/modules/m/config", "inert s/.git"}},
		"in a link that is new": {submodule + "git --git-dir .git/modules/m config core.worktree ../../../s; mv s s2", "mkdir ../d; ln -s ../d s", "../d/f", []string{"inert s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				w.sh(asUser + c.before)
				w.begin()
				w.sh(asUser + c.plant)
				if guarded {
					require.Equal(t, c.want, w.end())
				} else {
					w.guard.Close()
				}
				w.sh(asUser + "rm -f .git/modules/m/index; cd s2 2> /dev/null || cd s; git checkout -q -f HEAD || true")
				_, err := os.Lstat(w.path(c.made))
				require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard the host writes there")
			}
		})
	}
}
