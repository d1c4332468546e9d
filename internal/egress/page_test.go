package egress

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHelp holds `pccrun help environment` to the variables and files by which a command
// trusts the authority of its session.
func TestHelp(t *testing.T) {
	help, err := os.ReadFile("../../cmd/pccrun/help/environment.txt")
	require.NoError(t, err)
	for _, name := range append(trustVariables[:], nodeTrust, bundlePath) {
		require.Regexp(t, `(^|[ (])`+name+`[\s,;:]`, string(help))
	}
	require.Contains(t, string(help), "ca-bundle.p12")
}
