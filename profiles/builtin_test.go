package profiles

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rules of a built-in profile are taken as they stand, so none may be a second of
// its pattern; control: two of a profile file's are one.
func TestBuiltinsProtectNothingTwice(t *testing.T) {
	for _, name := range Builtin() {
		v, err := parseBuiltin(name)
		require.NoError(t, err)
		l, err := decode(&scope{home: "/home/u", workspace: "/home/u/w"}, "built-in "+name, v)
		require.NoError(t, err)
		seen := map[string]Origin{}
		for _, r := range l.protect {
			assert.NotContains(t, seen, r.Pattern, "%s and %s", r.Origin, seen[r.Pattern])
			seen[r.Pattern] = r.Origin
		}
	}
	twice := []ProtectRule{{Pattern: "x", Origin: Origin{Source: "/p"}}, {Pattern: "x", Review: true, Origin: Origin{Source: "/p"}}}
	assert.Equal(t, twice[1:], override(nil, twice))
}
