package orphans

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// What leaves its parent and its session is found; what ends by itself is not.
func TestEnd(t *testing.T) {
	require.NoError(t, Adopt())
	require.NoError(t, exec.Command("sh", "-c", "setsid sleep 86397 >/dev/null 2>&1 & true").Run())
	left := End(0)
	require.Len(t, left, 1)
	require.Contains(t, left[0], "sleep 86397")
	require.Empty(t, End(0))
}
