package workspace

import (
	"bytes"
	"compress/zlib"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/workspace/vcs"
)

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
		"in a stash":                   {"", envrc + "git update-ref --create-reflog refs/stash $(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m i HEAD^{tree}) -m x $(git write-tree)); " + unsaid, "git stash pop -q", wrote, []string{"review .envrc"}},
		"in a stash below another":     {"", envrc + "git update-ref --create-reflog refs/stash $(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m i HEAD^{tree}) -m x $(git write-tree)); " + unsaid + "git update-ref --create-reflog refs/stash $(git commit-tree -p HEAD -p $(git commit-tree -p HEAD -m i HEAD^{tree}) -m y HEAD^{tree})", "git stash pop -q stash@{1}", wrote, []string{"review .envrc"}},
		"taken back by the next":       {"", envrc + commit + "git rm -q --cached .envrc; git commit -q -m back", "git checkout -q HEAD~1", wrote, []string{"review .envrc"}},
		"in a tag":                     {"", envrc + "git tag -a -m x x $(" + tree + "); " + unsaid, "git checkout -q x", wrote, []string{"review .envrc"}},
		"by a name that git fetches":   {"", envrc + "printf \"%s\\t\\tbranch 'x' of there\\n\" $(" + tree + ") > .git/FETCH_HEAD; " + unsaid, "git merge -q FETCH_HEAD", wrote, []string{"review .envrc"}},
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
		"in an old pack":               {"", other + "git branch x $h; git repack -q -a -d; cd .git/objects/pack; chmod u+w *; for p in *.pack; do git index-pack --index-version=1 -o new.idx $p > /dev/null; mv -f new.idx ${p%.pack}.idx; done; rm -f *.rev", "git switch -q x", wrote, []string{"review .envrc"}},
		"executable by now":            {"mkdir .husky; echo hostile > .husky/pre-commit; git add .husky; git commit -q -m off", "git update-index --chmod=+x .husky/pre-commit; git commit -q -m on", "git restore .", "test -x .husky/pre-commit", []string{"review .husky/pre-commit"}},
		"old, where HEAD is another's": {old + "git branch o; git pack-refs --all; git rm -q .envrc; git commit -q -m less; git branch less", "git update-index --add --cacheinfo 100644,$(git rev-parse o:.envrc),.envrc; git update-ref refs/heads/$(git branch --show-current) o; git pack-refs --all; echo 'ref: refs/heads/less' > .git/refs/heads/$(git branch --show-current)", "git restore .", wrote, []string{"review .envrc"}},
		"old, beside a forged branch":  {old + "git rm -q .envrc; git commit -q -m less; git worktree add -q w", "cd w; git update-index --add --cacheinfo 100644,$(git rev-parse HEAD~1:.envrc),.envrc; mkdir -p ../.git/worktrees/w/refs/heads; git rev-parse HEAD~1 > ../.git/worktrees/w/refs/heads/w", "cd w; git restore .", "test -e w/.envrc", []string{"review w/.envrc"}},
		"by a name with a slash":       {"", blob + "{ printf '100644 .husky/pre-commit\\0'; perl -e 'print pack(\"H*\", shift)' $b; } > tt; git branch x $(git commit-tree -p HEAD -m x $(git hash-object -t tree -w --literally --stdin < tt)); rm tt", "git checkout -q -f x", "test -e .husky/pre-commit", []string{"review .husky/pre-commit"}},
		"of a tree beside packages":    {"", "mkdir -p node_modules sub; git init -q --separate-git-dir=node_modules/r sub; cd sub; echo 'gitdir: ../node_modules/r' > .git; git commit -q --allow-empty -m one; " + envrc + commit, "cd sub; git restore .", "test -e sub/.envrc", []string{"review node_modules/r"}},
		"in one without a worktree":    {"git clone -q --bare . ../b; find . -mindepth 1 -delete; cp -r ../b/. .", "export GIT_DIR=$PWD GIT_INDEX_FILE=$PWD/../i; " + envrc + "git branch x $(" + tree + ")", "git worktree add -q ../v x", "test -e ../v/.envrc", []string{"review .envrc"}},
		"many":                         {"", blob + "for i in $(seq 30); do " + stage + "$i/.envrc; done; " + commit, "git restore .", "test -e 30/.envrc", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			w.guard.knowTips(nil)
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

// What a run leaves without a name, and a later one names, is told of then; what others led
// to is not, and nor does a name for what stood cost more than it should.
func TestGuardTellsOfWhatIsNamedLater(t *testing.T) {
	const dates = "export GIT_AUTHOR_DATE=1700000000+0000 GIT_COMMITTER_DATE=1700000000+0000; " // else a directory might have others of them
	const more = "for i in $(seq 40); do h=$(git commit-tree -m x -p $h $(git rev-parse $h^{tree})); done; "
	for name, c := range map[string]struct{ first, last, then string }{
		"by a branch":     {"", "git branch x $(cat id)", "git checkout -q x"},
		"by a commit":     {"", "git branch x $(git commit-tree -m x -p $(cat id) $(cat id)^{tree})", "git checkout -q x"},
		"far behind":      {more, "git branch x $(cat id)", "git checkout -q x"},
		"far, as HEAD":    {more, "git branch x $(cat id); git symbolic-ref HEAD refs/heads/x", "git reset -q --hard"},
		"in a worktree":   {"", "cd w; git checkout -q HEAD~1; git checkout -q HEAD~1 2> /dev/null || git reset -q --soft HEAD~1; git checkout -q -f w", ""},
		"moved in":        {"f=$(echo $h | cut -c1-2); mkdir d; mv .git/objects/$f d/; ", "mv d/?? .git/objects/; git branch x $(cat id)", "git checkout -q x"},
		"by a packed one": {"", "git branch x $(cat id); git pack-refs --all", "git checkout -q x"},
		"control":         {"", "git branch x HEAD~1; git checkout -q HEAD~2; git checkout -q -", ""},
	} {
		t.Run(name, func(t *testing.T) {
			{
				w := newWatchman(t)
				w.sh(asUser + dates + "echo theirs > .husky; git add .; git commit -q -m one; git rm -q .husky; git commit -q -m two; git commit -q --allow-empty -m three; git worktree add -q w")
				w.begin()
				w.sh(asUser + dates + "set -e; git update-index --add --cacheinfo 100644,$(echo hostile | git hash-object -w --stdin),.envrc; h=$(git commit-tree -p HEAD -m planted $(git write-tree)); git read-tree HEAD; " + c.first + "echo $h > id")
				require.Empty(t, w.end())
				w.begin()
				w.guard.knowTips(nil)
				w.sh(asUser + "set -e; " + c.last)
				if got := w.end(); c.then == "" {
					require.Empty(t, got)
					return
				} else {
					require.Equal(t, []string{"review .envrc"}, got)
				}
				w.sh(asUser + c.then + "; test -e .envrc")
			}
		})
	}
}

// One line says of a name what has another content under it.
func TestGuardTellsOfOtherContent(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "echo one > one; git add one; git commit -q -m one")
	w.begin()
	w.guard.knowTips(nil)
	w.sh(asUser + "set -e; for i in 1 1 2; do git update-index --add --cacheinfo 100644,$(echo $i | git hash-object -w --stdin),.envrc; git commit -q --allow-empty -m $i; done; git update-index --cacheinfo 100644,$(echo 3 | git hash-object -w --stdin),.envrc")
	found, err := w.guard.Finish()
	require.NoError(t, err)
	w.guard.Close()
	require.Len(t, found, 1)
	require.Regexp(t, `^in [0-9a-f]{12} \(refs/heads/\w+\), other content in [0-9a-f]{12} \(.+\), other content in the index$`, found[0].What)
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
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one; " + c.before)
			w.begin()
			w.guard.knowTips(nil)
			w.sh(asUser + "set -e; " + c.run)
			require.Empty(t, w.end())
		})
	}
}

