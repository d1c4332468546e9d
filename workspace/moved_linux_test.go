package workspace

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What came into git's directory with a directory that was prepared in an earlier run is as old as
// it was, and what lies deeper than one submodule no name leads to. That git takes both is the control.
func TestGuardTellsOfWhatGitFindsElsewhere(t *testing.T) {
	const (
		h     = `b=$(echo hostile | git hash-object -w --stdin); h=$(git commit-tree -p HEAD -m x $( { git ls-tree HEAD; printf "100644 blob $b\t.envrc\n"; } | git mktree)); `
		logs  = `mkdir -p .git/info/refs/heads; cp .git/logs/refs/heads/* .git/info/refs/heads/; { echo "0000000000000000000000000000000000000000 $h x <x> 0 +0000	x"; sed "s/^0*/$h/" .git/logs/refs/stash; } > .git/info/refs/stash`
		wrote = "; grep hostile .envrc"
		link  = `t=$(git ls-tree HEAD | sed "s/commit [0-9a-f]*/commit $h/" | git mktree); h=$(git commit-tree -p HEAD -m x $t); `
		subs  = "for r in c b; do mkdir $r; git -C $r init -q; git -C $r commit -q --allow-empty -m $r; done; export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always; git -C b submodule --quiet add $PWD/c c; git -C b commit -q -m c; git submodule --quiet add $PWD/b sub; git submodule --quiet update --init --recursive; git add sub .gitmodules; git commit -q -m sub; rm -rf b c"
	)
	for name, c := range map[string]struct {
		before, run, then string
		late              bool // the run is over before its references are noted
		want              []string
	}{
		"logs that came with a move":       {"echo 2 > one; git stash -q; " + h + logs, "mv .git/logs/refs .git/info/old; mv .git/info/refs .git/logs/refs", "git checkout -q stash@{1}" + wrote, false, []string{"review .envrc"}},
		"references that came with one":    {h + "mkdir .git/info/f; echo $h > .git/info/f/x", "mv .git/info/f .git/refs/heads/f", "git checkout -q f/x" + wrote, true, []string{"review .envrc"}},
		"all of them":                      {h + "cp -r .git/refs .git/info/refs; echo $h > .git/info/refs/heads/x", "mv .git/refs .git/info/old; mv .git/info/refs .git/refs", "git checkout -q x" + wrote, true, []string{"review .envrc"}},
		"a submodule of a submodule":       {subs, "cd sub/c; " + h + "cd ..; " + link + "cd ..; " + link + "git branch x $h", "git checkout -q --recurse-submodules x; grep hostile sub/c/.envrc", false, []string{"review sub/c/.envrc"}},
		"control: one that stood, at once": {"echo old > .envrc; git add .; git commit -q -m old; git rm -q .envrc; git commit -q -m gone; git branch f/x", "git switch -q -c f/y; git commit -q --allow-empty -m y; git stash -q", "", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "set -e; echo one > one; git add one; git commit -q -m one; " + c.before)
			time.Sleep(2 * racy)
			w.begin()
			time.Sleep(2 * racy)
			stop := make(chan struct{})
			if c.late {
				close(stop)
			}
			w.guard.knowTips(stop)
			w.sh(asUser + "set -e; " + c.run)
			got := w.end()
			w.sh(asUser + "set -e; " + c.then)
			require.Equal(t, c.want, slices.Compact(got))
		})
	}
}

// What a run may write costs a launcher no more than what may be read: a name of a tree with
// very many slashes, paths that are long and many, lists of words.
func TestGuardLooksAtLongNamesForAWhile(t *testing.T) {
	const tree = `h=$(git commit-tree -m x $(perl -e 'print "100644 $ARGV[0]\0".pack("H*",$ARGV[1])' "$(cat name)" $b | git hash-object -w -t tree --stdin --literally)); echo $h > .git/refs/heads/x`
	for name, c := range map[string]struct {
		name, run string
		want      []string
	}{
		"slashes":                {strings.Repeat("a/", 60_000) + ".envrc", tree, []string{"review .git"}},
		"words":                  {"", "for i in A B C D E F; do for j in A B C D E F; do yes abcd | head -c 1000000 > .git/$i$j; done; done", []string{"review .git"}},
		"control: fewer slashes": {strings.Repeat("a/", 2000) + ".envrc", tree, []string{"review " + strings.Repeat("a/", 2000) + ".envrc"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "echo one > one; git add one; git commit -q -m one")
			require.NoError(t, os.WriteFile(w.path("name"), []byte(c.name), 0o644))
			w.begin()
			w.guard.knowTips(nil)
			w.sh(asUser + "b=$(echo hostile | git hash-object -w --stdin); " + c.run)
			began := time.Now()
			require.Equal(t, c.want, w.end())
			require.Less(t, time.Since(began), 20*time.Second, "minutes, and gigabytes")
		})
	}
}
