package workspace

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Real git executes, or takes objects from elsewhere for, what a run has left in its directory: the control.
// After the run it does not.
func TestGuardGitState(t *testing.T) {
	const commits = "for i in 1 2 3; do echo $i > f; git add f; git commit -q -m $i; done; "
	for name, c := range map[string]struct {
		before, plant, use string
		went               string // exists when git did it
		want               []string
	}{
		"a rebase":                             {commits, "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2; echo 'exec touch '$TOP'/ran' >> .git/rebase-merge/git-rebase-todo", "git rebase --continue 2> /dev/null || true", "ran", []string{"inert .git/rebase-merge"}},
		"a rebase that stood, and was changed": {commits + "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2", "echo 'exec touch '$TOP'/ran' >> .git/rebase-merge/git-rebase-todo", "git rebase --continue 2> /dev/null || true", "ran", []string{"inert .git/rebase-merge"}},
		"objects of another":                   {"git init -q ../o; cd ../o; echo secret > s; git add s; cd ../ws", "echo $TOP/o/.git/objects > .git/objects/info/alternates", "git cat-file -e $(git -C ../o hash-object s) && touch $TOP/ran || true", "ran", []string{"inert .git/objects/info/alternates"}},
		"a graft":                              {commits, "echo $(git rev-parse HEAD) > .git/info/grafts", "test $(git rev-list HEAD 2> /dev/null | wc -l) != 1 || touch $TOP/ran", "ran", []string{"inert .git/info/grafts"}},
		"a bisection": {commits, "git bisect start -q HEAD HEAD~2 > /dev/null; printf 'bisect run\\n' > .git/BISECT_RUN", "git bisect log > $TOP/log 2> /dev/null && touch $TOP/ran || true", "ran",
			[]string{"inert .git/BISECT_LOG", "inert .git/BISECT_NAMES", "inert .git/BISECT_RUN", "inert .git/BISECT_START"}},
		"a replacement":            {commits, "git replace HEAD HEAD~1", "test $(git log --format=%s -1) = 3 || touch $TOP/ran", "ran", []string{"inert .git/refs/replace"}},
		"a foreign directory":      {"", "mkdir -p .git/own/x; echo x > .git/own/x/y; echo x > .git/z", "test ! -e .git/own || touch $TOP/ran", "ran", []string{"inert .git/own", "inert .git/z"}},
		"a worktree of elsewhere":  {"git worktree add -q w; git init -q --bare ../e; git -C ../e config core.fsmonitor 'touch '$TOP'/ran; false'", "mkdir -p .git/worktrees/v; cp .git/worktrees/w/HEAD .git/worktrees/v/; echo $TOP/e > .git/worktrees/v/commondir; mkdir v; echo gitdir: $PWD/.git/worktrees/v > v/.git; echo $PWD/v/.git > .git/worktrees/v/gitdir", "cd v; git status > /dev/null 2>&1 || true", "ran", []string{"inert .git/worktrees/v/commondir"}},
		"a program for an address": {"", "git init -q n; git -C n remote add origin evil://x; mkdir bin; printf '#!/bin/sh\\ntouch '$TOP/ran > bin/git-remote-evil; chmod +x bin/git-remote-evil", "PATH=$PWD/bin:$PATH; git -C n fetch > /dev/null 2>&1 || true", "ran", []string{"inert n/.git/config"}},
		"a fetch over branches":    {"git init -q ../o; git -C ../o commit -q --allow-empty -m o; git -C ../o branch x", "git init -q n; git -C n config remote.origin.url $TOP/o; git -C n config remote.origin.fetch '+refs/heads/*:refs/heads/*'; git -C n checkout -q -b none", "git -C n fetch -q origin > /dev/null 2>&1 || true; ! git -C n rev-parse -q --verify refs/heads/x > /dev/null || touch $TOP/ran", "ran", []string{"inert n/.git/config"}},
		"a submodule's rebase": {"git init -q ../s; cd ../s; " + commits + "cd ../ws; git submodule --quiet add $TOP/s d/s; git commit -q -m s; touch .git/modules/old", "echo x > .git/modules/x; mkdir -p .git/modules/y; echo x > .git/modules/y/z; cd d/s; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2; echo 'exec touch '$TOP'/ran' >> $(git rev-parse --git-dir)/rebase-merge/git-rebase-todo",
			"cd d/s; git rebase --continue 2> /dev/null || true", "ran", []string{"inert .git/modules/d/s/rebase-merge", "inert .git/modules/x", "inert .git/modules/y/z"}},
		"an option for a branch":    {"", "mkdir -p .git/refs/heads; git rev-parse HEAD > .git/refs/heads/--upload-pack=x", "test ! -e .git/refs/heads/--upload-pack=x || touch $TOP/ran", "ran", []string{"inert .git/refs/heads/--upload-pack=x"}},
		"a reference to any file":   {"", "echo 'ref: ../ran' > .git/HEAD", "git rev-parse HEAD > /dev/null 2>&1 || true; ! grep -q ran .git/HEAD 2> /dev/null || touch $TOP/ran", "ran", []string{"inert .git/HEAD"}},
		"logs exchanged for a link": {"", "rm -rf .git/logs; mkdir $TOP/d; ln -s $TOP/d .git/logs", "git commit -q --allow-empty -m x; test ! -e $TOP/d/HEAD || touch $TOP/ran", "ran", []string{"inert .git/logs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, guarded := range []bool{false, true} {
				w := newWatchman(t)
				top := "TOP=" + filepath.Dir(w.root) + "; "
				w.sh(asUser + top + "git commit -q --allow-empty -m one; " + c.before)
				w.begin()
				w.sh(asUser + top + c.plant)
				if guarded {
					require.Equal(t, c.want, w.end())
				} else {
					w.guard.Close()
				}
				w.sh(asUser + top + c.use)
				_, err := os.Lstat(filepath.Dir(w.root) + "/" + c.went)
				require.Equal(t, guarded, os.IsNotExist(err), "control: without a guard it works")
			}
		})
	}
}

