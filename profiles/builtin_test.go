package profiles

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What the default profile protects where it stands in a home, persistent homes do not take over either.
func TestDefaultsStartupFiles(t *testing.T) {
	home := 0
	for _, r := range DefaultProtect() {
		if r.Home {
			home++
			assert.Contains(t, StartupFiles, r.Pattern)
		}
	}
	assert.NotZero(t, home)
}

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
