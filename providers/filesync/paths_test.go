package filesync

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPathsOfThisSystem packs a tree and extracts it again by the paths of the system that the test was built for: the
// archive's are the same everywhere.
func TestPathsOfThisSystem(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	require.NoError(t, os.MkdirAll(filepath.Join(from, "a", "b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(from, "a", "b", "c.txt"), []byte("c"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(from, "a", "d.txt"), []byte("d"), 0o600))
	link := filepath.Join(from, "a", "link")
	_ = os.Symlink(filepath.Join("b", "c.txt"), link) // Windows lets not everybody make one
	_, err := os.Readlink(link)
	links := err == nil
	if runtime.GOOS != "windows" {
		require.True(t, links)
		require.NoError(t, os.WriteFile(filepath.Join(from, `a\b`), nil, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(from, "C:"), nil, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(from, "nul.txt"), nil, 0o644))
	}

	tree, err := Open(context.Background(), from, Up{})
	require.NoError(t, err)
	defer tree.Close()
	var archive bytes.Buffer
	_, err = tree.Write(context.Background(), &archive)
	require.NoError(t, err)
	var paths, left []string
	for _, item := range tree.Manifest.Items {
		paths = append(paths, item.Path)
		if item.Path == "a/link" {
			assert.Equal(t, "b/c.txt", item.Entry.Target)
		}
	}
	want := []string{".", "a", "a/b", "a/b/c.txt", "a/d.txt"}
	if links {
		want = append(want, "a/link")
	}
	assert.Equal(t, want, paths)
	for _, l := range tree.Manifest.Left {
		left = append(left, l.Path)
	}
	if runtime.GOOS != "windows" {
		assert.Equal(t, []string{"C:", `a\b`, "nul.txt"}, left, "Windows has no such names")
	}

	out, err := Extract(context.Background(), to, &archive, Down{})
	require.NoError(t, err)
	assert.Equal(t, 2, out.Files)
	text, err := os.ReadFile(filepath.Join(to, "a", "b", "c.txt"))
	require.NoError(t, err)
	assert.Equal(t, "c", string(text))
	if links {
		text, err = os.ReadFile(filepath.Join(to, "a", "link"))
		require.NoError(t, err)
		assert.Equal(t, "c", string(text))
	}
}