// Honest work in a repository is nothing to hear of, and git finds nothing wrong with what is left.
func TestGuardHonestGit(t *testing.T) {
	const commits = "for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -q -m $i; done; "
	for name, c := range map[string]struct {
		before, run string
		want        []string
	}{
		"a clone": {commits, "git clone -q . c; git -C c commit -q --allow-empty -m x", nil}, "a new one": {"", "git init -q n; cd n; " + commits, nil},
		"commits":                   {"", commits + "git commit -q --amend -m four; git tag -a -m x v1; git branch a/b; git branch -m a/b c; git branch -D c", nil},
		"a rebase":                  {commits + "git branch o HEAD~1", "git checkout -q -b side HEAD~2; echo x > x; git add x; git commit -q -m x; git rebase -q main 2> /dev/null || git rebase -q master", nil},
		"a stash":                   {commits, "echo y > f1; git stash -q; git stash pop -q; echo z > f2; git stash -q", nil},
		"a merge":                   {commits, "git checkout -q -b o HEAD~1; echo x > x; git add x; git commit -q -m x; git checkout -q -; git merge -q --no-edit o", nil},
		"a merge that is open":      {commits, "git checkout -q -b o HEAD~1; echo x > f3; git add f3; git commit -q -m x; git checkout -q -; git merge -q o > /dev/null || true; test -e .git/MERGE_HEAD", []string{"review .git/MERGE_HEAD"}},
		"a pick":                    {commits, "git checkout -q -b o HEAD~1; echo x > x; git add x; git commit -q -m x; git checkout -q -; git cherry-pick o > /dev/null; git revert --no-edit HEAD > /dev/null", nil},
		"worktrees":                 {commits, "git worktree add -q w; cd w; echo x > x; git add x; git commit -q -m x; cd ..; git worktree add -q v; git worktree remove v; git worktree lock w", nil},
		"a submodule":               {"git init -q ../s; git -C ../s commit -q --allow-empty -m s; git submodule --quiet add $TOP/s s; git commit -q -m s; git -C ../s commit -q --allow-empty -m t", "git submodule --quiet update --remote; git commit -q -a -m u", nil},
		"a new submodule":           {"git init -q ../s; git -C ../s commit -q --allow-empty -m s", "git submodule --quiet add $TOP/s d/s; git commit -q -m s", nil},
		"objects that are borrowed": {"git init -q ../o; cd ../o; " + commits + "cd ../ws; rm -rf .git; git clone -q -s ../o c; mv c/.git .git; rm -rf c; git reset -q --hard", "git commit -q --allow-empty -m x; git repack -q -d", nil},
		"a fetch":                   {"git init -q ../o; git -C ../o commit -q --allow-empty -m o; git -C ../o tag v; git remote add origin $TOP/o", "git fetch -q origin; git fetch -q --tags; git remote set-head origin -a > /dev/null", nil},
		"a shallow one":             {commits, "git clone -q --depth 1 file://$PWD c; git -C c fetch -q --depth 2", nil},
		"packed":                    {commits, "git gc -q; echo x > x; git add x; git commit -q -m x; git repack -q -a -d -b; git pack-refs --all; git commit-graph write --reachable; git multi-pack-index write; git update-server-info", nil},
		"a bisection":               {commits, "git bisect start -q HEAD HEAD~2 > /dev/null; git bisect good > /dev/null; git bisect reset > /dev/null 2>&1", nil},
		"a split index":             {commits, "git update-index --split-index; echo x > f1; git add f1; git commit -q -m x", nil},
		"an untracked cache":        {commits, "git update-index --untracked-cache; git status > /dev/null; git update-index --index-version 4", nil},
		"a sparse one":              {"mkdir d e; echo d > d/d; echo e > e/e; git add .; git commit -q -m d; git sparse-checkout set --cone d", "git sparse-checkout add e; echo x > d/d; git commit -q -a -m x; git sparse-checkout set --sparse-index d", nil},
		"a partial clone":           {commits + "git config uploadpack.allowFilter true", "git clone -q --filter=blob:none file://$PWD c; git -C c log -p > /dev/null", nil},
		"another hash":              {"rm -rf .git; git init -q --object-format=sha256; " + commits, "echo x > x; git add x; git commit -q -m x; git gc -q; git init -q --object-format=sha256 n; cd n; " + commits, nil},
		"git-lfs":                   {commits, "mkdir -p .git/lfs/objects/ab/cd .git/lfs/tmp .git/lfs/cache/locks; echo x > .git/lfs/objects/ab/cd/abcd" + strings.Repeat("0", 60) + "; echo x > .git/lfs/tmp/123", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			top := "TOP=" + filepath.Dir(w.root) + "; set -e; "
			w.sh(asUser + top + "git commit -q --allow-empty -m one; " + c.before)
			w.begin()
			w.sh(asUser + top + c.run)
			control := w.copied()
			found := slices.DeleteFunc(w.end(), func(s string) bool { // which the command has a copy of: here nobody mounts it
				return strings.HasPrefix(s, "review ") && (strings.HasSuffix(s, "/config") || strings.HasSuffix(s, "/config.worktree"))
			})
			require.ElementsMatch(t, c.want, found)
			const state = "git status --porcelain=v2 --branch; git diff HEAD; git log --all --oneline; git ls-files -s; "
			w.sh(asUser + "set -e; git fsck --strict --no-dangling; { " + state + "} > ../a; cd " + control + "; { " + state + "} > ../../b; cmp ../../a ../../b")
		})
	}
}

// A lock of git's configuration that came with the run stays and is reported, as each other lock.
func TestGuardReportsLocks(t *testing.T) {
	w := newWatchman(t)
	w.sh("git init -q stood; touch stood/.git/config.lock")
	w.begin()
	w.sh("touch .git/config.lock .git/index.lock; git init -q new; touch new/.git/config.lock")
	require.Equal(t, []string{"review .git/config.lock", "review .git/index.lock", "review new/.git/config.lock"}, w.end())
	require.FileExists(t, w.path(".git/config.lock"))
}

// A new repository in which its owner may not write is made inert as any other, and keeps its mode.
func TestGuardClosedRepository(t *testing.T) {
	for _, closed := range []string{"r", "r/.git", "r/.git r"} {
		w := newWatchman(t)
		w.begin()
		w.sh(asUser + "git init -q r; echo x > r/x; git -C r add x; git -C r commit -qm x; git -C r config core.pager x; touch r/.git/foreign; chmod 511 " + closed)
		require.Equal(t, []string{"inert r/.git/config", "inert r/.git/foreign"}, w.end())
		w.sh("test $(stat -c %a r/.git/config) = 644; git -C r status --short; test -z \"$(git -C r config core.pager)\"")
	}
}
