package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What takes the table away goes up as many rows as it has now: a terminal that became narrower has broken its lines.
func TestTableIsErased(t *testing.T) {
	d := &manyTable{stands: []string{strings.Repeat("x", 80), "\x1b[31m" + strings.Repeat("y", 40) + "\x1b[m", ""}}
	stands := d.stands
	require.Equal(t, "\r\x1b[3A\x1b[J", d.erased(80))
	require.Empty(t, d.erased(80), "none stands")
	d.stands = stands
	require.Equal(t, "\r\x1b[4A\x1b[J", d.erased(40))
}

func TestOfManyTasks(t *testing.T) {
	require.True(t, given([]string{"--json", "--file", "x"}, "--file"))
	require.True(t, given([]string{"--file=x"}, "--file"))
	require.False(t, given([]string{"x", "--", "--file", "y"}, "--file"))
	require.False(t, given([]string{"--files", "3", "x"}, "--file"))
}
