package workspace

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plainGit asks git without a sandbox.
func plainGit(questions []GitQuestion) (answers []GitAnswer) {
	dir, err := os.MkdirTemp("", "shallow")
	if err != nil {
		return nil
	}
	defer os.RemoveAll(dir)
	for _, q := range questions {
		shallow := ""
		if q.Shallow != "" {
			shallow = dir + "/shallow"
			if os.WriteFile(shallow, []byte(q.Shallow), 0o600) != nil {
				return nil
			}
		}
		var out []byte
		var err error
		for _, args := range [][]string{q.Args, q.Else} {
			if args == nil {
				break
			}
			c := exec.Command("git", append([]string{"--git-dir=" + q.Dir, "--shallow-file", shallow}, args...)...)
			c.Stdin = strings.NewReader(q.Input)
			if out, err = c.Output(); err == nil {
				break
			}
		}
		answers = append(answers, GitAnswer{out, err})
	}
	return answers
}

// What the run has committed, stashed and staged of protected names is told of, since git
// writes it, outside, when it is asked: which is the control.
func TestGuardTellsOfCommits(t *testing.T) {
	const (
		blob   = "b=$(echo hostile | git hash-object -w --stdin); "
		stage  = "git update-index --add --cacheinfo 100755,$b,"
		envrc  = blob + stage + ".envrc; "
		unsaid = "git read-tree HEAD; "
		commit = "git commit -q -m planted; "
		wrote  = "test -e .envrc -o -L .envrc"
		pack   = "git repack -q -a -d; git pack-refs --all; "
		tree   = "git commit-tree -p HEAD -m planted $(git write-tree)"
		old    = "echo old > .envrc; git add .envrc; git commit -q -m old; "
		other  = envrc + "h=$(" + tree + "); " + unsaid // a commit that no name leads to
		behind = other + "c=$(git commit-tree -p $h -m less HEAD^{tree}); git branch x $c; "
	)
	for name, c := range map[string]struct {
		before, run string
		then        string // outside
		wrote       string // what is there then
		want        []string
	}{
		"in the branch":                {"", envrc + commit, "git restore .", wrote, []string{"review .envrc"}},
		"in another branch":            {"", envrc + "git branch x $(" + tree + "); " + unsaid, "git switch -q x", wrote, []string{"review .envrc"}},
		"packed":                       {"", envrc + "git branch x $(" + tree + "); " + unsaid + pack, "git switch -q x", wrote, []string{"review .envrc"}},
		"as a delta":                   {"for i in $(seq 300); do echo $i > f$i; done; git add .; git commit -q -m many", envrc + "git branch x $(" + tree + "); " + unsaid + "git repack -q -a -d -f --depth=50 --window=50; ", "git switch -q x", wrote, []string{"review .envrc"}},
		"staged":                       {"", envrc, "git restore .", wrote, []string{"review .envrc"}},
		"staged, of old content":       {"echo hostile > f; git add f; git commit -q -m f", "b=$(git rev-parse HEAD:f); " + stage + ".envrc", "git restore .", wrote, []string{"review .envrc"}},
		"staged in a split index":      {"git update-index --split-index", envrc, "git restore .", wrote, []string{"review .envrc"}},
		"in what an index shares":      {"", envrc + "git update-index --split-index", "git restore .", wrote, []string{"review .envrc"}},
		"in place in a split index":    {"echo old > .envrc; git add .envrc; git commit -q -m old; git update-index --split-index", "b=$(echo hostile | git hash-object -w --stdin); git update-index --cacheinfo 100644,$b,.envrc", "git restore .", "grep hostile .envrc", []string{"review .envrc"}},
		"behind a shallow commit":      {"", behind + "echo $c > .git/shallow", "rm .git/shallow; git checkout -q x~1", wrote, []string{"review .envrc"}},
		"behind a graft":               {"", behind + "echo $c > .git/info/grafts", "rm -f .git/info/grafts; git checkout -q x~1", wrote, []string{"inert .git/info/grafts", "review .envrc"}},
		"behind a replacement":         {"", behind + "git replace -g $c", "git replace -l | xargs -r git replace -d; git checkout -q x~1", wrote, []string{"inert .git/refs/replace", "review .envrc"}},
		"in a stash":                   {"", envrc + "git update-ref --create-reflog refs/stash $(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m i HEAD^{tree}) -m x $(git write-tree)); " + unsaid, "git stash pop -q", wrote, []string{"review .envrc"}},
		"in a stash below another":     {"", envrc + "git update-ref --create-reflog refs/stash $(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m i HEAD^{tree}) -m x $(git write-tree)); " + unsaid + "git update-ref --create-reflog refs/stash $(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m i HEAD^{tree}) -m y HEAD^{tree})", "git stash pop -q stash@{1}", wrote, []string{"review .envrc"}},
		"as if fetched":                {"", other + "printf '%s\\t\\tx\\n' $h > .git/FETCH_HEAD", "git merge -q FETCH_HEAD", wrote, []string{"review .envrc"}},
		"where checkout - leads":       {"", "git switch -q --detach; " + envrc + commit + "git switch -q -", "git checkout -q -", wrote, []string{"review .envrc"}},
		"taken back by the next":       {"", envrc + commit + "git rm -q --cached .envrc; git commit -q -m back", "git checkout -q HEAD~1", wrote, []string{"review .envrc"}},
		"in a tag":                     {"", envrc + "git tag -a -m x x $(" + tree + "); " + unsaid, "git checkout -q x", wrote, []string{"review .envrc"}},
		"a directory":                  {"", blob + stage + ".husky/pre-commit; " + commit, "git restore .", "test -e .husky/pre-commit", []string{"review .husky/pre-commit"}},
		"a directory of an old tree":   {"mkdir d; echo x > d/pre-commit; git add d; git commit -q -m d", "{ git ls-tree HEAD; printf '040000 tree %s\\t.husky\\n' $(git rev-parse HEAD:d); } | git mktree > t; git branch x $(git commit-tree -p HEAD -m x $(cat t)); rm t", "git switch -q x", "test -e .husky/pre-commit", []string{"review .husky/pre-commit"}},
		"a link on the way":            {"", "b=$(printf elsewhere | git hash-object -w --stdin); git update-index --add --cacheinfo 120000,$b,.husky; " + commit, "git restore .", "test -L .husky", []string{"review .husky"}},
		"in a worktree of it":          {"git worktree add -q w", "cd w; " + envrc + commit, "cd w; git restore .", "test -e w/.envrc", []string{"review .envrc"}},
		"in one that is elsewhere":     {"find . -mindepth 1 -delete; git init -q ../main; cd ../main; git commit -q --allow-empty -m one; git worktree add -q ../ws", envrc + commit, "git restore .", wrote, []string{"review .envrc"}},
		"alone in a worktree of it":    {"git worktree add -q w", "cd w; git checkout -q --detach; " + envrc + commit, "cd w; git restore .", "test -e w/.envrc", []string{"review w/.envrc"}},
		"staged in a worktree of it":   {"git worktree add -q w", "cd w; " + envrc, "cd w; git restore .", "test -e w/.envrc", []string{"review w/.envrc"}},
		"where names are of SHA-256":   {"rm -rf .git; git init -q --object-format=sha256; git commit -q --allow-empty -m one", envrc + commit, "git restore .", wrote, []string{"review .envrc"}},
		"in one that is new":           {"", "git init -q n; cd n; " + envrc + commit, "cd n; git restore .", "test -e n/.envrc", []string{"review n/.git"}},
		"in a clone that shares":       {"", "git clone -q -s . n; cd n; " + envrc + commit, "cd n; git restore .", "test -e n/.envrc", []string{"inert n/.git/objects/info/alternates", "review n/.git"}},
		"a submodule on the way":       {"", "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),.husky; " + commit, "git restore .", "test -d .husky", []string{"review .husky"}},
		"control: merged, and changed": {old + "git switch -q -c o; echo 3 > one; git commit -q -am 3; git switch -q -; echo 4 > one; git commit -q -am 4; echo mine >> .envrc", "git merge -q o > /dev/null || test -e .git/AUTO_MERGE", ":", "true", []string{"review .git/MERGE_HEAD"}},
		"control: tables that stood":   {"mkdir .git/reftable; echo x > .git/reftable/tables.list", "git status", ":", "true", nil},
		"staged before the first":      {"rm -rf .git one; git init -q", envrc, "git restore .", wrote, []string{"review .envrc"}},
		"executable by now":            {"mkdir .husky; echo hostile > .husky/pre-commit; git add .husky; git commit -q -m off", "git update-index --chmod=+x .husky/pre-commit; git commit -q -m on", "git restore .", "test -x .husky/pre-commit", []string{"review .husky/pre-commit"}},
		"in one without a worktree":    {"git clone -q --bare . ../b; find . -mindepth 1 -delete; cp -r ../b/. .", "export GIT_DIR=$PWD GIT_INDEX_FILE=$PWD/../i; " + envrc + "git branch x $(" + tree + ")", "git worktree add -q ../v x", "test -e ../v/.envrc", []string{"review .envrc"}},
		"many":                         {"", blob + "for i in $(seq 30); do " + stage + "$i/.envrc; done; " + commit, "git restore .", "test -e 30/.envrc", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			w.sh(asUser + "set -e; " + c.run)
			got := w.end()
			w.sh(asUser + "( " + c.then + " ) > /dev/null; if ! " + c.wrote + "; then echo control: git writes it; exit 1; fi")
			if name == "many" {
				require.Len(t, got, maxNamed+1)
				return
			}
			require.Equal(t, strings.Join(c.want, " "), strings.Join(got, " "))
		})
	}
}

