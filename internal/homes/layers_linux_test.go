package homes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What a run has left in a layer is kept as far as it is regular files, and nothing of it reaches beyond the home.
//
//test:root
func TestLayers(t *testing.T) {
	work, layer := t.TempDir(), t.TempDir()
	dir := filepath.Join(work, ".agent")
	h, err := Open(t.TempDir(), work, "p", "p")
	require.NoError(t, err)
	t.Cleanup(h.Close)
	put := func(path, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	keep := func() map[string]bool {
		fd, err := unix.Open(layer, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		kept, err := h.Keep(dir, fd, func(path string) bool { return path == dir+"/skipped" })
		require.NoError(t, err)
		return kept
	}
	shown := func() (names []string) {
		at, err := h.Layer(dir)
		require.NoError(t, err)
		if at == "" {
			return nil
		}
		require.NoError(t, filepath.WalkDir(at, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				names = append(names, path[len(at)+1:])
			}
			return err
		}))
		return names
	}
	put(dir+"/same", "same")
	require.NoError(t, os.Chtimes(dir+"/same", time.Time{}, time.Time{}))
	require.Nil(t, shown())
	put(work+"/secret", "secret")
	h.Record.Used = time.Now().Add(time.Hour)
	put(layer+"/a", "a")
	put(layer+"/d/b", "b")
	put(layer+"/same", "same")
	put(layer+"/skipped", "x")
	put(layer+"/large", strings.Repeat("x", maxFile+1))
	require.NoError(t, os.Symlink(work+"/secret", layer+"/link"))
	require.NoError(t, os.Link(layer+"/d/b", layer+"/twice"))
	require.NoError(t, unix.Mkfifo(layer+"/fifo", 0o600))
	require.Equal(t, map[string]bool{dir + "/a": true}, keep())
	require.NoError(t, os.Remove(layer+"/twice"))
	require.Equal(t, map[string]bool{dir + "/a": true, dir + "/d/b": true}, keep())
	require.Equal(t, []string{"a", "d/b"}, shown())

	// What was removed goes, and what became another kind.
	require.NoError(t, os.RemoveAll(layer))
	require.NoError(t, os.Mkdir(layer, 0o755))
	require.NoError(t, unix.Mknod(layer+"/d", unix.S_IFCHR, 0))
	put(layer+"/a/deep", "deep")
	keep()
	require.Equal(t, []string{"a/deep"}, shown())
	require.NoError(t, os.RemoveAll(layer+"/a"))
	put(layer+"/a", "file")
	keep()
	require.Equal(t, []string{"a"}, shown())

	// The host's counts where it has changed since, also into something else; and what it changed during the run.
	put(dir+"/a", "host")
	require.Nil(t, shown())
	require.NoError(t, os.RemoveAll(dir))
	put(layer+"/a", "again")
	keep()
	require.Equal(t, []string{"a"}, shown())
	require.NoError(t, os.MkdirAll(dir+"/a", 0o755))
	require.Nil(t, shown())
	require.NoError(t, os.RemoveAll(dir))
	put(dir+"/a", "meanwhile")
	h.Record.Used = time.Now().Add(-time.Hour)
	require.Empty(t, keep())
	require.Nil(t, shown())
}
