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
		for i := range l.entries {
			if e := &l.entries[i]; keys[e.key].kind == holdsProtected {
				assert.NotContains(t, seen, e.text, "%s and %s", e.origin, seen[e.text])
				seen[e.text] = e.origin
			}
		}
	}
	twice := &layer{entries: []entry{{key: keyProtectDeny, text: "x"}, {key: keyProtectReview, text: "x"}}}
	b := newBuilder(&Policy{})
	b.apply(twice)
	b.fill()
	assert.Equal(t, []ProtectRule{{Pattern: "x", Review: true}}, b.policy.Protect)
}
