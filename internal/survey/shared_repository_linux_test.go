package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The umask with which a directory has at once the mode that git wants of it.
func TestSharedUmask(t *testing.T) {
	for value, want := range map[string]int{
		"group": 0o002, "true": 0o002, "1": 0o002, "all": 0o002, "2": 0o002, "0660": 0o007, "0664": 0o002, "0640": 0o027,
		"umask": -1, "false": -1, "0": -1, "0600": -1, "x": -1,
	} {
		require.Equal(t, want, sharedUmask(value, 0o022), value)
	}
	require.Equal(t, 0o007, sharedUmask("group", 0o077))
}
