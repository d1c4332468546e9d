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
		"a clone that is shallow": {"", "git clone -q --depth=1 file://$PWD c", "true", nil},
		"a replacement in a new":  {"", "git clone -q . c; cd c; git replace HEAD HEAD~1", "true", nil},
		"what stood":              {replace, "git commit -q --allow-empty -m more; git gc -q --no-prune || true; rm -f .git/packed-refs.x", "true", []string{"review .git/packed-refs"}},
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
