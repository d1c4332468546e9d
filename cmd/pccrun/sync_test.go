//go:build !thin

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a terminal is told: how far it is, how fast, and how long it will take where that is known.
func TestProgressLine(t *testing.T) {
	p := newProgress("packing")
	require.False(t, p.on, "a test has no terminal")
	p.show(1, 1)
	p.end()
	require.Equal(t, "packing: 3 files, 1m, 512k/s", p.line(3, 1<<20, 2*time.Second))
	p.files, p.bytes = 10, 4<<20
	require.Equal(t, "packing: 3 of 10 files, 1m of 4m, 512k/s, 6s left", p.line(3, 1<<20, 2*time.Second))
}
