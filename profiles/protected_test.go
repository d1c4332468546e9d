package profiles

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultProtect(t *testing.T) {
	review := map[string]bool{}
	for _, r := range DefaultProtect() {
		review[r.Pattern] = r.Review
	}
	for pattern, want := range map[string]bool{".envrc": false, ".vscode": false, "AGENTS.md": true} {
		got, ok := review[pattern]
		require.True(t, ok, pattern)
		require.Equal(t, want, got, pattern)
	}
	n, err := ParseSize("2k")
	require.NoError(t, err)
	require.EqualValues(t, 2048, n)
}
