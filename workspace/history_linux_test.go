package workspace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What makes git show another history than there is, is told in a repository that stood.
func TestGuardTellsOfAnotherHistory(t *testing.T) {
	const replace = "git replace HEAD $(git commit-tree -m other HEAD^{tree})"
	const other = "git log --format=%s -1 | grep -q other"
	const short = "test $(git log --format=%s | wc -l) = 1"
	for name, c := range map[string]struct {
		before, run string
		shows       string // what git does then
		want        []string
	}{
		"a replacement":           {"", replace, other, []string{"review .git/refs/replace"}},
		"a packed one":            {"", replace + "; git pack-refs --all", other, []string{"review .git/packed-refs"}},
		"one that is changed":     {"git replace HEAD HEAD~1", "f=$(ls .git/refs/replace); git commit-tree -m other HEAD^{tree} > x; cat x > .git/refs/replace/$f", other, []string{"review .git/refs/replace"}},
		"a graft":                 {"", "git rev-parse HEAD > .git/info/grafts", short, []string{"review .git/info/grafts"}},
		"an end":                  {"", "git rev-parse HEAD > .git/shallow", short, []string{"review .git/shallow"}},
		"a graft that is moved":   {"mkdir x; git rev-parse HEAD > x/grafts", "rm -rf .git/info; mv x .git/info", short, []string{"review .git/info/grafts"}},
		"a replacement moved":     {replace + "; mv .git/refs/replace x", "cp -r .git/refs y; mv x y/replace; rm -rf .git/refs; mv y .git/refs; git pack-refs --all --no-prune", other, []string{"review .git/packed-refs", "review .git/refs/replace"}},
		"a directory moved":       {replace + "; cp -rp .git/refs x; rm -rf .git/refs/replace", "mv .git/refs y; mv x .git/refs", other, []string{"review .git/refs/replace"}},
		"a clone that is shallow": {"", "git clone -q --depth=1 file://$PWD c", "true", nil},
		"a replacement in a new":  {"", "git clone -q . c; cd c; git replace HEAD HEAD~1", "true", nil},
		"what stood":              {replace, "git commit -q --allow-empty -m more; git gc -q --no-prune || true; rm -f .git/packed-refs.x", "true", []string{"review .git/packed-refs"}},
		"objects of another":      {"git init -q --bare o", "echo $PWD/o/objects > .git/objects/info/alternates; git -C o commit-tree -m other $(git -C o mktree < /dev/null) > x; git reset -q --soft $(cat x)", other, []string{"review .git/objects/info/alternates"}},
		"of another in a new":     {"", "git clone -q --shared . c", "true", nil},
		"work":                    {"git tag x", "git commit -q --allow-empty -m more; git tag -d x > /dev/null; git pack-refs --all; git replace -l; mkdir -p .git/refs/replace", "true", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatchman(t)
			w.sh(asUser + "git commit -q --allow-empty -m one; git commit -q --allow-empty -m two; " + c.before)
			w.begin()
			w.sh(asUser + c.run)
			w.sh("if ! ( " + c.shows + " ); then echo control: git shows what there is; exit 1; fi")
			require.Equal(t, strings.Join(c.want, " "), strings.Join(w.end(), " "))
		})
	}
}

// Replacements that git itself packs are the ones that there were.
func TestGuardReplacementsThatStood(t *testing.T) {
	const replace = "git replace HEAD $(git commit-tree -m other HEAD^{tree}); "
	for run, told := range map[string]bool{
		"git gc -q; git stash -q; git gc -q": false,
		"git pack-refs --all; git tag x":     false,
		"git replace -d $(git replace -l)":   false, // it shows what there is, then
		"git replace HEAD~1 HEAD; git gc -q": true,
		"git replace -f HEAD HEAD~1":         true,
	} {
		for _, packed := range []string{"", "git pack-refs --all; "} {
			for _, known := range []bool{true, false} {
				w := newWatchman(t)
				w.sh(asUser + "echo x > f; git add f; git commit -q -m one; git commit -q --allow-empty -m two; " + replace + packed)
				w.begin()
				if known {
					w.guard.remember()
				}
				w.sh(asUser + "echo y > f; " + run)
				tells := strings.Contains(strings.Join(w.end(), " "), "review .git/")
				if !known && strings.Contains(run, "git gc") {
					require.True(t, tells, "control: what was not known is told: %s%s", packed, run)
				} else if known {
					require.Equal(t, told, tells, "%s%s", packed, run)
				}
			}
		}
	}
}

// A commit from a working copy of Subversion's runs the hooks of the repository that it
// names, which may lie in the workspace.
func TestGuardTellsOfSubversionHooks(t *testing.T) {
	for name, c := range map[string]struct {
		before, run string
		want        []string
	}{
		"new":         {"", "mkdir -p r/hooks r/db r/conf r/locks; echo x > r/hooks/pre-commit; chmod +x r/hooks/pre-commit; echo x > r/hooks/pre-commit.tmpl", []string{"program r/hooks/pre-commit"}},
		"moved there": {"mkdir -p r/hooks r/db r/conf r/locks h; echo x > h/pre-lock; chmod +x h/pre-lock", "rmdir r/hooks; mv h r/hooks", []string{"program r/hooks/pre-lock"}},
		"that stood":  {"mkdir -p r/hooks r/db r/conf r/locks h; echo x > r/hooks/pre-lock; chmod +x r/hooks/pre-lock", "echo x > r/db/x", nil},
		"in a source": {"", "mkdir -p r/hooks r/db r/conf; echo x > r/hooks/pre-commit; chmod +x r/hooks/pre-commit", nil},
	} {
		w := newWatchman(t)
		w.sh(c.before)
		w.begin()
		w.sh(c.run)
		require.Equal(t, c.want, w.end(), name)
	}
}
