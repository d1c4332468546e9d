//go:build !launcher

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBelieve sets what a project's environment file could: a launcher, and a
// file to remove. The control is testdata/doctor.txtar, whose `carried` is believed.
func TestBelieve(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	tell := func(name string) {
		t.Setenv("PCCRUN_LAUNCHER", "/somewhere/else")
		t.Setenv(wholeVariable, name)
		believe()
	}
	other := filepath.Join(t.TempDir(), wholeFile+"other")
	require.NoError(t, os.WriteFile(other, nil, 0o600))
	for _, name := range []string{"", other, self} {
		tell(name)
		require.Empty(t, os.Getenv("PCCRUN_LAUNCHER"), name)
		require.Empty(t, os.Getenv(wholeVariable))
	}
	require.FileExists(t, other)
	require.FileExists(t, self)
}
