package changes

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/test/fixture"
	"github.com/pccrun/pccrun/workspace"
)

const asUser = `set -e; export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_PAGER=cat GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x@x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x@x
git() { command git -c protocol.file.allow=always -c init.defaultBranch=main "$@"; }; `

// A gitStand is one whose changes a script has made: where it stood, as git writes absolute paths.
type gitStand struct {
	*stand
	top string
}

func (s *gitStand) sh(script string) string {
	cmd := exec.Command("sh", "-c", asUser+"TOP="+s.top+"; "+script)
	cmd.Dir = filepath.Join(s.top, "ws")
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s: %s", script, out)
	return string(out)
}

// newGitStand runs two scripts, and takes what the second has done for a run's. seen is what a third prints while it
// stands.
func newGitStand(t *testing.T, before, run, look string) (s *gitStand, seen string) {
	top := fixture.Dir(t)
	host := filepath.Join(top, "ws")
	require.NoError(t, os.Mkdir(host, 0o755))
	s = &gitStand{&stand{t: t, host: host}, top}
	s.sh("git init -q; rm -rf .git/hooks; git commit -q --allow-empty -m one; " + before + "\ncp -a $TOP/ws $TOP/old")
	s.sh(run + "\ncp -a $TOP/ws $TOP/after")
	seen = s.sh(look)
	s.sh("cd ..; rm -rf ws ran e/ran e/.git d/HEAD; mv old ws")
	time.Sleep(10 * time.Millisecond) // the clock that stamps files has ticks
	s.overlay()
	return s, seen
}

