//go:build !thin

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEscapeFlags holds the copy that a launcher has against the help itself.
func TestEscapeFlags(t *testing.T) {
	require.ElementsMatch(t, strings.Fields(escapeFlags), helpFlags(strings.ReplaceAll(escapeUsage, "[FLAGS]", "")))
}
