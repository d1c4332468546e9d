package workspace

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change that git would carry over to a protected name, since it takes another file for
// that under a new name, is told of. That git does so is the control; no commit of the run has
// the name with what comes there.
func TestGuardTellsOfWhatRenamesCarry(t *testing.T) {
	const (
		old   = "seq 9 > .envrc; git add .envrc; git commit -q -m old; "
		trees = `e=$(git rev-parse HEAD:.envrc); h=$( { git cat-file blob $e; echo hostile; } | git hash-object -w --stdin); b=$(git ls-tree HEAD | sed 's/\.envrc/x/' | git mktree); t=$(git ls-tree HEAD | sed "s/$e\t.envrc/$h\tx/" | git mktree); `
		half  = trees + `f=$( { git cat-file blob $e; seq 20 25; } | git hash-object -w --stdin); b=$(git ls-tree HEAD | sed "s/$e\t.envrc/$f\tx/" | git mktree); h=$( { git cat-file blob $f; echo hostile; } | git hash-object -w --stdin); t=$(git ls-tree $b | sed "s/$f/$h/" | git mktree); `
		stash = "B=$(git commit-tree -m b $b); git update-ref --create-reflog refs/stash $(git commit-tree -p $B -p $(git commit-tree -p $B -m i $b) -m t $t)"
		wrote = "grep hostile .envrc"
		code  = "mkdir .vscode; seq 9 > .vscode/settings.json; git add .; git commit -q -m code; "
		dirs  = `b=$(git ls-tree HEAD | sed 's/\.vscode/d/' | git mktree); d=$( { git ls-tree HEAD:.vscode; printf "100644 blob $(echo hostile | git hash-object -w --stdin)\ttasks.json\n"; } | git mktree); t=$(git ls-tree $b | sed "s/[0-9a-f]*\td$/$d\td/" | git mktree); `
	)
	for name, c := range map[string]struct {
		before, run, then string
		want              []string
	}{
		"in a stash":                    {old, trees + stash, "git stash pop -q; " + wrote, []string{"review .envrc"}},
		"of a file that is like it":     {old, half + stash, "git stash pop -q > /dev/null || true; " + wrote, []string{"review .envrc"}},
		"behind a removal":              {old, trees + "git branch x $(git commit-tree -p $(git commit-tree -p HEAD -m b $b) -m t $t)", "git cherry-pick x; " + wrote, []string{"review .envrc"}},
		"in two steps":                  {old, half + "u=$(git ls-tree $t | sed \"s/$h/$(echo hostile | git hash-object -w --stdin)/\" | git mktree); B=$(git commit-tree -m b $b); T=$(git commit-tree -p $B -m t $t); git branch x $(git commit-tree -p $T -m u $u)", "git rebase -q --onto HEAD x~2 x > /dev/null 2>&1 || true; " + wrote, []string{"review .envrc"}},
		"by a revert":                   {old, trees + "git branch x $(git commit-tree -p $(git commit-tree -m t $t) -m b $b)", "git revert --no-edit x; " + wrote, []string{"review .envrc"}},
		"from the time of another name": {"seq 9 > x; git add x; git commit -q -m x; git mv x .envrc; git commit -q -m envrc", "git switch -q --detach HEAD~1; echo hostile >> x; git commit -q -am y; git branch y; git switch -q -", "git merge -q -m m y; " + wrote, []string{"review .envrc"}},
		"to another branch's":           {"git switch -q -c o; " + old + "git switch -q -; git switch -q -c p; git switch -q -; cp /dev/null .envrc; git add .envrc; git commit -q -m empty", "git switch -q o; " + trees + stash + "; git switch -q -", "git switch -q o; git stash pop -q; " + wrote, []string{"review .envrc"}},
		"to one that is ignored":        {"seq 9 > .envrc; echo .envrc > .gitignore; git add .gitignore; git commit -q -m ignore", "cp .envrc x; git add x; git commit -q -m x; git branch y $(git commit-tree -m y -p HEAD $(git ls-tree HEAD | sed 's/\tx/\t.envrc/' | git mktree)); echo hostile >> x; git commit -q -am ours", "git merge -q -m m y; " + wrote, []string{"review .envrc"}},
		"into a directory":              {code, dirs + "git branch y $(git commit-tree -p $(git commit-tree -m b $b) -m t $t)", "git cherry-pick y > /dev/null 2>&1 || true; grep hostile .vscode/tasks.json", []string{"review .vscode"}},
		"in a worktree of it":           {old + "git worktree add -q w", "cd w; " + trees + stash, "cd w; git stash pop -q; " + wrote, []string{"review .envrc"}},
		"control: of what is not like":  {old, `b=$(git ls-tree HEAD | sed "s/[0-9a-f]*\t.envrc/$(seq 20 90 | git hash-object -w --stdin)\tx/" | git mktree); t=$(git ls-tree $b | sed "s/[0-9a-f]*\tx/$(seq 20 91 | git hash-object -w --stdin)\tx/" | git mktree); ` + stash, "! git stash pop -q 2> /dev/null; ! " + wrote, nil},
		"control: a removal alone":      {old, trees + "git branch x $(git commit-tree -p HEAD -m b $b)", "", nil},
		"control: beside its double":    {old + "cp .envrc envrc.example; git add .; git commit -q -m example", "echo more >> envrc.example; git commit -q -am more; git revert --no-edit HEAD", "", nil},
		"control: an ignored one's":     {"seq 9 > .envrc; echo .envrc > .gitignore; cp .envrc envrc.example; git add .; git commit -q -m ignore", "echo more >> envrc.example; git commit -q -am more; git stash -q", "", nil},
		"control: an old branch":        {"git branch o; " + old + code, `p=o; for i in 1 2 3; do t=$(git ls-tree o | sed "s/[0-9a-f]*\tone/$(seq $i | git hash-object -w --stdin)\tone/" | git mktree); p=$(git commit-tree -p $p -m $i $t); done; git branch p $p; git branch m $(git commit-tree -p HEAD -p p -m m $(git merge-tree --write-tree HEAD p))`, "git merge -q m", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			w.guard.knowTips(nil)
			w.sh(asUser + "set -e; " + c.run)
			got := slices.Compact(w.end())
			w.sh(asUser + c.then)
			require.Equal(t, c.want, got)
		})
	}
}

// That there are more names than are compared is said: one of them could be it.
func TestGuardTellsOfTooManyNames(t *testing.T) {
	const (
		names = "for i in $(seq N); do mkdir d$i; echo $i > d$i/.envrc; done; git add .; git commit -q -m names"
		edit  = "echo two > one; git commit -q -am two"
	)
	for name, c := range map[string]struct {
		before, run string
		want        []string
	}{
		"names":         {strings.Replace(names, "N", "600", 1), edit, []string{"review .git"}},
		"control: some": {strings.Replace(names, "N", "60", 1), edit, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			w.guard.knowTips(nil)
			w.sh(asUser + "set -e; " + c.run)
			require.Equal(t, c.want, slices.Compact(w.end()))
		})
	}
}