// TestGuardKnowsWhatGitReached: what was there when a run began, and no reference led to, is news when one does; what the
// user has committed since the run before is none.
func TestGuardKnowsWhatGitReached(t *testing.T) {
	const (
		plant = "b=$(echo hostile | git hash-object -w --stdin); git update-index --add --cacheinfo 100755,$b,.envrc; h=$(git commit-tree -p HEAD -m planted $(git write-tree)); git read-tree HEAD; "
		less  = "c=$(git commit-tree -p $h -m less HEAD^{tree}); echo $c > ../c; "
		hide  = "f=.git/objects/$(echo $h | cut -c1-2)/$(echo $h | cut -c3-); "
	)
	for name, c := range map[string]struct {
		first, between, second string
		want                   []string
		control                string
	}{
		"a commit that nothing led to": {plant + "echo $h > ../h", "", "git branch x $(cat ../h)", []string{"review .envrc"}, "git switch -q x; test -e .envrc"},
		"behind a shallow file":        {plant + less + "echo $c > .git/shallow", "", "git branch x $(cat ../c)", []string{"review .envrc"}, "rm .git/shallow; git checkout -q x~1; test -e .envrc"},
		"behind a merge in one":        {plant + "c=$(echo \"tree $(git rev-parse HEAD^{tree})\nparent $h\nparent $(printf %040d 1)\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nm\" | git hash-object -t commit -w --stdin); echo $c > ../c; echo $c > .git/shallow", "", "git branch x $(cat ../c)", []string{"review .envrc"}, "git checkout -q x; test -e .git/shallow"},
		"control: the user's commits":  {"git commit -q --allow-empty -m work", "echo ours > .envrc; git add .envrc; git commit -q -m ours; git rm -q .envrc; git commit -q -m gone", "git branch x HEAD~1; git commit -q --allow-empty -m more", nil, "git switch -q x"},
		"control: a shallow clone":     {"true", "git commit -q --allow-empty -m two; echo ours > .envrc; git add .envrc; git commit -q -m ours; git rm -q .envrc; git commit -q -m gone; git commit -q --allow-empty -m three; git clone -q --depth=1 file://$PWD ../c; rm -rf .git; mv ../c/.git .; git config gc.auto 0", "git commit -q --allow-empty -m more", nil, "test $(git rev-list HEAD | wc -l) = 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one")
			w.begin()
			w.sh(asUser + "set -e; " + c.first)
			require.Empty(t, w.end())
			w.sh(asUser + c.between)
			w.begin()
			w.sh(asUser + "set -e; " + c.second)
			require.Equal(t, c.want, w.end())
			w.sh(asUser + "set -e; " + c.control)
		})
	}
}

