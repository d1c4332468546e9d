package profiles

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecider holds the answers that are found by path against those of a walk
// through the table.
func TestDecider(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func(most int) string {
		parts := make([]string, r.IntN(most))
		for i := range parts {
			parts[i] = string(rune('a' + r.IntN(3)))
		}
		return "/" + strings.Join(parts, "/")
	}
	globs := []string{"", "", "", "**/a", "b", "*/c", "**/[ab]", "**"}
	table := func(sources ...string) []FileRule {
		list := make([]FileRule, r.IntN(12))
		for i := range list {
			list[i] = FileRule{Path: name(4), Glob: globs[r.IntN(len(globs))], Access: Access(r.IntN(5)), Origin: Origin{Source: sources[i*len(sources)/len(list)], Line: i}}
		}
		return list
	}
	for range 2000 {
		p := &Policy{Files: table("flag"), Tighten: table("one", "two")}
		d := p.Decider()
		for range 20 {
			path := name(6)
			require.Equal(t, p.Decide(path), d.Decide(path), "%s\n%v\n%v", path, p.Files, p.Tighten)
		}
	}
}
