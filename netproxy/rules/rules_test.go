package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	r, err := Parse("github.com")
	require.NoError(t, err)
	s, err := New(r)
	require.NoError(t, err)
	require.Equal(t, Allow, s.Decide("GitHub.com.", 443).Action)
}