// TestGuardTellsOfMissingCommits: a reference to what is not there yet is told of, since a later run could bring that.
func TestGuardTellsOfMissingCommits(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "echo one > one; git add one; git commit -q -m one; git commit -q --allow-empty -m two; git branch stood; git reset -q --hard HEAD~1")
	w.begin()
	w.sh(asUser + "echo 1111111111111111111111111111111111111111 > .git/refs/heads/x; git update-index --add --cacheinfo 100755,$(echo hostile | git hash-object -w --stdin),.envrc; git commit -q -m planted")
	w.sh(asUser + "h=$(git rev-parse stood); rm -f .git/objects/$(echo $h | cut -c1-2)/$(echo $h | cut -c3-)")
	require.Equal(t, []string{"review .envrc", "review .git"}, w.end(), "what stood and is gone hides nothing")
}

// What stood, and ordinary work beside it, is nothing to hear of.
func TestGuardTellsOfNoOtherCommits(t *testing.T) {
	for name, c := range map[string]struct{ before, run string }{
		"work":                   {"", "for i in 1 2 3; do echo $i > one; git commit -q -am $i; done; git branch x HEAD~1; git stash -q; git tag y"},
		"beside a name":          {"echo ours > .envrc; git add .envrc; git commit -q -m envrc", "echo two > one; git commit -q -am two"},
		"the first of all":       {"rm -rf .git; git init -q; echo ours > .envrc", "git add .; git commit -q -m all"},
		"a branch that had it":   {"git switch -q -c x; echo theirs > .envrc; git add .envrc; git commit -q -m envrc; git switch -q -", "git branch y x; git tag z x; echo two > one; git commit -q -am two"},
		"collected":              {"git switch -q -c x; echo theirs > .envrc; git add .envrc; git commit -q -m envrc; git switch -q -; git commit -q --allow-empty -m more", "git commit -q --allow-empty -m two; git repack -q -d"},
		"collected whole":        {"git switch -q -c x; echo theirs > .envrc; git add .envrc; git commit -q -m envrc; echo more > .envrc; git commit -q -am more; git switch -q -; git commit -q --allow-empty -m more", "git commit -q --allow-empty -m two; git gc -q --prune=now; git commit -q --allow-empty -m three; git branch y x~1"},
		"of a package":           {"", "git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),node_modules/x/.envrc; git commit -q -m packages"},
		"for review":             {"", "echo '{}' > package.json; git add package.json; git commit -q -m package; rm package.json"},
		"a merge of what it had": {"git switch -q -c x; echo theirs > .envrc; git add .envrc; git commit -q -m envrc; git switch -q -; echo two > two; git add two; git commit -q -m two", "git update-ref refs/heads/m $(git commit-tree -p HEAD -p x -m m $(git merge-tree --write-tree HEAD x))"},
		"of a sparse index":      {"mkdir d e; echo e > e/.envrc; git mv one d/one; git add .; git commit -q -m d; git sparse-checkout set --sparse-index --cone d", "echo two > d/one; git commit -q -am two; git sparse-checkout add e; git commit -q --allow-empty -m three; git sparse-checkout set d; git status"},
		"added in part":          {"", "echo new > new; git add -N new; mkdir d; echo x > d/x; git add d; git commit -q -m d; git status; git write-tree; git add new"},
		"a conflict of before":   {"git switch -q -c x; echo theirs > .envrc; git add .envrc; git commit -qm theirs; git switch -q -; echo ours > .envrc; git add .envrc; git commit -qm ours; git merge -q x > /dev/null || true; echo both > .envrc; git add .envrc; git commit -qm both; git ls-files --resolve-undo | grep .", "echo two > one; git commit -q -am two; git ls-files --resolve-undo | grep ."},
		"a removal":              {"echo ours > .envrc; git add .envrc; git commit -q -m envrc", "git rm -q --cached .envrc; git commit -q -m less"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			w.sh(asUser + "set -e; " + c.run)
			require.Empty(t, w.end())
		})
	}
}

