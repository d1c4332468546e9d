package netproxy

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage holds docs/network.md to the variables that a command gets: its table
// names each, and those of git by the one that says how many they are.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../docs/network.md")
	require.NoError(t, err)
	for _, e := range Environ("http://127.0.0.1:3128") {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "GIT_CONFIG_") {
			name = "GIT_CONFIG_COUNT"
		}
		require.Contains(t, string(page), "`"+name+"`")
	}
}
