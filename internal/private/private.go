// Package private gives tests a directory on the way to which nothing can be written by everybody, as
// can the system's temporary directory: a program there may be executed by pccrun.
package private

import (
	"os"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Dir makes a directory, without links, in the home that the user database has. The test's end removes it.
func Dir(t testing.TB) string {
	t.Helper()
	u, err := user.Current()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(u.HomeDir, ".pccrun-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	return dir
}
