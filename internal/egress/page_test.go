package egress

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPage holds docs/network.md to the variables and files by which a command
// trusts the authority of its session.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/network.md")
	require.NoError(t, err)
	for _, name := range append(trustVariables[:], nodeTrust, bundlePath) {
		require.Contains(t, string(page), "`"+name+"`")
	}
	require.Contains(t, string(page), "`ca-bundle.p12`")
}
