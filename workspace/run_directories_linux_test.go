package workspace

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A directory that a run has made stays for the other that uses it, and the last one removes it; one that the user made
// stays.
func TestMadeDirsOfTwoRuns(t *testing.T) {
	root, names := t.TempDir(), []string{".a", ".a/b", ".own", ".stood/c"}
	for _, own := range []string{".own", ".stood"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, own), 0o755))
	}
	first, second := MakeDirs(root, names), MakeDirs(root, names)
	first.Close()
	RemoveMade(root, names)
	require.DirExists(t, filepath.Join(root, ".a/b"), "the second uses it")
	require.DirExists(t, filepath.Join(root, ".stood/c"), "and that")
	second.Close()
	RemoveMade(root, names)
	require.NoDirExists(t, filepath.Join(root, ".a"))
	require.NoDirExists(t, filepath.Join(root, ".stood/c"))
	require.DirExists(t, filepath.Join(root, ".own"))
	require.DirExists(t, filepath.Join(root, ".stood"))

	var runs sync.WaitGroup
	for range 8 {
		runs.Go(func() {
			for range 200 {
				held := MakeDirs(root, names)
				if _, err := os.Lstat(filepath.Join(root, ".a/b")); err != nil {
					t.Error(err)
				}
				held.Close()
				RemoveMade(root, names)
			}
		})
	}
	runs.Wait()
	require.NoDirExists(t, filepath.Join(root, ".a"))
}
