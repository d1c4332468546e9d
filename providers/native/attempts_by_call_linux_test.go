package native

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a call wants says which flag would allow it: a name that is made, moved or replaced wants
// its directory, and a move to another directory both.
func TestAttemptsByCall(t *testing.T) {
	unprivileged(t)
	b := newBench(t)
	b.request.Report = "attempts"
	shown := filepath.Join(b.home, "shown")
	for _, file := range []string{"a/f", "b/f", "c/f", "c/g", "d/f", "e/f", "w"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(shown, file)), 0o755))
		b.write("shown/"+file, "x")
	}
	told, _ := b.attempted(`cd ../shown; mkdir new; ln -s w l; mv a/f a/g; mv -f c/f c/g; mv d/f e/g; echo x > b/new; echo x > w; true`)
	whole := "--write " + shown + " in place of --read " + shown
	for name, want := range map[string]string{
		"new": whole, "l": whole, "w": "--write " + shown + "/w",
		"a/f": "--write " + shown + "/a", "a/g": "--write " + shown + "/a", "c/f": "--write " + shown + "/c", "c/g": "--write " + shown + "/c", "b/new": "--write " + shown + "/b",
		"d/f": "--write " + shown + "/d --write " + shown + "/e", "e/g": "--write " + shown + "/d --write " + shown + "/e",
	} {
		path := filepath.Join(shown, name)
		require.Contains(t, told, path)
		require.Equal(t, want, told[path].Hint, name)
		delete(told, path)
	}
	require.Empty(t, told)
}