// What references led to is known before the command starts: also where a reference changed just before, and where the
// run is over before its guard has looked.
func TestGuardKnowsWhatReferencesLedTo(t *testing.T) {
	for name, c := range map[string]struct {
		run  string
		want []string
	}{
		"what stood is no news": {"git commit -q --allow-empty -m more; git branch x; git tag y HEAD~1", nil},
		"control: what is new":  {"git update-index --add --cacheinfo 100755,$(echo hostile | git hash-object -w --stdin),sub/.npmrc; git commit -q -m planted", []string{"review sub/.npmrc"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatchman(t)
			time.Sleep(2 * racy) // the repository is older than the run, and its references are not
			since := time.Now()
			w.sh(asUser + "echo theirs > .envrc; git add .envrc; git commit -q -m envrc; git rm -q .envrc; git commit -q -m gone")
			found := scanOf(t, w.query)
			found.Start = since
			s := found.Standing("20261121T120000Z-0a0b0c0d", w.query)
			w.sh(asUser + c.run)
			var err error
			w.guard, err = NewGuard(s, found, nil, w.stash(), func(f Finding) { w.told <- f })
			require.NoError(t, err)
			w.guard.AskGit = plainGit
			w.guard.Watch()
			require.Equal(t, strings.Join(c.want, " "), strings.Join(w.end(), " "))
		})
	}
}
