//go:build !launcher

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnsearchable(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/" && strings.Contains(d, "Test"); d = filepath.Dir(d) {
		require.NoError(t, os.Chmod(d, 0o755))
	}
	require.NoError(t, os.MkdirAll(dir+"/a/b", 0o755))
	require.NotContains(t, unsearchable(dir+"/a/b/c"), dir, "what is not there yet will be")
	require.NoError(t, os.Chmod(dir+"/a", 0o700))
	require.Equal(t, dir+"/a", unsearchable(dir+"/a/b/c"))
}
