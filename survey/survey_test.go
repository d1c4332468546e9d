package survey

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLess(t *testing.T) {
	want := []string{"/", "/a", "/a/b", "/a/b/c", "/a/b-c", "/a b", "/a-b", "/ab", "/b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Less)
	require.Equal(t, want, got)
	require.True(t, Below("/a", "/"))
	require.True(t, Below("/a/b", "/a"))
	require.False(t, Below("/ab", "/a"))
	require.False(t, Below("/", "/a"))
}
