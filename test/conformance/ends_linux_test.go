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
	var changed []string
	for life := 20 * time.Second; changed == nil; life *= 8 { // on a busy machine all of it may be over before the command has begun
		k := newTask(t, &place{name: least.name, start: func(t *testing.T) *served {
			return startExampleOf(t, math.MaxInt64, remote.Facts{Life: remote.Life{MaxLife: life}})
		}})
		o := k.run("/bin/sh", "-c", "echo x > made; sleep 6000")
		require.NoError(t, o.err)
		require.True(t, o.TimedOut)
		require.Equal(t, 124, o.code)
		changed = k.changed()
		k.nothingLeft()
	}
	require.Equal(t, []string{"A made"}, changed)
}
