package namespaces

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeHome makes a home: a path that ends in "/" is a directory, one with " ->
// " a link, one with "#!" a script, any other an empty program. HOME stands
// for the home itself.
func fakeHome(t *testing.T, paths ...string) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for _, p := range paths {
		p = strings.ReplaceAll(p, "HOME", home)
		path, target, isLink := strings.Cut(p, " -> ")
		path, script, isScript := strings.Cut(path, " #!")
		full := filepath.Join(home, path)
		if strings.HasSuffix(path, "/") {
			require.NoError(t, os.MkdirAll(full, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		switch {
		case isLink:
			require.NoError(t, os.Symlink(target, full))
		case isScript:
			require.NoError(t, os.WriteFile(full, []byte("#!"+script+"\nexit 0\n"), 0o755))
		default:
			mode := os.FileMode(0o755)
			if filepath.Ext(path) == ".txt" {
				mode = 0o644
			}
			require.NoError(t, os.WriteFile(full, nil, mode))
		}
	}
	return home
}
