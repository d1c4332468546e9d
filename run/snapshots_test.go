package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/profiles"
)

func TestFromNoSnapshot(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	require.Error(t, fromSnapshot(&profiles.Request{From: "none"}))
	require.Error(t, fromSnapshot(&profiles.Request{From: "../none"}))
}
