package messages

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a terminal is told: how far it is, how fast, and how long it will take where that is known.
func TestProgressLine(t *testing.T) {
	p := NewProgress("packing")
	require.False(t, p.on, "a test has no terminal")
	p.Show(1, 1)
	p.End()
	require.Equal(t, "packing: 3 files, 1m, 512k/s", p.line(3, 1<<20, 2*time.Second))
	p.Files, p.Bytes = 10, 4<<20
	require.Equal(t, "packing: 3 of 10 files, 1m of 4m, 512k/s, 6s left", p.line(3, 1<<20, 2*time.Second))
	p.Files = 0
	require.Equal(t, "packing: 1m of 4m, 512k/s, 6s left", p.line(0, 1<<20, 2*time.Second))
}
