package hint

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorf(t *testing.T) {
	err := Errorf("make it", "open %s: %w", "x", fs.ErrNotExist)
	require.EqualError(t, err, "open x: file does not exist")
	require.ErrorIs(t, err, fs.ErrNotExist)
	var with interface{ Hint() string }
	require.ErrorAs(t, err, &with)
	require.Equal(t, "make it", with.Hint())
}
