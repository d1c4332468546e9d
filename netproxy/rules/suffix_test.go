package rules

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/publicsuffix"
)

// TestPublicSuffix holds our reading of the list against golang.org/x/net's.
func TestPublicSuffix(t *testing.T) {
	check := func(name string) {
		t.Helper()
		want, _ := publicsuffix.PublicSuffix(name)
		require.Equal(t, want == name, isPublicSuffix(name), name)
	}
	for line := range strings.Lines(suffixes) {
		name := strings.TrimLeft(strings.TrimSuffix(line, "\n"), "!*.")
		check(name)
		check("a." + name)
		check("a.b." + name)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		b := []byte("aaa.bbb.cc")
		for i := range b {
			if b[i] != '.' {
				b[i] = 'a' + byte(r.IntN(26))
			}
		}
		check(string(b))
	}
	require.False(t, onList(""))
	require.False(t, onList("zzzzzzzz"))
}