// overlay makes a session whose overlay holds what the run has done.
func (s *gitStand) overlay() {
	s.session = fixture.Dir(s.t)
	layer, err := LayerOf(s.host)
	require.NoError(s.t, err)
	rules := fixture.Protect(".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/info/attributes")
	require.NoError(s.t, CreateUpper(s.root(), &Record{Workspace: s.host, Started: Clock(), Layers: []Layer{layer}, Protect: rules}, nil))
	s.tree = filepath.Join(s.session, UpperName, "0", treeName)
	old, err := os.OpenRoot(s.host)
	require.NoError(s.t, err)
	defer old.Close()
	after, err := os.OpenRoot(filepath.Join(s.top, "after"))
	require.NoError(s.t, err)
	defer after.Close()
	set, err := Compare(old, after)
	require.NoError(s.t, err)
	gone := ""
	for _, c := range set.Changes {
		path := filepath.Join(s.tree, c.Path)
		if c.After == nil {
			if gone == "" || !contains(gone, c.Path) {
				s.run([2]string{c.Path, "gone"})
				gone = c.Path
			}
			continue
		}
		if c.After.Kind == workspace.Dir {
			require.NoError(s.t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(s.t, os.Link(filepath.Join(s.top, "after", c.Path), path))
		gone = c.Path
	}
}

// outermost returns the paths of changes that lie in none of the others.
func outermost(list []Change) (paths []string) {
	for _, c := range list {
		if !slices.ContainsFunc(paths, func(dir string) bool { return contains(dir, c.Path) }) {
			paths = append(paths, c.Path)
		}
	}
	return paths
}

// What in place goes into quarantine is held back by an apply: of an overlay, and of what came from elsewhere. Real git
// executes it, or writes elsewhere, where all is applied: the control.
func TestApplyGitState(t *testing.T) {
	const commits = "for i in 1 2 3; do echo $i > f; git add f; git commit -q -m $i; done; "
	const evil = "mkdir bin; printf '#!/bin/sh\\ntouch '$TOP/ran > bin/git-remote-evil; chmod +x bin/git-remote-evil; "
	for name, c := range map[string]struct {
		before, plant, use string
		want               []string // the outermost paths
	}{
		"a rebase":                             {commits, "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2; echo 'exec touch '$TOP'/ran' >> .git/rebase-merge/git-rebase-todo", "git rebase --continue 2> /dev/null || true", []string{".git/rebase-merge"}},
		"a rebase that stood, and was changed": {commits + "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2", "echo 'exec touch '$TOP'/ran' >> .git/rebase-merge/git-rebase-todo", "git rebase --continue 2> /dev/null || true", []string{".git/rebase-merge/git-rebase-todo"}},
		"objects of another":                   {"git init -q ../o; cd ../o; echo secret > s; git add s; cd ../ws", "echo $TOP/o/.git/objects > .git/objects/info/alternates", "git cat-file -e $(git -C ../o hash-object s) && touch $TOP/ran || true", []string{".git/objects/info/alternates"}},
		"a graft":                              {commits, "echo $(git rev-parse HEAD) > .git/info/grafts", "test $(git rev-list HEAD 2> /dev/null | wc -l) != 1 || touch $TOP/ran", []string{".git/info/grafts"}},
		"a bisection": {commits, "git bisect start -q HEAD HEAD~2 > /dev/null; printf 'bisect run\\n' > .git/BISECT_RUN", "git bisect log > $TOP/log 2> /dev/null && touch $TOP/ran || true",
			[]string{".git/BISECT_LOG", ".git/BISECT_NAMES", ".git/BISECT_RUN", ".git/BISECT_START"}},
		"a replacement":                  {commits, "git replace HEAD HEAD~1", "test $(git log --format=%s -1) = 3 || touch $TOP/ran", []string{".git/refs/replace"}},
		"a foreign directory":            {"", "mkdir -p .git/own/x; echo x > .git/own/x/y; echo x > .git/z", "test ! -e .git/own || touch $TOP/ran", []string{".git/own", ".git/z"}},
		"a worktree of elsewhere":        {"git worktree add -q w; git init -q --bare ../e; git -C ../e config core.fsmonitor 'touch '$TOP'/ran; false'", "mkdir -p .git/worktrees/v; cp .git/worktrees/w/HEAD .git/worktrees/v/; echo $TOP/e > .git/worktrees/v/commondir; mkdir v; echo gitdir: $PWD/.git/worktrees/v > v/.git; echo $PWD/v/.git > .git/worktrees/v/gitdir", "cd v; git status > /dev/null 2>&1 || true", []string{".git/worktrees/v/commondir"}},
		"a pointer out":                  {"git init -q --bare ../e; git -C ../e config core.fsmonitor 'touch '$TOP'/ran; false'", "mkdir v; echo gitdir: $TOP/e > v/.git", "cd v; git --work-tree=. status > /dev/null 2>&1 || true", []string{"v/.git"}},
		"a worktree of any place":        {"git worktree add -q w; mkdir ../e", "git worktree add -q v; echo $TOP/e/.git > .git/worktrees/v/gitdir", "git worktree repair > /dev/null 2>&1 || true; test -e $TOP/e/.git && touch $TOP/ran || grep -q $TOP/e .git/worktrees/*/gitdir && touch $TOP/ran || true", []string{".git/worktrees/v/gitdir", "v/.git"}},
		"a program for an address":       {"", evil + "git init -q n; git -C n remote add origin evil://x", "PATH=$PWD/bin:$PATH; git -C n fetch origin > /dev/null 2>&1 || true", []string{"n/.git/config"}},
		"a program of a new one":         {"", "git init -q n; git -C n config core.fsmonitor 'touch '$TOP'/ran; false'", "git -C n status > /dev/null 2>&1 || true", []string{"n/.git/config"}},
		"a program of a bare one":        {"", "git init -q --bare n; git -C n config core.fsmonitor 'touch '$TOP'/ran; false'", "git -C n --work-tree=. status > /dev/null 2>&1 || true", []string{"n/config"}},
		"a program of one hidden in git": {"", "git init -q --bare .git/lfs/r; git -C .git/lfs/r config core.fsmonitor 'touch '$TOP'/ran; false'; ln -s .git/lfs/r n", "git -C n --work-tree=. status > /dev/null 2>&1 || true", []string{".git/lfs/r"}},
		"a hook of a new one":            {"", "git init -q n; mkdir -p n/.git/hooks; printf '#!/bin/sh\\ntouch '$TOP/ran > n/.git/hooks/pre-commit; chmod +x n/.git/hooks/pre-commit", "git -C n commit -q --allow-empty -m x", []string{"n/.git/hooks/pre-commit"}},
		"a hook of a bare one":           {"", "git init -q --bare n; mkdir -p n/hooks; printf '#!/bin/sh\\ntouch '$TOP/ran > n/hooks/post-update; chmod +x n/hooks/post-update", "git push -q ./n HEAD:x", []string{"n/hooks/post-update"}},
		"another's working tree":         {"mkdir ../e", "git init -q n; git -C n config core.worktree $TOP/e; cd n; echo x > ../../e/ran; git add ran; rm ../../e/ran", "cd n; git --git-dir=.git checkout -q -- . 2> /dev/null || true; test ! -e ../../e/ran || touch $TOP/ran", []string{"n/.git/config"}},
		"a working tree behind a link":   {"mkdir -p ../e/d", "ln -s $TOP/e/d l; mkdir e; git init -q n; echo x > n/ran; git -C n add ran; rm n/ran; mv n/.git m; echo gitdir: ../m > e/.git; git config -f m/config core.worktree ../l/../../e", "cd e; git checkout -q -- . 2> /dev/null || true; test ! -e $TOP/e/ran || mv $TOP/e/ran $TOP", []string{"e/.git", "m/config"}},
		"a fetch over branches":          {"git init -q ../o; git -C ../o commit -q --allow-empty -m o; git -C ../o branch x", "git init -q n; git -C n config remote.origin.url $TOP/o; git -C n config remote.origin.fetch '+refs/heads/*:refs/heads/*'; git -C n checkout -q -b none", "git -C n fetch -q origin > /dev/null 2>&1 || true; ! git -C n rev-parse -q --verify refs/heads/x > /dev/null || touch $TOP/ran", []string{"n/.git/config"}},
		"a submodule's rebase":           {"git init -q ../s; cd ../s; " + commits + "cd ../ws; git submodule --quiet add $TOP/s d/s; rm -rf .git/modules/d/s/hooks; git commit -q -m s; touch .git/modules/old", "echo x > .git/modules/x; mkdir -p .git/modules/y; echo x > .git/modules/y/z; cd d/s; GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~2; echo 'exec touch '$TOP'/ran' >> $(git rev-parse --git-dir)/rebase-merge/git-rebase-todo", "cd d/s; git rebase --continue 2> /dev/null || true", []string{".git/modules/d/s/rebase-merge", ".git/modules/x", ".git/modules/y/z"}},
		"a submodule's program":          {"git init -q ../s; cd ../s; " + commits + "cd ../ws; git config submodule.s.url $TOP/s; git submodule --quiet add $TOP/s s; git commit -q -m s; git submodule --quiet deinit -f s; rm -rf .git/modules; git config submodule.s.url $TOP/s", "git submodule --quiet update; git -C s config core.fsmonitor 'touch '$TOP'/ran; false'; rm -rf .git/modules/s/hooks", "git -C s status > /dev/null 2>&1 || true", []string{".git/modules/s/config"}},
		"an option for a branch":         {"", "mkdir -p .git/refs/heads; git rev-parse HEAD > .git/refs/heads/--upload-pack=x", "test ! -e .git/refs/heads/--upload-pack=x || touch $TOP/ran", []string{".git/refs/heads/--upload-pack=x"}},
		"a reference to any file":        {"", "echo 'ref: ../ran' > .git/HEAD", "git rev-parse HEAD > /dev/null 2>&1 || true; ! grep -q ran .git/HEAD 2> /dev/null || touch $TOP/ran", []string{".git/HEAD"}},
		"logs exchanged for a link":      {"", "rm -rf .git/logs; mkdir $TOP/d; ln -s $TOP/d .git/logs", "git commit -q --allow-empty -m x; test ! -e $TOP/d/HEAD || touch $TOP/ran", []string{".git/logs"}},
		"an index that writes into .git": {"", "b=$(printf '#!/bin/sh\\ntouch '$TOP/ran | git hash-object -w --stdin); git update-index --add --cacheinfo 100755,$b,_git/hooks/post-checkout; sed -i s/_git/.git/ .git/index", "git checkout -q -- . 2> /dev/null || true; git checkout -q -b x 2> /dev/null || true", []string{".git/index"}},
		"a remote of old":                {"", evil + "mkdir -p .git/remotes; printf 'URL: evil://x\\n' > .git/remotes/o", "PATH=$PWD/bin:$PATH; git fetch o > /dev/null 2>&1 || true", []string{".git/remotes/o"}},
		"a branch of old":                {"", evil + "mkdir -p .git/branches; echo evil://x > .git/branches/o", "PATH=$PWD/bin:$PATH; git fetch o > /dev/null 2>&1 || true", []string{".git/branches/o"}},
		"conflicts to replay":            {"", "mkdir -p .git/rr-cache/x; echo x > .git/rr-cache/x/postimage; printf '%040d\\tf\\0' 1 > .git/MERGE_RR", "test ! -e .git/MERGE_RR || touch $TOP/ran", []string{".git/MERGE_RR", ".git/rr-cache/x"}},
		"a repository of somebody's own": {"mkdir d; git config -f d/config core.fsmonitor 'touch '$TOP'/ran; false'; git add d; git commit -q -m d", "cp -a .git/HEAD .git/objects .git/refs d/", "git -C d --work-tree=. status > /dev/null 2>&1 || true", []string{"d/HEAD", "d/objects", "d/refs"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, seen := newGitStand(t, c.before, c.plant, c.use+"; cd $TOP; ls")
			require.Contains(t, seen, "\nran\n", "the control: git falls for it")
			// What came from elsewhere.
			u := s.open()
			sets, err := u.Changes()
			require.NoError(t, err)
			_, err = u.Keep(sets)
			require.NoError(t, err)
			again, err := s.open().Changes()
			require.NoError(t, err)
			require.Equal(t, c.want, outermost(slices.DeleteFunc(again[0].Changes, func(c Change) bool { return c.Protect == "" })))
			// The run's own.
			s.overlay()
			s.settle()
			out, err := s.apply()
			require.NoError(t, err)
			require.Equal(t, c.want, outermost(out.Withheld))
			s.sh(c.use + "; test ! -e $TOP/ran")
		})
	}
}

// What git does in daily work is applied as it is, and git finds nothing wrong with what is on the host then.
func TestApplyHonestGit(t *testing.T) {
	const commits = "for i in 1 2 3; do echo $i > f$i; git add f$i; git commit -q -m $i; done; "
	for name, c := range map[string]struct{ before, run, in string }{
		"a clone": {commits, "git clone -q . c; git -C c commit -q --allow-empty -m x", "c"}, "a new one": {"", "git init -q n; cd n; " + commits, "n"}, "a bare one": {commits, "git clone -q --bare . b; git push -q ./b HEAD:x", ""},
		"commits":              {"", commits + "git commit -q --amend -m four; git tag -a -m x v1; git branch a/b; git update-ref refs/heads/c a/b; git branch -q -D a/b", ""},
		"a rebase":             {commits + "git branch o HEAD~1", "git checkout -q -b side HEAD~2; echo x > x; git add x; git commit -q -m x; git rebase -q main", ""},
		"a stash":              {commits, "echo y > f1; git stash -q; git stash pop -q; echo z > f2; git stash -q", ""},
		"a merge":              {commits, "git checkout -q -b o HEAD~1; echo x > x; git add x; git commit -q -m x; git checkout -q -; git merge -q --no-edit o", ""},
		"a merge that is open": {commits, "git checkout -q -b o HEAD~1; echo x > f3; git add f3; git commit -q -m x; git checkout -q -; git merge -q o > /dev/null || true; test -e .git/MERGE_HEAD", ""},
		"a pick":               {commits, "git checkout -q -b o HEAD~1; echo x > x; git add x; git commit -q -m x; git checkout -q -; git cherry-pick o > /dev/null; git revert --no-edit HEAD > /dev/null", ""},
		"worktrees":            {commits + "git worktree add -q u", "git worktree add -q w; cd w; echo x > x; git add x; git commit -q -m x; cd ..; git worktree add -q v; git worktree remove v; git worktree remove u; git worktree lock w", "w"},
		"a submodule":          {"git init -q ../s; git -C ../s commit -q --allow-empty -m s; git submodule --quiet add $TOP/s s; git commit -q -m s; git submodule --quiet deinit -f s; rm -rf .git/modules; git config submodule.s.url $TOP/s; git -C ../s commit -q --allow-empty -m t", "git submodule --quiet update; git submodule --quiet update --remote; git commit -q -a -m u", "s"},
		"a fetch":              {"git init -q ../o; git -C ../o commit -q --allow-empty -m o; git -C ../o tag v; git remote add origin $TOP/o", "git fetch -q origin; git fetch -q --tags; git remote set-head origin -a > /dev/null", ""},
		"a shallow one":        {commits, "git clone -q --depth 1 file://$PWD c; git -C c fetch -q --depth 2", "c"},
		"packed":               {commits + "git commit-graph write --reachable; git repack -q -d; git multi-pack-index write", "git gc -q; echo x > x; git add x; git commit -q -m x; git repack -q -a -d -b; git pack-refs --all; git commit-graph write --reachable; git multi-pack-index write; git update-server-info", ""},
		"a bisection":          {commits, "git bisect start -q HEAD HEAD~2 > /dev/null; git bisect good > /dev/null; git bisect reset > /dev/null 2>&1", ""},
		"a split index":        {commits, "git update-index --split-index; echo x > f1; git add f1; git commit -q -m x", ""},
		"an untracked cache":   {commits, "git update-index --untracked-cache; git status > /dev/null; git update-index --index-version 4", ""},
		"a partial clone":      {commits + "git config uploadpack.allowFilter true", "git clone -q --filter=blob:none file://$PWD c; git -C c log -p > /dev/null", "c"},
		"another hash":         {"rm -rf .git; git init -q --object-format=sha256; rm -rf .git/hooks; " + commits, "echo x > x; git add x; git commit -q -m x; git gc -q; git init -q --object-format=sha256 n; cd n; " + commits, "n"},
		"git-lfs":              {commits, "mkdir -p .git/lfs/objects/ab/cd .git/lfs/tmp .git/lfs/cache/locks; echo x > .git/lfs/objects/ab/cd/abcd0000; echo x > .git/lfs/tmp/123", ""},
	} {
		t.Run(name, func(t *testing.T) {
			const state = "git status --porcelain=v2 --branch; git diff HEAD; git log --all --oneline; git ls-files -s; git worktree list"
			look := state + "; cd " + cmp.Or(c.in, ".") + "; " + state
			s, seen := newGitStand(t, c.before, c.run, look)
			out, err := s.settle().apply()
			require.NoError(t, err)
			require.Empty(t, out.Withheld)
			require.Zero(t, out.Left)
			s.sh("! grep -aqE 'TREE|REUC|UNTR|EOIE' .git/index; test -z \"$(git fsck --strict --no-dangling 2>&1)\"; cd " + cmp.Or(c.in, ".") + "; test -z \"$(git fsck --strict --no-dangling 2>&1)\"")
			require.Equal(t, seen, s.sh(look))
		})
	}
}
