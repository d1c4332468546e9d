package profiles

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a plain name is spared has to change nothing.
func TestPlainName(t *testing.T) {
	for text, want := range map[string]bool{
		".envrc": true, "a-b_c.D9": true, "...": true, strings.Repeat("a", maxName): true,
		"": false, ".": false, "..": false, "~": false, "$HOME": false, "a/b": false, "/a": false, "a*": false, "[a]": false, "a b": false, "a\n": false, "é": false, strings.Repeat("a", maxName+1): false,
	} {
		require.Equal(t, want, plainName(text), text)
		if want {
			full, err := (&scope{}).path("/"+text, "")
			require.NoError(t, err)
			require.Equal(t, "/"+text, full)
			require.Empty(t, checkGlob(text))
		}
	}
}
