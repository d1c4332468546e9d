package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/events"
)

// TestUnreached: of an allowed host that was reached at last nothing is said.
func TestUnreached(t *testing.T) {
	var u unreached
	u.closed(events.NetClosed{Host: "a.example", Port: 443, Error: "refused"})
	u.closed(events.NetClosed{Host: "a.example", Port: 443, Error: "timed out"})
	u.closed(events.NetClosed{Host: "b.example", Error: "refused"})
	u.closed(events.NetClosed{Host: "b.example"})
	u.closed(events.NetClosed{Host: "c.example"})
	require.Equal(t, []string{"a.example:443", "b.example"}, u.order)
	require.Equal(t, failedTries{2, "timed out"}, *u.tries["a.example:443"])
	require.Zero(t, u.tries["b.example"].n)
	u.say()
}
