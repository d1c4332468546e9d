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
	u.closed(events.NetClosed{Host: "d.example", Error: "refused"}) // a request
	u.closed(events.NetClosed{Host: "d.example", DurationMS: 3_600_000})
	require.Equal(t, []string{
		"not reached: a.example:443, which is allowed: timed out (2 times)",
		"not reached: d.example, which is allowed: refused",
	}, u.lines())
}
