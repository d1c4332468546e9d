package netproxy

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHelp holds the help on variables to those that a command gets: it names each,
// and those of git by the one that says how many they are.
func TestHelp(t *testing.T) {
	help, err := os.ReadFile("../cmd/pccrun/help/environment.txt")
	require.NoError(t, err)
	for _, e := range Environ("http://127.0.0.1:3128") {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "GIT_CONFIG_") {
			name = "GIT_CONFIG_COUNT"
		}
		require.Regexp(t, `(^|[ (])`+name+`[\s,;:]`, string(help))
	}
}
