package conformance_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/providers/remote"
)

// TestEnds: where nobody can move the end of a sandbox, the command ends before that, and what it changed is here.
func TestEnds(t *testing.T) {
	t.Parallel()
	k := newTask(t, &place{name: least.name, start: func(t *testing.T) *served {
		return startExampleOf(t, math.MaxInt64, remote.Facts{Life: remote.Life{MaxLife: 20 * time.Second}})
	}})
	o := k.run("/bin/sh", "-c", "echo x > made; sleep 600")
	require.NoError(t, o.err)
	require.True(t, o.TimedOut)
	require.Equal(t, 124, o.code)
	require.Equal(t, []string{"A made"}, k.changed())
	k.nothingLeft()
}