// Names that git itself refuses end nothing: what stands beside them is told of.
func TestGuardReadsHostileObjects(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "echo one > one; git add one; git commit -q -m one")
	w.begin()
	w.guard.knowTips(nil)
	var tree []byte
	for _, name := range []string{"x/", "/", "//", ".envrc/", ".", "..", ".git", "../x", ".envrc"} {
		tree = append(tree, "100644 "+name+"\x00"+vcs.FormatSHA1.BlobID([]byte("hostile\n"))...)
	}
	require.NoError(t, os.WriteFile(w.root+"/tree", tree, 0o644))
	w.sh(asUser + `set -e
echo hostile | git hash-object -w --stdin
t=$(git hash-object -t tree -w --stdin --literally < tree); rm tree
git update-ref refs/heads/x $(printf 'tree %s\nauthor x <x> 0 +0000\ncommitter x <x> 0 +0000\n\nx\n' $t | git hash-object -t commit -w --stdin --literally)`)
	require.Contains(t, w.end(), "review .envrc")
}

// What cannot be read, and is asked for many times, holds a launcher up no longer than what
// can.
func TestGuardLooksAtHostileObjectsForAWhile(t *testing.T) {
	w := newWatchman(t)
	w.sh(asUser + "echo one > one; git add one; git commit -q -m one")
	w.begin()
	w.guard.knowTips(nil)
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(append([]byte("commit 67108864\x00"), make([]byte, maxObject+1)...)) // one byte too many
	require.NoError(t, z.Close())
	parent := strings.Repeat("1", 40)
	require.NoError(t, os.MkdirAll(w.path(".git/objects/11"), 0o755))
	require.NoError(t, os.WriteFile(w.path(".git/objects/11/"+parent[2:]), b.Bytes(), 0o644))
	w.sh(asUser + `{ echo tree $(git rev-parse HEAD^{tree}); for i in $(seq 400); do echo parent ` + parent + `; done; printf 'author x <x> 0 +0000\ncommitter x <x> 0 +0000\n\nx\n'; } > c; git hash-object -t commit -w --stdin --literally < c > .git/refs/heads/x; rm c`)
	began := time.Now()
	require.Equal(t, []string{"review .git"}, w.end())
	require.Less(t, time.Since(began), 20*time.Second, "each of 400 takes tenths of a second")
}
