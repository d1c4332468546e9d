//go:build !thin

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBelieve sets what a project's environment file could: a launcher, and a
// file to remove.
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

	// The control: the file that this program runs from, under the name that the
	// thin one gives it.
	name := filepath.Join(filepath.Dir(self), wholeFile+"1")
	require.NoError(t, os.Link(self, name))
	t.Cleanup(func() { os.Remove(name) })
	tell(name)
	require.Equal(t, "/somewhere/else", os.Getenv("PCCRUN_LAUNCHER"))
	require.NoFileExists(t, name)
}
